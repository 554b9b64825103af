"""Either dispatcher of a move dies, stands still or is slow, at each step: the shards end in one pair of hands, soon.

"Soon" is 5 s after the fault or the boundary, whichever is later; the bounds here are wider, for a busy machine.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.states import RunState, TermState
from tests.support.dispatcher_room import SHARDS, Room
from tests.support.moves import EVERY, belongs_to, history, opened, ordered, split, until_bucket
from tests.support.polling import eventually
from tests.support.running_dispatcher import Halt, RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

DONE = RunState.SUCCEEDED
SOON_S = 15.0

# Where the owner before the boundary may stand still, and where the target may.
OF_THE_OWNER = [
    "owner.before_last_floor",
    "owner.after_last_floor",
    "owner.before_last_watermark",
    "owner.after_last_watermark",
]
OF_THE_TARGET = [
    "target.after_split",
    "target.before_rehome",
    "target.after_rehome",
    "target.before_close",
    "target.after_close",
]


@pytest.mark.parametrize("place", OF_THE_OWNER)
async def test_an_owner_that_stands_still_at_a_step_loses_what_it_left_undone(room: Room, place: str) -> None:
    halt = Halt(place)
    first, second = await room.owner("first", halt=halt), await room.dispatcher("second")
    async with Load(room, first, second) as load:
        await ordered(room, second)
        await split(room)
        await eventually(lambda: halt.reached, what=f"the owner comes to {place}")
        first.keep_from_seeing_terms()
        await belongs_to(room, second, SOON_S)
        halt.release()
        first.let_see_terms()
        await load.done()
        await eventually(lambda: not first.shards, what="the first one drops what it lost")


@pytest.mark.parametrize("place", OF_THE_OWNER)
async def test_an_owner_that_dies_at_a_step_is_replaced(room: Room, place: str) -> None:
    halt = Halt(place)
    first, second = await room.owner("first", halt=halt), await room.dispatcher("second")
    async with Load(room, first, second) as load:
        await ordered(room, second)
        await split(room)
        await eventually(lambda: halt.reached, what=f"the owner comes to {place}")
        await first.kill()
        await belongs_to(room, second, SOON_S)
        await load.done()


async def test_an_owner_that_dies_before_the_boundary_is_replaced_by_the_target_at_once(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second", handoff_lead_s=4.0)
    async with Load(room, first, second) as load:
        await ordered(room, second)
        boundary = await split(room)
        await first.kill()
        await eventually(lambda: len(second.parts.memory.holdings) == 2 * SHARDS, what="it holds both ranges of each")
        assert room.scale.bucket_of(second.clock.now_us()) < boundary
        await belongs_to(room, second, SOON_S)
        assert second.metric("tidewheel_takeovers_total") == SHARDS
        await load.done()


@pytest.mark.parametrize("place", OF_THE_TARGET)
async def test_when_the_target_dies_at_a_step_the_owner_gets_the_shards_back(room: Room, place: str) -> None:
    halt = Halt(place)
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt)
    async with Load(room, first, second) as load:
        await ordered(room, second)
        await eventually(lambda: halt.reached, what=f"the target comes to {place}")
        await second.kill()
        await _give_back(room, first)
        await belongs_to(room, first, SOON_S)
        await load.done()


async def test_when_the_target_dies_before_it_split_nothing_has_changed(room: Room) -> None:
    halt = Halt("target.before_split")
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt)
    async with Load(room, first, second) as load:
        await ordered(room, second)
        await eventually(lambda: halt.reached)
        await second.kill()
        await load.done()
        assert all(len(terms) == 1 for terms in (await history(room)).values())


async def test_a_target_that_stood_still_finds_its_split_undone_and_owns_nothing(room: Room) -> None:
    halt = Halt("target.after_split")
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt)
    async with Load(room, first, second) as load:
        await ordered(room, second)
        await split(room)
        await _give_back(room, first)
        halt.release()
        await belongs_to(room, first, SOON_S)
        assert second.shards == set()
        terms = (await history(room))[0]
        assert [t.state for t in terms] == [TermState.CLOSED, TermState.VOID, TermState.OPEN]
        await load.done()


async def test_when_both_die_one_after_the_other_a_third_gets_both_ranges(room: Room) -> None:
    halt = Halt("target.before_rehome")  # nothing of the first range ends before both have died
    first = await room.owner("first")
    second = await room.dispatcher("second", halt=halt, handoff_lead_s=1.0)
    third = await room.dispatcher("third")
    async with Load(room, first, second, third) as load:
        await ordered(room, second)
        await split(room)
        await asyncio.gather(first.kill(), second.kill())
        for part in (0, 1):  # the leader orders one range of a shard at a time, the oldest first
            terms = [(await opened(room, shard))[part] for shard in EVERY]
            await room.order_replacing({t.shard: (third, t.term, t.owner) for t in terms}, seize=True)
            numbers = {t.key for t in terms}
            await eventually(partial(_replaced, room, numbers), what=f"range {part} is taken")
        await belongs_to(room, third, SOON_S)
        await load.done()


async def test_when_both_die_after_the_last_bucket_is_finished_open_runs_come_home_to_the_third(room: Room) -> None:
    """Nothing is left of the first range but its runs: the order to take it closes it."""
    halt = Halt("target.before_rehome")
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt)
    third = await room.dispatcher("third")
    async with (
        ScriptedWorker(first.address, "worker-1", slots=SHARDS) as worker,
        ScriptedWorker(third.address, "worker-1", slots=SHARDS) as at_third,
    ):
        await worker.grant(SHARDS)
        runs = [await room.trigger(await room.job(shard=shard)) for shard in EVERY]
        given = await worker.assigned(SHARDS)
        await ordered(room, second)
        await until_bucket(room, await split(room))
        await eventually(lambda: all(h.watermark >= h.to_bucket for h in first.parts.memory.holdings))
        await asyncio.gather(first.kill(), second.kill())
        for part in (0, 1):
            terms = [(await opened(room, shard))[0 if part == 0 else -1] for shard in EVERY]
            await room.order_replacing({t.shard: (third, t.term, t.owner) for t in terms}, seize=True)
            await eventually(partial(_replaced, room, {t.key for t in terms}), what=f"range {part} is taken")
        await belongs_to(room, third, SOON_S)
        for one in given:
            await at_third.succeed(one.ref)
        for run_id in runs:
            assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await room.check(worker, at_third)


async def test_a_term_that_somebody_else_closed_leaves_no_run_behind(room: Room) -> None:
    """A needless order to seize a drained term closes it before its runs came home: they come all the same."""
    halt = Halt("target.before_rehome")
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt, handoff_drain_s=30.0)
    async with ScriptedWorker(first.address, "worker-1") as at_first, ScriptedWorker(second.address) as at_second:
        await at_first.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        given = await at_first.assignment()
        await ordered(room, second)
        await until_bucket(room, await split(room))
        await eventually(lambda: halt.reached)
        terms = [(await opened(room, shard))[0] for shard in EVERY]
        await room.order_replacing({t.shard: (second, t.term, t.owner) for t in terms}, seize=True)
        await eventually(partial(_replaced, room, {t.key for t in terms}))
        await eventually(lambda: second.parts.memory.attempts.get(run_id) is not None, what="the run came home")
        halt.release()
        await belongs_to(room, second, SOON_S)
        await at_second.succeed(given.ref)
        assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await room.check(at_first, at_second)


async def test_the_rest_that_an_owner_is_too_slow_to_finish_is_taken_a_second_after_the_boundary(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    first.parts.loops.progress.finish_buckets = _never  # type: ignore[method-assign]
    async with Load(room, first, second) as load:
        await ordered(room, second)
        boundary = await split(room)
        await belongs_to(room, second, SOON_S)
        terms = [t for rows in (await history(room)).values() for t in rows if t.reason == "takeover"]
        assert len(terms) == SHARDS
        due_us = room.scale.start_us(boundary) + 1_000_000
        assert all(due_us <= t.opened_us for t in terms), "not before the time that it has"
        await load.done()


async def test_every_write_of_an_owner_that_was_passed_over_is_refused(room: Room) -> None:
    """It hangs beyond the boundary and its drain; when it comes back it writes nothing, and counts what was refused."""
    halt = Halt("owner.before_last_floor")
    first, second = await room.owner("first", halt=halt), await room.dispatcher("second")
    async with (
        ScriptedWorker(first.address, "worker-1", slots=9) as at_first,
        ScriptedWorker(second.address, "worker-1", slots=9) as at_second,
    ):
        await at_first.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        given = await at_first.assignment()
        await first.sees_terms_no_more()
        first.parts.loops.redirects.step = _never  # type: ignore[method-assign]
        await ordered(room, second)
        await until_bucket(room, await split(room))
        await belongs_to(room, second, SOON_S)
        halt.release()
        await at_first.succeed(given.ref, b"to the one before")
        told = await at_first.acknowledgement(given.ref)
        assert (told.verdict, told.owner_address) == (pb.VERDICT_REDIRECT, second.address)
        await eventually(lambda: first.metric("tidewheel_refused_writes_total", statement="mark") > 0)
        assert await room.state(run_id) is RunState.LEASED
        await at_second.succeed(given.ref, b"to the new one")
        await room.becomes(run_id, DONE)
        first.let_see_terms()
        await eventually(lambda: not first.shards)
        await room.check(at_first, at_second)


class Load:
    """Jobs that occur during the whole episode, and workers on every dispatcher that takes part."""

    def __init__(self, room: Room, *dispatchers: RunningDispatcher) -> None:
        self._room = room
        self._workers = [
            ScriptedWorker(each.address, f"worker-{n}", work=success, slots=99) for n, each in enumerate(dispatchers)
        ]
        by_address = {each.address: worker for each, worker in zip(dispatchers, self._workers, strict=True)}
        for worker in self._workers:
            worker.peers = by_address
        self._jobs: list[object] = []

    async def __aenter__(self) -> Load:
        for worker in self._workers:
            await worker.open()
            await worker.grant(99)
        self._jobs = [await self._room.every_second(6, first_after_s=0.3 + n / 12) for n in range(12)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            await worker.close()

    async def done(self) -> None:
        """Every occurrence ran, once, and the rows are as they should be."""
        for job_id in self._jobs:
            await self._room.all_become(job_id, [DONE] * 6)  # type: ignore[arg-type]
        await self._room.check(*self._workers)


async def _give_back(room: Room, to: RunningDispatcher) -> None:
    """What the leader orders when a target is gone: the range from the boundary on, whole, for who is well."""
    newest = [(await opened(room, shard))[-1] for shard in EVERY]
    lost = {t.shard: (to, t.term, t.owner) for t in newest if t.owner != to.name}
    await room.order_replacing(lost, seize=True)


async def _replaced(room: Room, gone: set[tuple[int, int]]) -> bool:
    rows = await history(room)
    return not any(t.key in gone and t.state is TermState.OPEN for terms in rows.values() for t in terms)


async def _never() -> None:
    return None
