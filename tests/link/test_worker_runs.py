"""What handlers get and give, over a real stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tidewheel import RunContext, Worker
from tidewheel.handlers import HandlerFunction
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import assignment, dispatchers, running
from tests.support.polling import eventually


async def outcome(handler: HandlerFunction, made: pb.Assignment) -> pb.Result:
    """The result that a worker with this handler reports of one assignment."""
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(handler)
        async with running(worker):
            stream = await dispatcher.stream()
            stream.assign(made)
            return await eventually(lambda: stream.result_of(made))


async def test_an_async_handler_returns_json() -> None:
    async def work(ctx: RunContext) -> dict[str, object]:
        return {"run": ctx.run_id, "attempt": ctx.attempt, "payload": ctx.json()}

    made = assignment(payload=b'{"a":1}', attempt=3)
    result = await outcome(work, made)

    assert result.success.result_type == "application/json"
    assert result.success.result.decode() == f'{{"run":"{made.ref.run_id}","attempt":3,"payload":{{"a":1}}}}'
    assert result.ref == made.ref
    assert result.HasField("started_at")
    assert result.HasField("took")


async def test_hello_says_who_the_worker_is() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address], queues=["q1", "q2"], slots=7, namespace="team", worker_id="w")
        worker.handler("a")(print)
        worker.handler("b")(print)
        async with running(worker):
            hello = (await dispatcher.stream()).hello
    assert (hello.protocol_version, hello.worker_id, hello.namespace, hello.slots) == (1, "w", "team", 7)
    assert (list(hello.queues), list(hello.handlers), list(hello.holding)) == (["q1", "q2"], ["a", "b"], [])
    assert hello.sdk.startswith("python ")


async def test_blocking_handlers_run_side_by_side_in_threads() -> None:
    """Heartbeats go on while each slot's thread is blocked."""
    meeting, heard = threading.Barrier(4), threading.Event()
    async with dispatchers(heartbeat_interval_s=0.1) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address], slots=4)

        @worker.handler("work")
        def work(ctx: RunContext) -> str:
            meeting.wait(30)
            assert heard.wait(30)
            return threading.current_thread().name

        async with running(worker):
            stream = await dispatcher.stream(with_credit=4)
            stream.assign(*[assignment() for _ in range(4)])
            await eventually(lambda: len(stream.heartbeats) >= 2, what="heartbeats go on")
            heard.set()
            await eventually(lambda: len(stream.results) == 4)
    assert len({result.success.result for result in stream.results}) == 4


async def test_a_handler_that_is_not_known_is_returned_unstarted() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: None)
        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment("unheard-of")
            stream.assign(made)
            await eventually(lambda: stream.returns == [made.ref])


async def test_b94_a_result_too_large_fails_alone_and_the_stream_lives() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])

        @worker.handler("work")
        async def work(ctx: RunContext) -> bytes:
            return bytes(int(ctx.text()))

        async with running(worker):
            stream = await dispatcher.stream(with_credit=5)
            large = assignment(payload=b"5242880")
            # Twenty of the largest results make more than gRPC's 4 MiB: they leave in several frames.
            fits = [assignment(payload=b"262144") for _ in range(4)]
            stream.assign(large, *fits)
            await eventually(lambda: len(stream.results) == 5)
            result = stream.result_of(large)
            assert result is not None
            assert result.failure.not_retryable
            assert "5,242,880 bytes" in result.failure.message
            assert all(stream.result_of(made).success.result == bytes(262_144) for made in fits)  # type: ignore[union-attr]
        assert len(dispatcher.streams) == 1


async def test_large_results_of_one_turn_leave_in_frames_below_the_limit() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address], slots=40)

        @worker.handler("work")
        async def work(_: RunContext) -> bytes:
            return bytes(262_144)

        async with running(worker):
            stream = await dispatcher.stream(with_credit=40)
            stream.assign(*[assignment() for _ in range(40)])
            await eventually(lambda: len(stream.results) == 40)
    assert len(dispatcher.streams) == 1
    assert stream.result_frames >= 10


async def test_a_crowd_of_results_leaves_in_few_frames_with_few_grants() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address], slots=500)

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            return None

        async with running(worker):
            stream = await dispatcher.stream(with_credit=500)
            stream.assign(*[assignment() for _ in range(500)])
            await eventually(lambda: len(stream.results) == 500 and stream.unused == 500)
    assert stream.result_frames <= 5
    assert stream.grant_frames <= 6


