"""Runs without a credit wait: in order, without bound in SQL and with one in memory, and none is lost sight of."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

from core.policy import Retry
from core.states import RunState
from tests.support.dispatcher_room import SHARDS, Room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, failure, success

DONE = RunState.SUCCEEDED


async def waits(owner: RunningDispatcher, count: int) -> None:
    """Wait until so many runs wait in its memory."""
    routes = owner.parts.memory.routes
    await eventually(lambda: routes.waiting == count, what=f"{count} runs wait, not {routes.waiting}")


async def marks_pass(room: Room, run_ids: list[UUID]) -> None:
    """Wait until the open-from mark of every shard has passed these runs."""

    async def passed() -> bool:
        newest = max([(await room.run(run_id))["scheduled_for_us"] for run_id in run_ids])
        (marks,) = await room.eye.fetch("SELECT min(open_from_us) AS lowest FROM shard_marks")
        return bool(marks["lowest"] > newest)

    await eventually(passed, 15, what="the open-from marks pass")


async def test_runs_wait_for_credits_and_get_them_in_the_order_of_their_time(room: Room) -> None:
    owner = await room.owner()
    job_id = await room.job()
    waiting = [await room.trigger(job_id) for _ in range(5)]
    await waits(owner, 5)
    assert {await room.state(run_id) for run_id in waiting} == {RunState.PENDING}
    async with ScriptedWorker(owner.address, work=success, slots=1) as worker:
        await eventually(lambda: worker.demands == [5])
        await worker.grant(1)
        for run_id in waiting:
            await room.becomes(run_id, DONE)
        assert [start.run_id for start in worker.starts] == [str(run_id) for run_id in waiting]
        await eventually(lambda: worker.demands[-1] == 0)
        await room.check(worker)


async def test_a_worker_never_gets_more_than_its_credits(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=10) as worker:
        await worker.grant(3)
        await worker.say(reclaim={"count": 1})
        await eventually(lambda: [r.total for r in worker.released] == [2])
        job_id = await room.job()
        for _ in range(6):
            await room.trigger(job_id)
        given = list(await worker.assigned(2))
        await waits(owner, 4)
        await worker.say(reclaim={"count": 5})
        await eventually(lambda: [(r.count, r.total) for r in worker.released[1:]] == [(0, 2)])
        assert len(worker.starts) == 2
        await worker.succeed(given[0].ref)
        await worker.grant(3)
        await worker.assigned(3)
        await waits(owner, 3)
        assert len(worker.starts) == 3
        await room.check(worker)


async def test_b91_what_nobody_serves_stays_pending_and_is_counted(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, handlers=["a"], work=success, slots=5) as worker:
        await worker.grant(5)
        orphan = await room.trigger(await room.job(handler="c"))
        await eventually(lambda: owner.metric("tidewheel_no_worker_runs") == 1)
        await room.becomes(await room.trigger(await room.job(handler="a")), DONE)
        assert await room.state(orphan) is RunState.PENDING
        async with ScriptedWorker(owner.address, "worker-2", handlers=["c"], work=success) as second:
            await second.grant(1)
            await room.becomes(orphan, DONE)
            assert {start.run_id for start in worker.starts} == {str(run["run_id"]) for run in await room.runs()} - {
                str(orphan)
            }
            await eventually(lambda: owner.metric("tidewheel_no_worker_runs") == 0)
            await room.check(worker, second)


async def test_b91_a_run_whose_worker_died_waits_for_one_of_its_kind(room: Room) -> None:
    owner = await room.owner(attempt_lease_s=1.5, heartbeat_interval_s=0.5)
    async with ScriptedWorker(owner.address, "worker-1", handlers=["a"], work=success, slots=5) as other_kind:
        await other_kind.grant(5)
        async with ScriptedWorker(owner.address, "worker-2", handlers=["b"]) as mortal:
            await mortal.grant(1)
            run_id = await room.trigger(await room.job(handler="b"))
            await mortal.assignment()
        await eventually(lambda: owner.metric("tidewheel_no_worker_runs") == 1, 10)
        async with ScriptedWorker(owner.address, "worker-3", handlers=["b"], work=success) as heir:
            await heir.grant(1)
            run = await room.becomes(run_id, DONE)
        assert (run["attempt"], other_kind.starts) == (2, [])
        await room.check(mortal, heir)


async def test_b107_no_worker_is_idle_while_runs_are_due(room: Room) -> None:
    owner = await room.owner()
    async with (
        ScriptedWorker(owner.address, "worker-1") as first,
        ScriptedWorker(owner.address, "worker-2") as second,
    ):
        job_id = await room.job()
        runs = [await room.trigger(job_id) for _ in range(20)]
        for worker in (first, second):
            await worker.grant(1)
        given = [await worker.assignment() for worker in (first, second)]
        for worker, one in zip((first, second), given, strict=True):
            worker.work_from_now_on(success)
            await worker.succeed(one.ref)
            await worker.grant(2)
        for run_id in runs:
            await room.becomes(run_id, DONE)
        await room.check(first, second)


async def test_handlers_with_few_runs_do_not_wait_behind_those_with_many(room: Room) -> None:
    owner = await room.owner()
    many, few = await room.job(handler="many"), await room.job(handler="few")
    crowd = [await room.trigger(many) for _ in range(20)]
    lone = await room.trigger(few)
    await waits(owner, 21)
    async with ScriptedWorker(owner.address, handlers=["many", "few"], work=success) as worker:
        await worker.grant(1)
        for run_id in (lone, *crowd):
            await room.becomes(run_id, DONE)
        handlers = [given.handler for given in worker.assignments]
        assert handlers.index("few") <= 1


async def test_what_memory_has_no_room_for_waits_in_sql_and_is_read_again(room: Room) -> None:
    owner = await room.owner(waiting_limit=5)
    job_id = await room.job()
    waiting = [await room.trigger(job_id) for _ in range(14)]
    await waits(owner, 5)
    await eventually(lambda: _pending(room, 14))
    await asyncio.sleep(1.5)  # longer than open runs are looked for by their time alone
    await room.check()
    async with ScriptedWorker(owner.address, work=success, slots=3) as worker:
        await worker.grant(3)
        for run_id in waiting:
            await room.becomes(run_id, DONE)
        assert Counter(start.run_id for start in worker.starts) == Counter(str(run_id) for run_id in waiting)
        await room.check(worker)


async def test_what_memory_had_no_room_for_is_found_by_the_next_owner(room: Room) -> None:
    first = await room.owner(waiting_limit=2)
    job_id = await room.job()
    waiting = [await room.trigger(job_id) for _ in range(9)]
    await eventually(lambda: _pending(room, 9))
    await asyncio.sleep(2.5)
    await room.check()
    await first.kill()
    second = await room.owner()
    async with ScriptedWorker(second.address, work=success, slots=9) as worker:
        await worker.grant(9)
        for run_id in waiting:
            await room.becomes(run_id, DONE)
        await room.check(worker)


async def test_runs_that_wait_for_long_are_found_by_the_next_owner_whatever_they_wait_for(room: Room) -> None:
    """A credit, a retry, a delay that is over, a worker's answer: each older than the open-from mark."""
    first = await room.owner()
    slow_retry = Retry(max_attempts=2, first_delay_us=4_000_000, max_delay_us=4_000_000, jitter=0.0)
    async with (
        ScriptedWorker(first.address, "worker-1", handlers=["flaky"], work=failure) as flaky,
        ScriptedWorker(first.address, "worker-2", handlers=["long"]) as long,
    ):
        await flaky.grant(1)
        await long.grant(1)
        delayed = await room.trigger(await room.job(handler="delayed"), delay_s=2.0)
        no_credit = await room.trigger(await room.job(handler="no-credit"))
        retried = await room.trigger(await room.job(handler="flaky", retry=slow_retry))
        running = await room.trigger(await room.job(handler="long"))
        given = await long.assignment()
        everything = [delayed, no_credit, retried, running]
        await marks_pass(room, everything)
        await eventually(lambda: first.parts.memory.routes.holds(delayed), 10)
        await room.check()
    await first.kill()
    second = await room.owner()
    await room.check()
    handlers = ["delayed", "no-credit", "flaky", "long"]
    async with ScriptedWorker(second.address, "worker-2", handlers, 4, work=success, holding=[given.ref]) as heir:
        await heir.grant(4)
        await heir.succeed(given.ref)
        for run_id in everything:
            await room.becomes(run_id, DONE, 20)
        # One that ended while it was being made to stand is cleared away by an adoption.
        second.adopt_all_again()
        await eventually(lambda: _none_stands(room), what="none stands apart once all have ended")
        await room.check(flaky, long, heir)


async def test_what_has_ended_does_not_stand_among_the_open_runs_for_ever(room: Room) -> None:
    """A run that ends while it is being made to stand leaves its row behind; the next adoption clears it."""
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        run = await room.becomes(run_id, DONE)
        row = (run["shard"], run["job_id"], run_id)
        await room.eye.execute("INSERT INTO open_runs VALUES ($1, $2, $3)", *row)
        await owner.kill()
        await room.owner()
        await eventually(lambda: _none_stands(room))


async def test_every_shard_has_its_own_order_and_all_are_served(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=50) as worker:
        await worker.grant(50)
        runs = [await room.trigger(await room.job(shard=shard)) for shard in range(SHARDS) for _ in range(3)]
        for run_id in runs:
            await room.becomes(run_id, DONE)
        assert {run["shard"] for run in await room.runs()} == set(range(SHARDS))
        await room.check(worker)


async def _pending(room: Room, count: int) -> bool:
    rows = await room.eye.fetch("SELECT 1 FROM runs WHERE state = 1 AND not_before_us = 0")
    return len(rows) == count


async def _none_stands(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM open_runs")
