"""Shards move between dispatchers that are well: nobody notices."""

from __future__ import annotations

import asyncio

from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.coord.layout import Assignment, Plan
from core.policy import Retry
from core.states import AttemptOutcome, RunState, TermState
from tests.support.dispatcher_room import SHARDS, UNHURRIED, Room
from tests.support.moves import EVERY, belongs_to, history, opened, ordered, split, until_bucket
from tests.support.polling import eventually
from tests.support.running_dispatcher import Halt
from tests.support.scripted_worker import ScriptedWorker, failure, success

DONE = RunState.SUCCEEDED


async def test_a_move_under_load_loses_and_doubles_nothing_and_leaves_no_gap(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second", **UNHURRIED)
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=200) as at_first,
        ScriptedWorker(second.address, "worker-1", work=success, slots=200) as at_second,
    ):
        await at_first.grant(200)
        await at_second.grant(200)
        jobs = [await room.every_second(8, first_after_s=1.0 + n / 40) for n in range(40)]
        await eventually(lambda: len(at_first.starts) >= 40)
        await ordered(room, second)
        await belongs_to(room, second)
        await eventually(lambda: not first.shards, what="the first one has left every shard")
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 8)
        assert at_second.starts, "the new owner fired"
        assert second.metric("tidewheel_moves_total") == SHARDS
        assert second.metric("tidewheel_takeovers_total") == 0
        runs = await room.runs()
        assert max(run["created_us"] - run["due_at_us"] for run in runs) < 5 * US_PER_S
        fired_by = {run["run_id"]: run["home_term"] for run in runs}
        assert set(fired_by.values()) == {1, 2}
        await room.check(at_first, at_second)


async def test_runs_in_progress_go_on_through_a_move_and_their_worker_is_told_where(room: Room) -> None:
    halt = Halt("target.before_rehome")
    first, second = await room.owner("first"), await room.dispatcher("second", halt=halt)
    async with (
        ScriptedWorker(first.address, "worker-1", slots=4) as at_first,
        ScriptedWorker(second.address, "worker-1", slots=4) as at_second,
    ):
        await at_first.grant(4)
        job = await room.job()
        runs = [await room.trigger(job) for _ in range(4)]
        given = await at_first.assigned(4)
        await ordered(room, second)
        await split(room)
        early = given[0]
        await at_first.succeed(early.ref, b"before it moved")
        assert await at_first.verdict(early.ref) == pb.VERDICT_ACCEPTED
        halt.release()
        await belongs_to(room, second)
        for one in given[1:]:
            told = await at_first.acknowledgement(one.ref)
            assert (told.verdict, told.owner_address) == (pb.VERDICT_REDIRECT, second.address)
            await at_second.succeed(one.ref, b"after it moved")
            assert await at_second.verdict(one.ref) == pb.VERDICT_ACCEPTED
        for run_id in runs:
            assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await room.check(at_first, at_second)


async def test_a_run_that_waits_for_a_worker_and_one_that_rests_come_along(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    retry = Retry(max_attempts=3, first_delay_us=4_000_000, max_delay_us=4_000_000, jitter=0.0)
    async with ScriptedWorker(first.address, "flaky", ["flaky"], work=failure) as flaky:
        await flaky.grant(1)
        rests = await room.trigger(await room.job(handler="flaky", retry=retry))
        waits = await room.trigger(await room.job(handler="later"))
        await eventually(lambda: first.parts.memory.routes.holds(waits) and rests in first.parts.memory.resting)
        await ordered(room, second)
        await belongs_to(room, second)
        async with ScriptedWorker(second.address, "heir", ["flaky", "later"], 2, work=success) as heir:
            await heir.grant(2)
            for run_id in (rests, waits):
                await room.becomes(run_id, DONE)
            outcomes = [row["outcome"] for row in await room.attempts(rests)]
            assert outcomes == [AttemptOutcome.FAILED, AttemptOutcome.SUCCEEDED]
            await room.check(flaky, heir)


async def test_triggers_that_land_at_any_moment_of_a_move_run_promptly(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=100) as at_first,
        ScriptedWorker(second.address, "worker-2", work=success, slots=100) as at_second,
    ):
        await at_first.grant(100)
        await at_second.grant(100)
        jobs = [await room.job(shard=shard) for shard in EVERY]
        runs = [await room.trigger(job_id) for job_id in jobs]
        await ordered(room, second)
        while first.shards or len(runs) < 100:
            runs += [await room.trigger(job_id) for job_id in jobs]
            await asyncio.sleep(0.05)
        await belongs_to(room, second)
        for run_id in runs:
            run = await room.becomes(run_id, DONE)
            assert run["started_us"] - run["due_at_us"] < 5 * US_PER_S
        assert at_first.starts
        assert at_second.starts
        await room.check(at_first, at_second)


