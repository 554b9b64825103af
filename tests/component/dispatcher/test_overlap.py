"""Overlap policies on real dispatchers: who is skipped, who waits, and in which order."""

from __future__ import annotations

import pytest

from core.clock import US_PER_S
from core.errors import Conflict
from core.policy import Overlap, Retry
from core.states import RunState, SkipReason
from tests.support.dispatcher_room import Room
from tests.support.overlap_room import (
    all_met,
    behind_gate,
    gated,
    one_at_a_time,
    skipped,
    ticking,
    triggered,
    without_tick,
)
from tests.support.scripted_worker import ScriptedWorker, success

PENDING, LEASED, DONE, CANCELED = RunState.PENDING, RunState.LEASED, RunState.SUCCEEDED, RunState.CANCELED


class TestSkip:
    async def test_b62_what_is_due_meanwhile_is_skipped_and_never_started(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id, (first, second, third) = await ticking(room, 3, 4, overlap=Overlap.SKIP)
            given = await worker.assignment()
            await skipped(room, job_id, [second], SkipReason.OVERLAP)
            await worker.succeed(given.ref)
            await worker.succeed((await worker.assigned(2))[1].ref)
            runs = await room.all_become(job_id, [DONE, DONE])
            assert [run["scheduled_for_us"] for run in runs] == [first, third]
            assert owner.metric("tidewheel_skips_total", reason="overlap") == 1
            await room.check(worker)

    async def test_b60_a_run_that_a_killed_dispatcher_had_started_still_counts(self, room: Room) -> None:
        first = await room.owner()
        async with ScriptedWorker(first.address, slots=5) as worker:
            await worker.grant(5)
            job_id, instants = await ticking(room, 4, 3, overlap=Overlap.SKIP)
            given = await worker.assignment()
            await first.kill()
        second = await room.owner()
        async with ScriptedWorker(second.address, slots=5, holding=[given.ref]) as heir:
            await heir.heartbeat(given.ref)
            await heir.grant(5)
            await skipped(room, job_id, instants[1:3], SkipReason.OVERLAP)
            assert heir.starts == []
            await heir.succeed(given.ref)
            await heir.succeed((await heir.assignment()).ref)
            runs = await room.all_become(job_id, [DONE, DONE])
            assert [run["scheduled_for_us"] for run in runs] == [instants[0], instants[3]]
            await one_at_a_time(room, job_id)
            await room.check(worker, heir)

    async def test_b63_a_run_made_by_hand_counts_and_a_second_one_is_refused(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id, instants = await ticking(room, 1, 3, overlap=Overlap.SKIP)
            by_hand = await triggered(room, job_id)
            given = await worker.assignment(run_id=str(by_hand))
            with pytest.raises(Conflict, match=str(by_hand)):
                await triggered(room, job_id)
            await skipped(room, job_id, instants, SkipReason.OVERLAP)
            beside = await room.trigger(job_id)
            await worker.succeed((await worker.assignment(run_id=str(beside))).ref)
            await room.becomes(beside, DONE)
            assert await room.state(by_hand) is LEASED
            await worker.succeed(given.ref)
            await room.becomes(by_hand, DONE)
            await room.check(worker)

    async def test_a_trigger_whose_delay_is_over_while_a_run_is_open_waits_for_its_end(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id = await room.job(overlap=Overlap.SKIP)
            later = await room.trigger(job_id, delay_s=2.0, allow_overlap=False)
            now = await triggered(room, job_id)
            given = await worker.assignment(run_id=str(now))
            await behind_gate(owner, 1)
            await worker.succeed(given.ref)
            await worker.succeed((await worker.assignment(run_id=str(later))).ref)
            await room.becomes(later, DONE)
            await one_at_a_time(room, job_id)
            await room.check(worker)


class TestBuffering:
    async def test_b62_one_waits_and_starts_when_the_open_one_has_ended(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id, (first, second, third) = await ticking(room, 3, 2, overlap=Overlap.BUFFER_ONE)
            given = await worker.assignment()
            (waiting,) = await gated(room, job_id, 1)
            await skipped(room, job_id, [third], SkipReason.BUFFER_FULL)
            assert len(worker.starts) == 1
            await worker.succeed(given.ref)
            late = await worker.assignment(run_id=str(waiting))
            assert late.scheduled_for.ToMicroseconds() == second
            await worker.succeed(late.ref)
            runs = await room.all_become(job_id, [DONE, DONE])
            assert runs[1]["started_us"] >= runs[0]["ended_us"]
            assert [run["scheduled_for_us"] for run in runs] == [first, second]
            assert owner.metric("tidewheel_skips_total", reason="buffer_full") == 1
            await room.check(worker)

    async def test_as_many_wait_as_may_and_start_one_after_the_other_in_the_order_of_their_time(
        self, room: Room
    ) -> None:
        owner = await room.owner()
        without_tick(owner)
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id, instants = await ticking(room, 5, 1, overlap=Overlap.BUFFER_ALL, max_buffered=2)
            given = await worker.assignment()
            await skipped(room, job_id, instants[3:], SkipReason.BUFFER_FULL)
            assert len(worker.starts) == 1
            for count in range(1, 4):
                given = (await worker.assigned(count))[-1]
                assert given.scheduled_for.ToMicroseconds() == instants[count - 1]
                await worker.succeed(given.ref)
            await room.all_become(job_id, [DONE] * 3)
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_triggers_wait_too_until_the_buffer_is_full(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=9) as worker, worker.beating():
            await worker.grant(9)
            one = await room.job(overlap=Overlap.BUFFER_ONE)
            several = await room.job(overlap=Overlap.BUFFER_ALL, max_buffered=3)
            for job_id, may_wait in ((one, 1), (several, 3)):
                runs = [await triggered(room, job_id) for _ in range(1 + may_wait)]
                with pytest.raises(Conflict, match="buffers no more"):
                    await triggered(room, job_id)
                for run_id in runs:
                    given = await worker.assignment(run_id=str(run_id))
                    await worker.succeed(given.ref)
                    await room.becomes(run_id, DONE)
                await one_at_a_time(room, job_id)
            assert len(worker.starts) == 6
            await room.check(worker)

    async def test_a_trigger_that_is_told_to_starts_beside_the_open_run(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id = await room.job(overlap=Overlap.BUFFER_ALL)
            first = await triggered(room, job_id)
            await worker.assignment(run_id=str(first))
            behind = await triggered(room, job_id)
            beside = await room.trigger(job_id)
            both = [await worker.assignment(run_id=str(run_id)) for run_id in (first, beside)]
            assert len(worker.starts) == 2
            await worker.succeed(both[0].ref)
            await room.becomes(first, DONE)
            await behind_gate(owner, 1)
            assert len(worker.starts) == 2, "the one beside is open too"
            await worker.succeed(both[1].ref)
            await worker.succeed((await worker.assignment(run_id=str(behind))).ref)
            await room.becomes(behind, DONE)
            await room.check(worker)

    async def test_a_run_that_waits_for_its_retry_is_open(self, room: Room) -> None:
        owner = await room.owner()
        slow = Retry(max_attempts=2, first_delay_us=2 * US_PER_S, max_delay_us=2 * US_PER_S, jitter=0.0)
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id = await room.job(overlap=Overlap.BUFFER_ONE, retry=slow)
            flaky, behind = await triggered(room, job_id), await triggered(room, job_id)
            await worker.fail((await worker.assignment(run_id=str(flaky))).ref)
            again = await worker.assignment(2, run_id=str(flaky))
            assert [start.run_id for start in worker.starts] == [str(flaky)] * 2
            await worker.succeed(again.ref)
            await worker.succeed((await worker.assignment(run_id=str(behind))).ref)
            await room.becomes(behind, DONE)
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_a_canceled_run_gives_way_whatever_it_waited_for(self, room: Room) -> None:
        """A retry, a gate: without its hint too, since the slow tick looks at the rows."""
        owner = await room.owner()
        slow = Retry(max_attempts=2, first_delay_us=600 * US_PER_S, max_delay_us=600 * US_PER_S, jitter=0.0)
        async with ScriptedWorker(owner.address, slots=5) as worker, worker.beating():
            await worker.grant(5)
            job_id = await room.job(overlap=Overlap.BUFFER_ALL, retry=slow)
            flaky, second, third = [await triggered(room, job_id) for _ in range(3)]
            await worker.fail((await worker.assignment(run_id=str(flaky))).ref)
            await behind_gate(owner, 2)
            await room.cancel(second)
            await owner.hint(canceled=(str(second),))
            await behind_gate(owner, 1)
            await room.cancel(flaky)
            await worker.succeed((await worker.assignment(run_id=str(third))).ref)
            await room.becomes(third, DONE)
            assert [start.run_id for start in worker.starts] == [str(flaky), str(third)]
            await room.check(worker)

    async def test_what_waits_takes_no_credit_from_others(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=2) as worker, worker.beating():
            await worker.grant(2)
            job_id = await room.job(overlap=Overlap.BUFFER_ALL)
            runs = [await triggered(room, job_id) for _ in range(5)]
            given = await worker.assignment(run_id=str(runs[0]))
            await behind_gate(owner, 4)
            other = await room.trigger(await room.job())
            await worker.succeed((await worker.assignment(run_id=str(other))).ref)
            await room.becomes(other, DONE)
            assert [start.run_id for start in worker.starts] == [str(runs[0]), str(other)]
            await worker.succeed(given.ref)
            for total, run_id in enumerate(runs[1:], start=3):
                await worker.grant(total)
                await worker.succeed((await worker.assignment(run_id=str(run_id))).ref)
                await room.becomes(run_id, DONE)
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_what_memory_has_no_room_for_keeps_its_turn(self, room: Room) -> None:
        owner = await room.owner(waiting_limit=3)
        job_id = await room.job(overlap=Overlap.BUFFER_ALL)
        other = await room.job(overlap=Overlap.BUFFER_ALL)
        runs = [await triggered(room, job_id) for _ in range(8)]
        others = [await triggered(room, other) for _ in range(4)]
        await all_met(room)
        await room.check()
        async with ScriptedWorker(owner.address, work=success, slots=1) as worker:
            await worker.grant(1)
            for run_id in (*runs, *others):
                await room.becomes(run_id, DONE, 30)
            for ordered in (runs, others):
                wanted = [str(run_id) for run_id in ordered]
                assert [start.run_id for start in worker.starts if start.run_id in wanted] == wanted
            await room.check(worker)
