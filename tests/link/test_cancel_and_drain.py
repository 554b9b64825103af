"""Stopping: one handler because its run was cancelled, or the whole worker because it is asked to leave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process

import pytest
from tidewheel import RunContext, Worker
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import ScriptedDispatcher, acknowledgement, assignment, dispatchers, running
from tests.support.polling import eventually

# Less than the interval of heartbeats, by far.
LIVENESS_S = 20.0


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "thread"])
async def test_b96_a_cancel_reaches_the_handler_at_once_not_with_the_next_heartbeat(blocking: bool) -> None:
    async with dispatchers(heartbeat_interval_s=60.0, lease_s=180.0) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        started = asyncio.Event()
        loop = asyncio.get_running_loop()
        seen: list[tuple[float, str]] = []

        async def steps(ctx: RunContext) -> None:
            started.set()
            try:
                for _ in range(6_000):
                    await asyncio.sleep(0.01)
            finally:
                seen.append((time.monotonic(), ctx.cancel_reason))

        def waits(ctx: RunContext) -> None:
            loop.call_soon_threadsafe(started.set)
            ctx.wait_cancelled(60)
            seen.append((time.monotonic(), ctx.cancel_reason))
            ctx.raise_if_cancelled()

        worker.handler("work")(waits if blocking else steps)
        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            await started.wait()
            ordered_s = time.monotonic()
            stream.cancel(made.ref)
            result = await eventually(lambda: stream.result_of(made), LIVENESS_S)
    assert result is not None
    assert result.HasField("canceled")
    assert seen[0][1] == "cancel requested"
    assert seen[0][0] - ordered_s < LIVENESS_S


async def test_a_cancel_that_comes_with_the_assignment_ends_the_attempt_before_its_first_line() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        lines: list[str] = []

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            lines.append("ran")
            await asyncio.sleep(60)

        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            stream.cancel(made.ref)
            result = await eventually(lambda: stream.result_of(made))
            assert result is not None
            assert result.HasField("canceled")
            await eventually(lambda: stream.unused == 10)


async def test_a_cancel_of_a_run_that_has_ended_is_ignored() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: "done")
        async with running(worker):
            stream = await dispatcher.stream(with_credit=10)
            made = assignment()
            stream.assign(made)
            await eventually(lambda: stream.result_of(made))
            stream.cancel(made.ref)
            stream.assign(assignment())
            await eventually(lambda: len(stream.results) == 2)
    assert all(result.HasField("success") for result in stream.results)


async def test_the_dispatchers_time_limit_counts_as_timed_out() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            await asyncio.sleep(60)

        async with running(worker):
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            stream.cancel(made.ref, "timed out")
            result = await eventually(lambda: stream.result_of(made))
            assert result is not None
            assert result.failure.timed_out


# ---- draining ----


async def test_b97_draining_takes_no_new_work_keeps_its_leases_and_ends_when_results_are_acknowledged() -> None:
    async with dispatchers(heartbeat_interval_s=0.1) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        go_on = asyncio.Event()

        @worker.handler("work")
        async def work(_: RunContext) -> str:
            await go_on.wait()
            return "done"

        async with running(worker) as task:
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            dispatcher.verdict_of_result = lambda ref: None
            await eventually(lambda: stream.heartbeats)
            worker.drain(60)
            await eventually(lambda: stream.goodbye)
            beats = len(stream.heartbeats)
            await eventually(lambda: len(stream.heartbeats) >= beats + 5)
            go_on.set()
            await eventually(lambda: stream.result_of(made))
            assert not task.done(), "the result is not acknowledged yet"
            stream.say(acknowledgements=pb.Acknowledgements(items=[acknowledgement(made.ref, pb.VERDICT_ACCEPTED)]))
            await asyncio.wait_for(task, 10)
    assert stream.unused == 0
    assert len(stream.results) == 1


async def test_after_the_drain_limit_handlers_are_cancelled_and_reported() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            await asyncio.sleep(60)

        async with running(worker) as task:
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            await eventually(lambda: stream.heartbeats)
            worker.drain(0.3)
            await asyncio.wait_for(task, 10)
    result = stream.result_of(made)
    assert result is not None
    assert result.failure.message == "stopped: worker shut down"
    assert not result.failure.not_retryable


async def test_draining_delivers_results_over_a_stream_that_broke_meanwhile() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        started, go_on = asyncio.Event(), asyncio.Event()

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            started.set()
            await go_on.wait()

        async with running(worker) as task:
            made = assignment()
            (await dispatcher.stream()).assign(made)
            await started.wait()
            await dispatcher.stop()
            worker.drain(60)
            go_on.set()
            await dispatcher.start()
            await asyncio.wait_for(task, 20)
    assert dispatcher.streams[-1].result_of(made)
    assert dispatcher.streams[-1].goodbye
    assert dispatcher.streams[-1].total == 0


PROGRAM = """
import asyncio, sys
from tidewheel import Worker

worker = Worker(dispatchers=[sys.argv[1]], drain_limit_s=60)

@worker.handler("work")
async def work(ctx):
    await asyncio.sleep(float(ctx.text()))
    return "done"

@worker.handler("stuck")
def stuck(ctx):
    import time
    time.sleep(60)

worker.main()
"""


async def program(dispatcher: ScriptedDispatcher) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, dispatcher.address, stdout=PIPE, stderr=PIPE, env={**os.environ}
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_b97_a_signal_drains_a_worker_program_which_exits_with_0(number: signal.Signals) -> None:
    async with dispatchers() as (dispatcher,):
        process = await program(dispatcher)
        try:
            stream = await dispatcher.stream()
            made = assignment(payload=b"1.0")
            stream.assign(made)
            await eventually(lambda: stream.heartbeats)
            process.send_signal(number)
            await eventually(lambda: stream.goodbye)
            output, errors = await asyncio.wait_for(process.communicate(), 20)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, output, errors) == (0, b"", b"")
    result = stream.result_of(made)
    assert result is not None
    assert result.success.result == b"done"


@pytest.mark.parametrize("handler", ["work", "stuck"])
async def test_a_second_signal_ends_a_worker_program_at_once(handler: str) -> None:
    async with dispatchers() as (dispatcher,):
        process = await program(dispatcher)
        try:
            stream = await dispatcher.stream()
            stream.assign(assignment(handler, payload=b"60"))
            await eventually(lambda: stream.heartbeats)
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: stream.goodbye)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 10) == -signal.SIGTERM
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_row_33_a_worker_stopped_beyond_its_lease_stops_its_handler_when_it_goes_on() -> None:
    """SIGSTOP, then SIGCONT: the attempt's time is over, and the process knows it by its own clock."""
    async with dispatchers(heartbeat_interval_s=0.2, lease_s=1.0) as (dispatcher,):
        process = await program(dispatcher)
        try:
            stream = await dispatcher.stream()
            made = assignment(payload=b"30")
            stream.assign(made)
            await eventually(lambda: stream.heartbeats)
            process.send_signal(signal.SIGSTOP)
            dispatcher.verdict_of_heartbeat = lambda ref: acknowledgement(ref, pb.VERDICT_STALE)
            dispatcher.verdict_of_result = lambda ref: acknowledgement(ref, pb.VERDICT_STALE)
            await asyncio.sleep(2.0)
            process.send_signal(signal.SIGCONT)
            reported = await eventually(
                lambda: [result for one in dispatcher.streams for result in one.results if result.ref == made.ref]
            )
            assert reported[0].failure.message in ("stopped: lease lost",)
        finally:
            process.kill()
            await process.communicate()
