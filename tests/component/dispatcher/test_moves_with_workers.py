"""Shards that move or are taken over under workers as users have them: the cases of the field bug log, and others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tidewheel import RunContext, Worker

from core.states import RunState
from tests.support.dispatcher_room import Room
from tests.support.moves import belongs_to, ordered, split
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher

DONE = RunState.SUCCEEDED


@dataclass
class Seen:
    """What the worker's handlers saw: how often each run was started, and leave for the long one to end."""

    starts: Counter[str] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def worker_of(*dispatchers: RunningDispatcher) -> AsyncIterator[Seen]:
    worker, seen = Worker(dispatchers=[one.address for one in dispatchers], slots=100), Seen()

    @worker.handler("short")
    async def short(context: RunContext) -> str:
        seen.starts[context.run_id] += 1
        return "done"

    @worker.handler("long")
    async def long(context: RunContext) -> str:
        seen.starts[context.run_id] += 1
        try:
            await seen.go_on.wait()
        except asyncio.CancelledError:
            seen.stops.append(context.run_id)
            raise
        return "done"

    task = asyncio.create_task(worker.run())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def move_often(room: Room, times: int) -> None:
    first = await room.owner("first", handoff_drain_s=30.0)
    second = await room.dispatcher("second", handoff_drain_s=30.0)
    job_id = await room.job(handler="long")
    async with worker_of(first, second) as seen:
        for _ in range(times):
            seen.go_on.clear()
            running = await room.trigger(job_id)
            await eventually(lambda run_id=str(running): seen.starts[run_id], what="the long run is under way")
            await ordered(room, second)
            one_off = await room.once(after_s=0.2, handler="short")
            await split(room)
            await ordered(room, first)  # back at once; it comes to pass when the first move is through
            await room.all_become(one_off, [DONE])
            await belongs_to(room, first, 30)
            assert (await room.run(running))["state"] == RunState.LEASED, "it went on through both moves"
            seen.go_on.set()
            ended = await room.becomes(running, DONE)
            assert (ended["attempt"], ended["home_term"]) == (1, (await _newest(room, ended["shard"])))
        assert set(seen.starts.values()) == {1}, "each run id was started once"
        assert seen.stops == []
        await room.check()


async def _newest(room: Room, shard: int) -> int:
    return int(await room.eye.fetchval("SELECT max(term) FROM shard_terms WHERE shard = $1", shard))


async def test_b69_a_worker_is_given_each_run_once_though_its_shard_moves_there_and_back(room: Room) -> None:
    await move_often(room, 2)


@pytest.mark.long
async def test_b69_a_worker_is_given_each_run_once_through_a_hundred_moves(room: Room) -> None:
    await move_often(room, 50)


async def test_b69_a_takeover_with_a_run_in_progress_and_a_one_off_pending_executes_each_once(room: Room) -> None:
    """The owner that was taken for dead is well: it goes on until the fence, and then sends its worker on."""
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with worker_of(first, second) as seen:
        running = await room.trigger(await room.job(handler="long"))
        await eventually(lambda: seen.starts[str(running)], what="the long run is under way")
        one_off = await room.once(after_s=0.2, handler="short")
        await room.give(second, seize=True)
        await room.all_become(one_off, [DONE])
        await eventually(lambda: first.shards == set())
        seen.go_on.set()
        ended = await room.becomes(running, DONE)
        assert (ended["attempt"], ended["home_term"]) == (1, 2)
        assert (set(seen.starts.values()), seen.stops) == ({1}, [])
        await room.check()


async def test_b93_a_heartbeat_behind_a_result_that_was_redirected_is_no_error(room: Room) -> None:
    """Fifty runs end while their shards move: late heartbeats and verdicts on both sides, and nothing is lost."""
    first, second = await room.owner("first"), await room.dispatcher("second")
    jobs = [await room.job(handler="long") for _ in range(50)]
    async with worker_of(first, second) as seen:
        runs = [await room.trigger(job_id) for job_id in jobs[:20]]
        await eventually(lambda: len(seen.starts) == 20)
        await ordered(room, second)
        await split(room)
        seen.go_on.set()
        runs += [await room.trigger(job_id) for job_id in jobs[20:]]
        await belongs_to(room, second)
        for run_id in runs:
            assert (await room.becomes(run_id, DONE))["attempt"] == 1
        assert set(seen.starts.values()) == {1}
        assert seen.stops == []
