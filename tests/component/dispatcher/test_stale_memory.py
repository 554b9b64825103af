"""Runs that somebody else ended while a dispatcher held them in memory: it follows the rows, nothing waits for them.

What follows at once or at a tick has its tests elsewhere: cancels that are hinted or learned with a renewal
(test_cancels.py), attempts that went home elsewhere (test_moving_attempts.py), words that come late
(test_late_words.py). Here no hint comes.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from core.policy import Overlap, Retry
from core.states import AttemptOutcome, RunState
from tests.support.dispatcher_room import STEADY, Room, now_us
from tests.support.moves import EVERY, belongs_to, opened, ordered, split
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, failure, success

DONE, CANCELED = RunState.SUCCEEDED, RunState.CANCELED


def in_memory(owner: RunningDispatcher) -> list[UUID]:
    return [run.run_id for run in owner.parts.memory.open_runs()]


async def waits(owner: RunningDispatcher, run_id: UUID) -> None:
    await eventually(lambda: owner.parts.memory.routes.holds(run_id), what="it waits for a credit")


async def test_a_waiting_run_that_was_canceled_is_dropped_by_the_lease_that_it_is_refused(room: Room) -> None:
    owner = await room.owner()
    owner.adopt_for_a_reason_only()
    run_id = await room.trigger(await room.job())
    await waits(owner, run_id)
    await room.cancel(run_id)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        await eventually(lambda: in_memory(owner) == [])
        done = await room.trigger(await room.job())
        await worker.succeed((await worker.assignment(run_id=str(done))).ref)
        await room.becomes(done, DONE)
        assert [start.run_id for start in worker.starts] == [str(done)], "the credit was free for the next one"
        await room.check(worker)


async def test_a_lease_that_is_refused_though_the_run_is_open_shows_the_run_as_it_stands(room: Room) -> None:
    """A belief that was wrong costs one refused lease: the run is not lost from memory until the next sweep."""
    owner = await room.owner()
    owner.adopt_for_a_reason_only()
    run_id = await room.trigger(await room.job())
    await waits(owner, run_id)
    (believed,) = owner.parts.memory.routes.waiting_runs()
    believed.attempt = 5
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await eventually(lambda: in_memory(owner) == [])
        await room.check(worker)


async def test_a_refused_run_counts_as_open_until_ownership_has_read_its_row(room: Room) -> None:
    owner = await room.owner()
    owner.adopt_for_a_reason_only()
    run_id = await room.trigger(await room.job())
    await waits(owner, run_id)
    (believed,) = owner.parts.memory.routes.waiting_runs()
    await room.eye.execute("UPDATE runs SET attempt = 1 WHERE run_id = $1", run_id)
    await owner.sees_terms_no_more()
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        await eventually(lambda: owner.parts.memory.unsettled == {run_id: believed})
        assert in_memory(owner) == [run_id], "still an open run as far as the marks are concerned"
        owner.let_see_terms()
        assert (await room.becomes(run_id, DONE))["attempt"] == 2
        await eventually(lambda: in_memory(owner) == [])


async def test_a_canceled_run_that_no_worker_serves_does_not_hold_its_jobs_gate_closed(room: Room) -> None:
    """It is the one that is tried, and no lease of it is ever refused: the others of its job have workers."""
    owner = await room.owner()
    job_id = await room.job(handler="nobodys", overlap=Overlap.BUFFER_ALL)
    first = await room.trigger(job_id, allow_overlap=False)
    await waits(owner, first)
    await room.change(job_id, handler="work")
    second = await room.trigger(job_id, allow_overlap=False)
    await eventually(lambda: owner.parts.memory.gates.holds(second))
    await room.cancel(first)
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        owner.adopt_all_again()
        await room.becomes(second, DONE)
        await eventually(lambda: in_memory(owner) == [])
        assert await room.state(first) is CANCELED
        await room.check(worker)


async def test_what_was_canceled_without_a_hint_is_forgotten_by_the_next_sweep_whatever_it_waits_for(
    room: Room,
) -> None:
    owner = await room.owner()
    retry = Retry(max_attempts=2, first_delay_us=600_000_000, max_delay_us=600_000_000, jitter=0.0)
    async with ScriptedWorker(owner.address, work=failure) as worker:
        await worker.grant(1)
        resting = await room.trigger(await room.job(retry=retry))
        await eventually(lambda: resting in owner.parts.memory.resting)
    waiting = await room.trigger(await room.job())
    await waits(owner, waiting)
    for run_id in (resting, waiting):
        await room.cancel(run_id)
    owner.adopt_all_again()
    await eventually(lambda: in_memory(owner) == [])


async def test_a_run_that_cannot_be_read_is_forgotten_once_it_was_canceled(room: Room) -> None:
    first = await room.owner()
    heard, unheard = [await room.trigger(await room.job()) for _ in range(2)]
    for run_id in (heard, unheard):
        await waits(first, run_id)
    await first.kill()
    await room.eye.execute("UPDATE job_versions SET spec = '{}'")
    second = await room.owner()
    unreadable = second.parts.memory.unreadable
    await eventually(lambda: unreadable.keys() == {heard, unheard})
    for run_id in (heard, unheard):
        await room.cancel(run_id)
    await second.hint(canceled=(str(heard),))
    assert unreadable.keys() == {unheard}
    second.adopt_all_again()
    await eventually(lambda: in_memory(second) == [])


async def test_an_attempt_under_a_term_that_was_dropped_follows_its_row_at_the_next_heartbeat(room: Room) -> None:
    """The answer that it was leased came after its shard had gone on to another term of the same owner."""
    owner = await room.owner(**STEADY)
    owner.adopt_for_a_reason_only()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        given = await worker.assignment()
        live = owner.parts.memory.attempts.get(run_id)
        assert live is not None
        live.term = 99
        await worker.heartbeat(given.ref)
        await eventually(lambda: live.term == 1, what="it follows the row")
        replies, exceptions = len(worker.heartbeat_replies), len(worker.heartbeat_exceptions)
        await worker.heartbeat(given.ref)
        await eventually(lambda: len(worker.heartbeat_replies) > replies)
        assert len(worker.heartbeat_exceptions) == exceptions, "acknowledged"
        await worker.succeed(given.ref)
        await room.becomes(run_id, DONE)


async def test_an_attempt_that_no_row_knows_of_is_forgotten_once_its_lease_is_over(room: Room) -> None:
    """As after a database that went back in time: its loss is refused, and not said for ever."""
    owner = await room.owner()
    owner.adopt_for_a_reason_only()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        attempts = owner.parts.memory.attempts
        believed = attempts.get(run_id)
        assert believed is not None
        believed.attempt, believed.lease_until_us = 9, now_us() - 1
        attempts.check_again(believed, 0)
        await eventually(lambda: [one.attempt for one in attempts] == [1], what="it is held as it stands")
        await worker.succeed(given.ref)
        assert (await room.becomes(run_id, DONE))["attempt"] == 1


async def test_the_reaper_has_open_runs_read_again_where_it_drops_an_attempt_of_a_lost_term(room: Room) -> None:
    """Until then the open-from mark does not pass the run, though it is older than those that are made to stand."""
    owner = await room.owner(attempt_lease_s=2.0, heartbeat_interval_s=0.5)
    owner.adopt_for_a_reason_only()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        await worker.assignment()
        live = owner.parts.memory.attempts.get(run_id)
        assert live is not None
        live.term = 99

        async def is_lost() -> bool:
            return [row["outcome"] for row in await room.attempts(run_id)][:1] == [AttemptOutcome.LOST]

        await eventually(is_lost, 20, what="the run is found, and its attempt reaped")


@pytest.mark.parametrize("succeeds", [True, False])
async def test_a_result_in_flight_at_the_old_owner_is_known_to_the_new_one_at_its_first_look(
    room: Room, *, succeeds: bool
) -> None:
    """The takeover of the rest waits for the statement that holds the fence, and reads after it."""
    old, new = await room.owner("old"), await room.dispatcher("new", handoff_lead_s=6.0)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address, slots=5) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        shard = (await room.run(run_id))["shard"]
        await ordered(room, new)
        await split(room)
        await eventually(lambda: new.shards == EVERY, what="the new owner serves its ranges")
        new.adopt_for_a_reason_only()
        terms = {s: (await opened(room, s))[0] for s in EVERY}
        await _floors_rest(old)  # a raise of one under the statement could have it begin anew, too late
        async with room.eye.transaction():
            await room.eye.execute("SELECT 1 FROM runs WHERE run_id = $1 FOR UPDATE", run_id)
            await (at_old.succeed if succeeds else at_old.fail)(given.ref)
            await eventually(lambda: _waiting_statements(room), what="the result is being written")
            await room.order_replacing({s: (new, t.term, t.owner) for s, t in terms.items()}, seize=True)
            await asyncio.sleep(0.3)
        del old.parts.loops.progress.finish_buckets
        await belongs_to(room, new, 30)
        assert (await opened(room, shard))[0].owner == "new"
        if not succeeds:
            await at_new.grant(5)
            await at_new.succeed((await at_new.assignment(2)).ref)
        await room.becomes(run_id, DONE)
        await eventually(lambda: in_memory(new) == [], what="the new owner holds nothing that has ended")
        first = (await room.attempts(run_id))[0]
        assert (first["term"], first["outcome"]) == (1, AttemptOutcome.SUCCEEDED if succeeds else AttemptOutcome.FAILED)
        await room.check(at_old, at_new)


async def _floors_rest(owner: RunningDispatcher) -> None:
    """Until `finish_buckets` is deleted again it raises no floors; waits until a raise that was under way has ended."""
    resting = asyncio.Event()

    async def rest() -> None:
        resting.set()

    owner.parts.loops.progress.finish_buckets = rest  # type: ignore[method-assign]
    async with asyncio.timeout(15):
        await resting.wait()


async def _waiting_statements(room: Room) -> bool:
    """Whether some statement waits for a lock of ours."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    return bool(await room.eye.fetchval(waiting))


async def test_a_run_that_the_new_owner_knew_as_resting_is_forgotten_if_the_old_one_ended_it_before_its_death(
    room: Room,
) -> None:
    old, new = await room.owner("old"), await room.dispatcher("new", handoff_lead_s=6.0)
    retry = Retry(max_attempts=3, first_delay_us=2_500_000, factor=1.0, max_delay_us=2_500_000, jitter=0.0)
    async with ScriptedWorker(old.address) as at_old:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job(retry=retry))
        given = await at_old.assignment()
        await ordered(room, new)
        await split(room)
        await eventually(lambda: new.shards == EVERY, what="the new owner serves its ranges")
        await at_old.fail(given.ref)
        await eventually(lambda: run_id in old.parts.memory.resting)
        new.adopt_all_again()
        await eventually(lambda: run_id in new.parts.memory.resting, what="the new owner knows it as resting")
        new.adopt_for_a_reason_only()
        await at_old.grant(2)
        await at_old.succeed((await at_old.assignment(2)).ref)
        await room.becomes(run_id, DONE)
        assert run_id in new.parts.memory.resting
        await old.kill()
        await belongs_to(room, new, 30)
        await eventually(lambda: in_memory(new) == [], what="it rests no more")
