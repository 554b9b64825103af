"""Credits over real streams: never more than the slots, one for each dispatcher, and moved to where runs wait."""

from __future__ import annotations

import asyncio

from tidewheel import RunContext, Worker

from tests.link.scripted_dispatcher import ScriptedDispatcher, ScriptedStream, assignment, dispatchers, running
from tests.support.polling import eventually


async def test_each_dispatcher_gets_a_share() -> None:
    async with dispatchers(3) as three:
        worker = Worker(dispatchers=[one.address for one in three], slots=10)
        worker.handler("work")(lambda ctx: None)
        async with running(worker):
            streams = [await one.stream() for one in three]
            await eventually(lambda: sum(stream.unused for stream in streams) == 10)
            assert all(stream.unused >= 1 for stream in streams)


async def test_a_worker_never_runs_more_than_its_slots_however_hard_the_dispatchers_push() -> None:
    """Each dispatcher uses every credit at once, for two thousand runs; none is ever returned."""
    running_now = most = 0
    async with dispatchers(3) as three:
        worker = Worker(dispatchers=[one.address for one in three], slots=8)

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            await asyncio.sleep(0)
            running_now -= 1

        async with running(worker):
            streams = [await one.stream() for one in three]
            sent = 0

            def push() -> bool:
                nonlocal sent
                for stream in streams:
                    stream.demand(stream.unused + sent % 5)
                    if stream.unused > 0:
                        sent += stream.unused
                        stream.assign(*[assignment() for _ in range(stream.unused)])
                return sum(len(stream.results) for stream in streams) >= 2_000

            await eventually(push, 60)
            await eventually(lambda: sum(len(stream.results) for stream in streams) == sent)
    assert most <= 8
    assert [len(stream.returns) for stream in streams] == [0, 0, 0]


async def test_a_hot_dispatcher_gets_the_unused_credits_of_the_others() -> None:
    async with dispatchers(2) as (hot, idle):
        worker = Worker(dispatchers=[hot.address, idle.address], slots=10)
        release = asyncio.Event()

        @worker.handler("work")
        async def work(_: RunContext) -> None:
            await release.wait()

        async with running(worker):
            hot_stream, idle_stream = await hot.stream(), await idle.stream()
            await eventually(lambda: hot_stream.unused + idle_stream.unused == 10)
            hot_stream.demand(100)
            await eventually(lambda: hot_stream.unused == 9)
            assert idle_stream.unused == 1, "it keeps its last one"

            hot_stream.demand(0)
            hot_stream.assign(*[assignment() for _ in range(9)])
            release.set()
            await eventually(lambda: len(hot_stream.results) == 9 and idle_stream.unused > 1)


async def test_one_slot_serves_two_dispatchers_in_turn() -> None:
    async with dispatchers(2) as both:
        worker = Worker(dispatchers=[one.address for one in both], slots=1)
        order: list[str] = []

        @worker.handler("work")
        async def work(ctx: RunContext) -> None:
            order.append(ctx.text())

        def feed(dispatcher: ScriptedDispatcher, stream: ScriptedStream) -> None:
            if stream.unused > 0:
                stream.assign(assignment(payload=dispatcher.name.encode()))

        async with running(worker):
            streams = [await one.stream(with_credit=0) for one in both]
            for stream in streams:
                stream.demand(50)

            def step() -> bool:
                for one, stream in zip(both, streams, strict=True):
                    feed(one, stream)
                return len(order) >= 12

            await eventually(step)
    assert min(order.count(one.name) for one in both) >= 4, "neither starves"


async def test_credits_die_with_their_stream_and_go_to_the_others() -> None:
    async with dispatchers(2) as (stays, goes):
        worker = Worker(dispatchers=[stays.address, goes.address], slots=10)
        worker.handler("work")(lambda ctx: None)
        async with running(worker):
            stream = await stays.stream()
            await goes.stream()
            await goes.stop()
            await eventually(lambda: stream.unused == 10)
            await goes.start()
            again = await goes.stream()
            await eventually(lambda: stream.unused + again.unused == 10)
            assert again.unused >= 1
