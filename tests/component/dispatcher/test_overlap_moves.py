"""Overlap policies while a shard is in two hands, and while it moves: both owners decide from rows (rule 15)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

import pytest

from core.errors import Conflict
from core.policy import Overlap
from core.states import RunState, SkipReason
from tests.support.dispatcher_room import LASTING, Room
from tests.support.moves import EVERY, belongs_to, ordered, split, until_bucket
from tests.support.overlap_room import never_together, skipped, ticking, triggered, watch_overlaps
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

PENDING, LEASED, DONE, CANCELED = RunState.PENDING, RunState.LEASED, RunState.SUCCEEDED, RunState.CANCELED
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL]


async def two_hands(room: Room) -> tuple[RunningDispatcher, RunningDispatcher]:
    """The owner of all shards, and the one who will hold what lies behind a boundary, and leave it at that."""
    await watch_overlaps(room)
    old, new = await room.owner("old", **LASTING), await room.dispatcher("new", **LASTING)

    async def step() -> None:
        return None

    new.parts.loops.handoffs.step = step  # type: ignore[method-assign]
    return old, new


async def behind(room: Room, new: RunningDispatcher) -> None:
    """Split every shard, and wait until the boundary has begun: what becomes due is the new owner's."""
    await ordered(room, new)
    await until_bucket(room, await split(room))
    await eventually(lambda: new.shards == EVERY)


def let_end(new: RunningDispatcher) -> None:
    """Let the hand-off go on."""
    del new.parts.loops.handoffs.step
    new.parts.memory.wakes.handoff.set()


async def home(room: Room, run_id: UUID, term: int) -> None:
    """Wait until the run has met its owner."""

    async def is_there() -> bool:
        return bool((await room.run(run_id))["home_term"] == term)

    await eventually(is_there, what=f"the run is at home in term {term}")


@pytest.mark.parametrize("policy", BUFFERING)
async def test_a_run_behind_the_boundary_starts_when_the_one_before_it_has_ended(room: Room, policy: Overlap) -> None:
    """Nobody tells its owner: the gate's own tick finds its way free."""
    old, new = await two_hands(room)
    job_id = await room.job(overlap=policy)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address, "worker-2") as at_new:
        await at_old.grant(1)
        await at_new.grant(1)
        running = await triggered(room, job_id)
        given = await at_old.assignment()
        await behind(room, new)
        waiting = await triggered(room, job_id)
        await home(room, waiting, 2)
        await asyncio.sleep(1.5)
        assert (await room.state(waiting), at_new.starts) == (PENDING, [])
        await at_old.succeed(given.ref)
        await room.becomes(running, DONE)
        again = await at_new.assignment(run_id=str(waiting))
        await at_new.succeed(again.ref)
        await room.becomes(waiting, DONE)
        await never_together(room, job_id)
        await room.check(at_old, at_new)


async def test_what_is_due_behind_the_boundary_is_skipped_while_a_run_before_it_is_open(room: Room) -> None:
    old, new = await two_hands(room)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address, "worker-2", work=success) as at_new:
        await at_old.grant(1)
        await at_new.grant(1)
        ticks, instants = await ticking(room, 3, 1, overlap=Overlap.SKIP)
        given = await at_old.assignment()
        await behind(room, new)
        await skipped(room, ticks, instants[1:], SkipReason.OVERLAP)
        await at_old.succeed(given.ref)
        await room.all_become(ticks, [DONE])
        assert at_new.starts == []
        await room.check(at_old, at_new)


async def test_a_run_behind_the_boundary_has_the_one_before_it_canceled_at_once(room: Room) -> None:
    """The worker of the other owner is told by that one, which sees it in the row long before a heartbeat."""
    old, new = await two_hands(room)
    job_id = await room.job(overlap=Overlap.CANCEL_OTHER)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address, "worker-2") as at_new:
        await at_old.grant(1)
        await at_new.grant(1)
        running = await triggered(room, job_id)
        given = await at_old.assignment()
        await behind(room, new)
        newer = await triggered(room, job_id)
        assert await at_old.canceled(given.ref) == "cancel requested"
        assert at_new.starts == []
        await at_old.stop(given.ref)
        await room.becomes(running, CANCELED)
        again = await at_new.assignment(run_id=str(newer))
        await at_new.succeed(again.ref)
        await room.becomes(newer, DONE)
        await never_together(room, job_id)
        await room.check(at_old, at_new)


async def test_runs_that_wait_at_either_owner_all_go_one_after_the_other_once_the_move_ends(room: Room) -> None:
    old, new = await two_hands(room)
    job_id = await room.job(overlap=Overlap.BUFFER_ALL, max_buffered=9)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address, "worker-2") as at_new:
        await at_old.grant(1)
        await at_new.grant(5)
        first = await triggered(room, job_id)
        given = await at_old.assignment()
        before = await triggered(room, job_id)
        await home(room, before, 1)
        await behind(room, new)
        after = await triggered(room, job_id)
        await home(room, after, 2)
        let_end(new)
        await belongs_to(room, new)
        assert (await room.state(before), await room.state(after)) == (PENDING, PENDING)
        await at_new.succeed(given.ref)
        for run_id in (before, after):
            one = await at_new.assignment(run_id=str(run_id))
            assert await room.state(run_id) is LEASED
            await at_new.succeed(one.ref)
            await room.becomes(run_id, DONE)
        assert await room.state(first) is DONE
        await never_together(room, job_id)
        await room.check(at_old, at_new)


@pytest.mark.parametrize("policy", [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER])
async def test_no_policy_is_broken_by_a_move_under_load(room: Room, policy: Overlap) -> None:
    await watch_overlaps(room)
    old, new = await room.owner("old"), await room.dispatcher("new")
    async with (
        ScriptedWorker(old.address, "worker-1", slots=50, work=success) as at_old,
        ScriptedWorker(new.address, "worker-1", slots=50, work=success) as at_new,
    ):
        await at_old.grant(50)
        await at_new.grant(50)
        jobs = [await ticking(room, 6, 1, overlap=policy, max_buffered=9) for _ in range(8)]
        await eventually(lambda: len(at_old.starts) >= 4)
        await ordered(room, new)
        while not new.shards or old.shards:
            for job_id, _ in jobs[:4]:
                with suppress(Conflict):  # the policy lets no further run wait
                    await triggered(room, job_id)
            await asyncio.sleep(0.2)
        await belongs_to(room, new)

        async def all_ended() -> bool:
            return not await room.eye.fetch("SELECT 1 FROM runs WHERE state IN (1, 2)") and not await room.eye.fetch(
                "SELECT 1 FROM due"
            )

        await eventually(all_ended, 60, what="every run has ended")
        for job_id, _ in jobs:
            await never_together(room, job_id)
        assert at_new.starts
        await room.check(at_old, at_new)