async def test_chains_that_cross_the_boundary_are_told_to_the_new_owner_at_once(room: Room) -> None:
    """Every occurrence is landed by the one before it: the first one beyond the boundary by the other owner."""
    first, second = await room.owner("first", tick_s=0.25), await room.dispatcher("second", tick_s=0.25, **UNHURRIED)
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=90) as at_first,
        ScriptedWorker(second.address, "worker-2", work=success, slots=90) as at_second,
    ):
        await at_first.grant(90)
        await at_second.grant(90)
        jobs = [await room.every_second(5, first_after_s=1.0 + n / 20) for n in range(20)]
        await eventually(lambda: len(at_first.starts) >= 2)
        await ordered(room, second)
        await belongs_to(room, second)
        for job in jobs:
            runs = await room.all_become(job, [DONE] * 5)
            assert max(run["created_us"] - run["due_at_us"] for run in runs) < 5 * US_PER_S
        assert {run["home_term"] for run in await room.runs()} == {1, 2}
        await room.check(at_first, at_second)


async def test_a_move_back_at_once_is_a_move_like_any_other(room: Room) -> None:
    first = await room.owner("first", handoff_drain_s=30.0)
    second = await room.dispatcher("second", handoff_drain_s=30.0)
    jobs = [await room.every_second(7, first_after_s=0.5 + n / 20) for n in range(8)]
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=50) as at_first,
        ScriptedWorker(second.address, "worker-1", work=success, slots=50) as at_second,
    ):
        await at_first.grant(50)
        await at_second.grant(50)
        await ordered(room, second)
        await split(room)
        await ordered(room, first)  # names the new term, which is not alone yet
        await belongs_to(room, first)
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 7)
        terms = (await history(room))[0]
        assert [(t.owner, t.reason) for t in terms] == [
            ("first", "first claim"),
            ("second", "move"),
            ("first", "move"),
        ]
        await room.check(at_first, at_second)


async def test_of_two_targets_of_a_shard_one_wins(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second", handoff_drain_s=30.0)
    third = await room.dispatcher("third", handoff_drain_s=30.0)
    await room.order_replacing(dict.fromkeys(EVERY, (third, 1, first.name)))
    await room.order_replacing(dict.fromkeys(EVERY, (second, 1, first.name)))
    await split(room)
    winners = {(await opened(room, shard))[1].owner for shard in EVERY}
    assert winners <= {"second", "third"}
    (winner,) = winners
    await belongs_to(room, second if winner == "second" else third)
    assert all(len(terms) == 2 for terms in (await history(room)).values())


async def test_rule_17_a_term_younger_than_its_residency_stays(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    young = [Assignment(shard, "second", 1, "first", residency_us=3600 * US_PER_S) for shard in EVERY]
    room.plans += 1
    await room.leader.write_plan(room.leadership, Plan(room.plans, tuple(young)))
    await asyncio.sleep(1.0)
    assert all(len(terms) == 1 for terms in (await history(room)).values())
    assert first.shards == EVERY
    await ordered(room, second)
    await belongs_to(room, second)


async def test_a_move_to_a_dispatcher_that_is_dead_changes_nothing(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    await second.kill()
    async with ScriptedWorker(first.address, work=success) as worker:
        await worker.grant(1)
        await ordered(room, second)
        await room.becomes(await room.trigger(await room.job()), DONE)
        assert [t.state for t in (await history(room))[0]] == [TermState.OPEN]
        await room.check(worker)


async def test_the_old_owner_keeps_to_the_boundary_although_it_has_not_heard_of_it(room: Room) -> None:
    """It fires what is below it, is refused what is above it, and learns of the split by that."""
    first, second = await room.owner("first"), await room.dispatcher("second")
    await first.sees_terms_no_more()
    jobs = [await room.every_second(4, first_after_s=1.0 + n / 10) for n in range(10)]
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=50) as at_first,
        ScriptedWorker(second.address, "worker-1", work=success, slots=50) as at_second,
    ):
        await at_first.grant(50)
        await at_second.grant(50)
        first.parts.memory.holdings.note = lambda views, seen_s: []  # type: ignore[method-assign]
        await eventually(lambda: len(at_first.starts) >= 5)
        await ordered(room, second)
        await until_bucket(room, await split(room))
        await eventually(lambda: first.metric("tidewheel_refused_writes_total", statement="fire") > 0)
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 4)
        del first.parts.memory.holdings.note
        first.let_see_terms()
        await belongs_to(room, second)
        await room.check(at_first, at_second)
