"""From due to done: runs fire at their time, once each, and what does not run is recorded."""

from __future__ import annotations

import asyncio
from uuid import UUID

from core.clock import US_PER_S
from core.intervals import Every
from core.jobspec import JobSpec
from core.policy import Overlap
from core.schedule import Schedule
from core.states import AttemptOutcome, JobState, RunState, SkipReason
from tests.component.dispatcher.conftest import Departure
from tests.support.dispatcher_room import Room, now_us
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, success

DONE = RunState.SUCCEEDED


async def test_a_one_off_runs_once_and_its_result_is_kept(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        job_id = await room.once()
        (run,) = await room.all_become(job_id, [DONE])
        assert (run["attempt"], run["result"], run["result_type"]) == (1, b"done", "text/plain")
        assert run["scheduled_for_us"] == run["due_at_us"] == room.expected[job_id][0]
        (attempt,) = await room.attempts(run["run_id"])
        assert (attempt["outcome"], attempt["worker"]) == (AttemptOutcome.SUCCEEDED, "worker-1")
        await room.check(worker)


async def test_every_occurrence_of_every_job_runs_once_and_none_early(room: Room) -> None:
    owner = await room.owner()
    async with (
        ScriptedWorker(owner.address, "worker-1", work=success, slots=20) as first,
        ScriptedWorker(owner.address, "worker-2", work=success, slots=20) as second,
    ):
        await first.grant(20)
        await second.grant(20)
        jobs = [await room.every_second(3, first_after_s=0.5 + n / 40) for n in range(30)]
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 3)
        assert {s.attempt for s in first.starts + second.starts} == {1}
        assert len(first.starts) > 0 < len(second.starts), "both workers were used"
        await room.check(first, second)
        assert owner.metric("tidewheel_fires_total") == 90


async def test_a_crowd_at_one_instant_fires_whole(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00Z", batch_limit=50, scan_limit_per_shard=40)
    room, at_us = machine.room, machine.now_us + 60 * US_PER_S
    for _ in range(300):
        room.expected[await room.job(Schedule(at_us=(at_us,)))] = [at_us]
    await machine.run_until(at_us)
    assert machine.worker is not None
    assert len(machine.worker.starts) == 300
    assert await _count(room, DONE, 300)
    await room.check(machine.worker)


async def test_a_job_that_may_not_overlap_skips_what_is_due_meanwhile_and_records_it(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=5) as worker:
        await worker.grant(5)
        job_id = await room.every_second(60, overlap=Overlap.SKIP)
        first = await worker.assignment()
        await eventually(lambda: _skipped(room, job_id, 2), 20)
        await worker.succeed(first.ref)
        second = (await worker.assigned(2))[1]
        await _occurs_no_more(room, job_id)
        await worker.succeed(second.ref)
        await eventually(lambda: _count(room, DONE, 2))
        assert {skip["reason"] for skip in await room.skips(job_id)} == {SkipReason.OVERLAP}
        await room.check(worker)


async def test_b60_a_new_owner_knows_the_run_that_is_under_way_and_does_not_start_another(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=5) as worker:
        await worker.grant(5)
        job_id = await room.every_second(60, overlap=Overlap.SKIP)
        given = await worker.assignment()
        await owner.kill()
        successor = await room.owner()
        async with ScriptedWorker(successor.address, slots=5, holding=[given.ref]) as again:
            await again.grant(5)
            await eventually(lambda: _skipped(room, job_id, 3), 20)
            assert again.starts == []
            await again.succeed(given.ref)
            (last,) = await again.assigned(1)
            await _occurs_no_more(room, job_id)
            await again.succeed(last.ref)
            await room.all_become(job_id, [DONE, DONE])
            await room.check(worker, again)


async def _occurs_no_more(room: Room, job_id: UUID) -> None:
    """Pause the job, and wait until what was due before has been met."""
    cutover_us = await room.change(job_id, state=JobState.PAUSED)
    room.expected[job_id] = [at_us for at_us in room.expected[job_id] if at_us <= cutover_us]
    await eventually(lambda: _nothing_due(room), what="what was due has been met")


async def test_two_occurrences_of_one_job_that_are_found_together_still_do_not_overlap(room: Room) -> None:
    """An edit during a downtime leaves a due row of each version."""
    begin_us = now_us() - 2 * US_PER_S
    every = Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=begin_us)
    job_id = await room.missed_job(JobSpec("work", schedule=every, overlap=Overlap.SKIP), begin_us)
    cutover_us = await room.change(
        job_id, schedule=Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=begin_us + 500_000)
    )
    await asyncio.sleep(max(0.0, (cutover_us + 1_100_000 - now_us()) / US_PER_S))
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=5) as worker:
        await worker.grant(5)
        await worker.assignment()
        await eventually(lambda: _skipped(room, job_id, 3))
        assert len(await room.runs(job_id)) == 1
        room.expected.clear()
        await room.check(worker)


async def test_a_trigger_runs_at_its_time_with_its_own_payload(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)
        job_id = await room.job_of(JobSpec("work"), payload=b"the job's")
        late = await room.trigger(job_id, delay_s=4.0, payload=b"its own")
        soon = await room.trigger(job_id)
        await room.becomes(soon, DONE)
        assert await room.state(late) is RunState.PENDING
        await room.becomes(late, DONE)
        assert [a.payload for a in worker.assignments] == [b"the job's", b"its own"]
        await room.check(worker)


async def _skipped(room: Room, job_id: UUID, count: int) -> bool:
    return len(await room.skips(job_id)) >= count


async def _nothing_due(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM due")


async def _count(room: Room, state: RunState, count: int) -> bool:
    return len([run for run in await room.runs() if run["state"] == state]) == count