async def test_the_time_limit_ends_an_attempt_as_timed_out() -> None:
    async def work(_: RunContext) -> None:
        await asyncio.sleep(60)

    result = await outcome(work, assignment(timeout_s=0.2))
    assert result.failure.timed_out


async def test_progress_travels_with_heartbeats_and_the_last_one_before_the_end() -> None:
    async with dispatchers(heartbeat_interval_s=0.1) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        go_on = asyncio.Event()

        @worker.handler("work")
        async def work(ctx: RunContext) -> None:
            ctx.heartbeat("first")
            await go_on.wait()
            ctx.heartbeat("last")
            raise ValueError("gives up")

        def acknowledged(told: list[bytes | None]) -> bool:
            """A heartbeat without the report followed: until its acknowledgement has come it is repeated."""
            return b"first" in told and None in told[told.index(b"first") :]

        def reports(frames: Sequence[pb.Heartbeats]) -> list[bytes | None]:
            return [beat.progress if beat.HasField("progress") else None for frame in frames for beat in frame.items]

        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            await eventually(lambda: acknowledged(reports(stream.heartbeats)))
            seen = len(stream.heartbeats)
            go_on.set()
            await eventually(lambda: stream.result_of(made))
    later = [report for report in reports(stream.heartbeats[seen:]) if report is not None]
    assert later == [b"last"], "an unchanged report is not repeated once it was acknowledged"


# ---- processes in handlers (B85) ----


def squared(number: int) -> int:
    return number * number


def in_a_subprocess(_: RunContext) -> str:
    return subprocess.run([sys.executable, "-c", "print(49)"], capture_output=True, text=True, check=True).stdout


def in_a_spawned_pool(_: RunContext) -> str:
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return str(pool.submit(squared, 7).result(30))


async def in_an_asyncio_subprocess(_: RunContext) -> bytes:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(49)", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output


@pytest.mark.parametrize("handler", [in_a_subprocess, in_an_asyncio_subprocess, in_a_spawned_pool])
async def test_b85_handlers_may_start_processes_while_the_stream_lives(handler: object) -> None:
    async with dispatchers(heartbeat_interval_s=0.2) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address], slots=3)
        worker.handler("work")(handler)  # type: ignore[type-var]
        async with running(worker):
            stream = await dispatcher.stream(with_credit=3)
            stream.assign(*[assignment() for _ in range(3)])
            await eventually(lambda: len(stream.results) == 3, 60)
            stream.assign(assignment())
            await eventually(lambda: len(stream.results) == 4, 60)
        assert len(dispatcher.streams) == 1
    assert [result.success.result.strip() for result in stream.results] == [b"49"] * 4


# ---- traces (B126, B128) ----


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "thread"])
async def test_b128_the_handlers_span_continues_the_trace_of_its_run(
    monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    inside: list[trace.SpanContext] = []

    async def later(_: RunContext) -> None:
        inside.append(trace.get_current_span().get_span_context())

    def now(_: RunContext) -> None:
        inside.append(trace.get_current_span().get_span_context())

    made = assignment(attempt=2, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await outcome(now if blocking else later, made)

    (span,) = exporter.get_finished_spans()
    assert span.name == "tidewheel.handler work"
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert inside[0].span_id == span.context.span_id
    assert span.attributes is not None
    assert span.attributes["tidewheel.run_id"] == made.ref.run_id
    assert span.attributes["tidewheel.attempt"] == 2
    assert span.attributes["tidewheel.job"] == "a-job"


async def test_a_handler_over_its_lease_is_told_and_its_result_is_still_sent() -> None:
    """Nobody answers heartbeats; the stream itself is cut by the worker, since it is as good as broken."""
    async with dispatchers(heartbeat_interval_s=0.1, lease_s=2.0) as (dispatcher,):
        dispatcher.answers_heartbeats = False
        worker = Worker(dispatchers=[dispatcher.address])
        reasons: list[str] = []

        @worker.handler("work")
        def work(ctx: RunContext) -> str:
            while not ctx.wait_cancelled(5):
                pass
            reasons.append(ctx.cancel_reason)
            return "kept on"

        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment()
            began_s = time.monotonic()
            stream.assign(made)
            await eventually(lambda: any(one.result_of(made) for one in dispatcher.streams))
    assert reasons == ["lease lost"]
    assert time.monotonic() - began_s >= 2.0
    assert len(dispatcher.streams) >= 2
