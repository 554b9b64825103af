"""Faults on the way between worker and dispatcher: nothing that ran is lost, nothing that moved goes on."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from tidewheel import RunContext, Worker, WorkerRefused
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_control_plane import control_planes
from tests.link.scripted_dispatcher import (
    ScriptedDispatcher,
    accepted,
    acknowledgement,
    assignment,
    dispatchers,
    running,
)
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy


def port_of(dispatcher: ScriptedDispatcher) -> int:
    return int(dispatcher.address.rpartition(":")[2])


async def test_row_13_an_attempt_outlives_a_cut_and_its_result_is_sent_on_the_new_stream() -> None:
    async with dispatchers() as (dispatcher,), TcpProxy("127.0.0.1", port_of(dispatcher)) as proxy:
        worker = Worker(dispatchers=[proxy.endpoint])
        go_on = asyncio.Event()
        starts = 0

        @worker.handler("work")
        async def work(_: RunContext) -> str:
            nonlocal starts
            starts += 1
            await go_on.wait()
            return "done"

        async with running(worker):
            made = assignment()
            (await dispatcher.stream()).assign(made)
            await eventually(lambda: starts == 1)
            proxy.cut()
            await eventually(lambda: len(dispatcher.streams) == 2)
            again = await dispatcher.stream()
            assert list(again.hello.holding) == [made.ref], "Hello names what still runs"
            go_on.set()
            await eventually(lambda: again.result_of(made))
    assert starts == 1


async def test_results_are_repeated_on_each_stream_until_acknowledged() -> None:
    async with dispatchers() as (dispatcher,), TcpProxy("127.0.0.1", port_of(dispatcher)) as proxy:
        dispatcher.verdict_of_result = lambda ref: None
        worker = Worker(dispatchers=[proxy.endpoint])

        @worker.handler("work")
        async def work(_: RunContext) -> str:
            return "done"

        async with running(worker):
            made = assignment()
            (await dispatcher.stream()).assign(made)
            await eventually(lambda: dispatcher.streams[0].result_of(made))
            proxy.cut()
            await eventually(lambda: len(dispatcher.streams) == 2 and dispatcher.streams[1].result_of(made))
            dispatcher.verdict_of_result = accepted
            proxy.cut()
            await eventually(lambda: len(dispatcher.streams) == 3 and dispatcher.streams[2].result_of(made))
            third = await dispatcher.stream()
            # Frames keep their order: what comes back unstarted came after the acknowledgement.
            third.assign(assignment("unheard-of"))
            await eventually(lambda: third.returns)
            proxy.cut()
            fourth = await eventually(lambda: len(dispatcher.streams) == 4 and dispatcher.streams[3])
            assert fourth
            assert list(fourth.hello.holding) == []
            await dispatcher.stream()
            assert fourth.results == []


async def test_retry_is_said_again_on_the_same_stream() -> None:
    async with dispatchers() as (dispatcher,):
        answers = [pb.VERDICT_RETRY, pb.VERDICT_RETRY, pb.VERDICT_ACCEPTED]
        dispatcher.verdict_of_result = lambda ref: acknowledgement(ref, answers.pop(0))
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: "done")
        async with running(worker):
            stream = await dispatcher.stream()
            stream.assign(assignment())
            await eventually(lambda: not answers)
    assert len(stream.results) == 3
    assert len(dispatcher.streams) == 1


async def test_redirect_goes_to_the_owner_even_if_the_worker_did_not_know_it() -> None:
    async with dispatchers(2) as (old, new):
        old.verdict_of_result = lambda ref: acknowledgement(ref, pb.VERDICT_REDIRECT, new.address)
        worker = Worker(dispatchers=[old.address])
        worker.handler("work")(lambda ctx: "done")
        async with running(worker):
            made = assignment()
            (await old.stream()).assign(made)
            stream = await new.stream(with_credit=0)
            assert await eventually(lambda: stream.result_of(made))
            assert list(stream.hello.holding) == [made.ref]
    assert len(old.streams[0].results) == 1


async def test_a_redirected_heartbeat_moves_the_attempt_while_it_runs() -> None:
    async with dispatchers(2) as (old, new):
        worker = Worker(dispatchers=[old.address, new.address])
        go_on = asyncio.Event()

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            await go_on.wait()

        async with running(worker):
            made = assignment()
            old.verdict_of_heartbeat = lambda ref: acknowledgement(ref, pb.VERDICT_REDIRECT, new.address)
            (await old.stream()).assign(made)
            stream = await new.stream()
            await eventually(lambda: any(made.ref == beat.ref for frame in stream.heartbeats for beat in frame.items))
            go_on.set()
            await eventually(lambda: stream.result_of(made))
    assert old.streams[0].results == []


async def test_row_14_stale_stops_the_handler_and_nothing_is_sent() -> None:
    async with dispatchers(heartbeat_interval_s=0.1) as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        stopped: list[str] = []

        @worker.handler("work")
        async def work(ctx: RunContext) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.append(ctx.cancel_reason)

        async with running(worker):
            stream = await dispatcher.stream(with_credit=10)
            dispatcher.verdict_of_heartbeat = lambda ref: acknowledgement(ref, pb.VERDICT_STALE)
            stream.assign(assignment())
            await eventually(lambda: stopped == ["no longer this worker's"])
            await eventually(lambda: stream.unused == 10)
    assert stream.results == []


async def test_the_results_of_a_dispatcher_that_is_gone_reach_its_successor() -> None:
    async with control_planes() as (plane,), dispatchers(3) as (gone, one, other):
        plane.names(gone.address, one.address, other.address)
        worker = Worker(plane.address)
        started, go_on = asyncio.Event(), asyncio.Event()

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            started.set()
            await go_on.wait()

        one.verdict_of_result = lambda ref: acknowledgement(ref, pb.VERDICT_REDIRECT, other.address)
        async with running(worker):
            made = assignment()
            (await gone.stream()).assign(made)
            await one.stream()
            await other.stream()
            await started.wait()
            await gone.stop()
            plane.names(one.address, other.address)
            go_on.set()
            await eventually(lambda: other.streams[0].result_of(made))


@pytest.mark.parametrize("seen_by", ["hello", "heartbeats"])
async def test_a_frozen_stream_is_left_and_a_new_one_opened(seen_by: str) -> None:
    async with (
        dispatchers(heartbeat_interval_s=0.2, lease_s=6.0) as (dispatcher,),
        TcpProxy("127.0.0.1", port_of(dispatcher)) as proxy,
    ):
        worker = Worker(dispatchers=[proxy.endpoint])

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            await asyncio.sleep(60)

        async with running(worker):
            if seen_by == "hello":
                proxy.stall()
                await eventually(lambda: proxy.connections_seen >= 1)
            else:
                made = assignment()
                (await dispatcher.stream()).assign(made)
                await eventually(lambda: dispatcher.streams[0].heartbeats)
                proxy.stall()
                # Half a lease without a reply.
                await eventually(lambda: proxy.connections_seen >= 2 or dispatcher.streams[0].ended, 20)
            proxy.heal()
            proxy.cut()
            if seen_by == "heartbeats":
                await eventually(lambda: len(dispatcher.streams) >= 2)
            stream = await dispatcher.stream()
            if seen_by == "heartbeats":
                assert list(stream.hello.holding) == [made.ref]


async def test_b93_heartbeats_delayed_behind_results_disturb_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Replies to heartbeats of runs that have ended say STALE, late; 200 short runs."""
    async with dispatchers(heartbeat_interval_s=0.05) as (dispatcher,):
        ended: set[str] = set()

        def note(ref: pb.AttemptRef) -> pb.Acknowledgement:
            ended.add(ref.run_id)
            return accepted(ref)

        dispatcher.verdict_of_result = note
        dispatcher.verdict_of_heartbeat = lambda ref: (
            acknowledgement(ref, pb.VERDICT_STALE) if ref.run_id in ended else None
        )
        worker = Worker(dispatchers=[dispatcher.address], slots=20)
        stops: list[str] = []

        @worker.handler("work")
        async def work(ctx: RunContext) -> None:
            await asyncio.sleep(random.uniform(0, 0.1))
            ctx.heartbeat("nearly done")
            stops.extend(filter(None, [ctx.cancel_reason]))

        with caplog.at_level(logging.WARNING, logger="tidewheel"):
            async with running(worker):
                stream = await dispatcher.stream(with_credit=20)
                sent = 0

                def feed() -> bool:
                    nonlocal sent
                    count = min(stream.unused, 200 - sent)
                    if count:
                        stream.assign(*[assignment() for _ in range(count)])
                        sent += count
                    return len(stream.results) == 200

                await eventually(feed, 30)
    assert stops == []
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_dispatcher_that_says_nothing_to_hello_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.link.WELCOME_WITHIN_S", 0.3)
    async with dispatchers() as (dispatcher,):
        dispatcher.answers_hello = False
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: None)
        async with running(worker):
            await eventually(lambda: len(dispatcher.streams) >= 2)
            dispatcher.answers_hello = True
            await dispatcher.stream()


async def test_a_worker_that_everybody_refuses_ends_with_the_reason() -> None:
    async with dispatchers(2) as both:
        for one in both:
            one.refusal = pb.Refusal(field="hello.queues", rule="no such queue")
        worker = Worker(dispatchers=[one.address for one in both])
        worker.handler("work")(lambda ctx: None)
        with pytest.raises(WorkerRefused, match=r"hello\.queues: no such queue"):
            await asyncio.wait_for(worker.run(), 20)


async def test_a_defect_while_writing_ends_the_worker_instead_of_leaving_it_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(protocol: object) -> list[object]:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("tidewheel.protocol.StreamProtocol.frames", broken)
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: None)
        with pytest.raises(ZeroDivisionError, match="a defect"):
            await asyncio.wait_for(worker.run(), 20)
