"""Overlap policies on real dispatchers: who waits, who is skipped, who makes way; through restarts and takeovers.

Nothing here is decided by time: a run lasts until the test lets its worker say that it is done.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.errors import Conflict
from core.intervals import Every
from core.policy import Overlap, Retry
from core.schedule import Schedule
from core.states import AttemptOutcome, RunState, SkipReason
from tests.support.dispatcher_room import Room, now_us
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

PENDING, LEASED, DONE, CANCELED = RunState.PENDING, RunState.LEASED, RunState.SUCCEEDED, RunState.CANCELED
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER]
SHORT: dict[str, Any] = {"attempt_lease_s": 2.0, "heartbeat_interval_s": 0.5}


async def ticking(room: Room, times: int, every_s: int, **spec: Any) -> tuple[UUID, list[int]]:
    """A job that occurs so many times from soon on; with the instants."""
    first_us = now_us() + US_PER_S
    every = Every(elapsed_us=every_s * US_PER_S)
    schedule = Schedule(every=(every,), anchor_us=first_us, end_us=first_us + (times - 1) * every_s * US_PER_S + 1)
    instants = [first_us + n * every_s * US_PER_S for n in range(times)]
    job_id = await room.job(schedule, **spec)
    room.expected[job_id] = instants
    return job_id, instants


async def triggered(room: Room, job_id: UUID) -> UUID:
    """A trigger that obeys the job's policy."""
    return await room.trigger(job_id, allow_overlap=False)


async def skipped(room: Room, job_id: UUID, instants: list[int], reason: SkipReason) -> None:
    """Wait until exactly these are recorded, with this reason."""

    async def recorded() -> bool:
        return [(s["from_us"], s["reason"]) for s in await room.skips(job_id)] == [(at, reason) for at in instants]

    await eventually(recorded, 30, what=f"{len(instants)} occurrences are skipped")


async def gated(room: Room, job_id: UUID, count: int) -> list[UUID]:
    """The runs of the job that wait for others, once there are so many."""

    async def waiting() -> list[UUID] | None:
        runs = [run for run in await room.runs(job_id) if run["state"] == PENDING and run["gated"]]
        return [run["run_id"] for run in runs] if len(runs) == count else None

    return await eventually(waiting, 30, what=f"{count} runs wait for others of their job")


async def behind_gate(owner: RunningDispatcher, count: int) -> None:
    gates = owner.parts.memory.gates
    await eventually(lambda: gates.waiting == count, 15, what=f"{count} runs wait behind gates, not {gates.waiting}")


async def one_at_a_time(room: Room, job_id: UUID) -> None:
    """No attempt of the job began before the one that began before it had ended."""
    rows = await room.eye.fetch(
        "SELECT a.started_us, a.ended_us FROM attempts a JOIN runs r ON r.run_id = a.run_id WHERE r.job_id = $1", job_id
    )
    spans = sorted((row["started_us"], row["ended_us"]) for row in rows)
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans)), spans


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
        await eventually(lambda: _no_due_rows(room), 15, what="all of them have been met")
        await room.check()
        async with ScriptedWorker(owner.address, work=success, slots=1) as worker:
            await worker.grant(1)
            for run_id in (*runs, *others):
                await room.becomes(run_id, DONE, 30)
            for ordered in (runs, others):
                wanted = [str(run_id) for run_id in ordered]
                assert [start.run_id for start in worker.starts if start.run_id in wanted] == wanted
            await room.check(worker)


@pytest.mark.parametrize("policy", BUFFERING)
async def test_the_gate_holds_when_the_dispatcher_is_killed_and_another_takes_over(room: Room, policy: Overlap) -> None:
    first = await room.owner()
    job_id = await room.job(overlap=policy, max_buffered=9)
    count = 4 if policy is Overlap.BUFFER_ALL else 2
    async with ScriptedWorker(first.address, slots=5) as worker:
        await worker.grant(5)
        running = await triggered(room, job_id)
        given = await worker.assignment(run_id=str(running))
        waiting = [await triggered(room, job_id) for _ in range(count - 1)]
        await eventually(lambda: _no_due_rows(room), 15, what="all of them have been met")
        await first.kill()
    second = await room.owner()
    async with ScriptedWorker(second.address, slots=5, holding=[given.ref]) as heir:
        await heir.heartbeat(given.ref)
        await heir.grant(5)
        await behind_gate(second, count - 1)
        assert heir.starts == []
        await heir.succeed(given.ref)
        for run_id in waiting:
            again = await heir.assignment(run_id=str(run_id))
            assert len(heir.holding) == 1
            await heir.succeed(again.ref)
            await room.becomes(run_id, DONE)
        await one_at_a_time(room, job_id)
        await room.check(worker, heir)


@pytest.mark.parametrize("policy", BUFFERING)
async def test_a_run_whose_worker_died_is_open_until_its_last_attempt(room: Room, policy: Overlap) -> None:
    owner = await room.owner(**SHORT)
    job_id = await room.job(overlap=policy)
    async with ScriptedWorker(owner.address, "mortal") as mortal:
        await mortal.grant(1)
        lost = await triggered(room, job_id)
        await mortal.assignment(run_id=str(lost))
    behind = await triggered(room, job_id)
    async with ScriptedWorker(owner.address, "heir", slots=3, work=success) as heir:
        await heir.grant(3)
        await room.becomes(behind, DONE, 30)
        canceled = policy is Overlap.CANCEL_OTHER
        assert await room.state(lost) is (CANCELED if canceled else DONE)
        assert [start.run_id for start in heir.starts] == ([] if canceled else [str(lost)]) + [str(behind)]
        await one_at_a_time(room, job_id)
        await room.check(mortal, heir)


class TestCancelOther:
    async def test_the_running_one_is_told_to_stop_and_the_newest_starts_when_it_has(self, room: Room) -> None:
        """With one slot, too: what waits gets no credit before the running one gives it back."""
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=1) as worker, worker.beating():
            await worker.grant(1)
            job_id = await room.job(overlap=Overlap.CANCEL_OTHER)
            running = await triggered(room, job_id)
            given = await worker.assignment(run_id=str(running))
            between, newest = await triggered(room, job_id), await triggered(room, job_id)
            assert await worker.canceled(given.ref) == "cancel requested"
            await room.becomes(between, CANCELED)
            assert (await room.run(between))["last_error"] == "made way for a newer run of its job"
            assert [await room.state(run_id) for run_id in (running, newest)] == [LEASED, PENDING]
            await worker.stop(given.ref)
            await worker.grant(2)
            await worker.succeed((await worker.assignment(run_id=str(newest))).ref)
            await room.becomes(newest, DONE)
            assert await room.state(running) is CANCELED
            assert [start.run_id for start in worker.starts] == [str(running), str(newest)]
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_occurrences_cancel_each_other(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=3) as worker, worker.beating():
            await worker.grant(3)
            job_id, _ = await ticking(room, 3, 2, overlap=Overlap.CANCEL_OTHER)
            for count in (1, 2):
                given = (await worker.assigned(count))[-1]
                assert await worker.canceled(given.ref) == "cancel requested"
                assert len(worker.starts) == count
                await worker.stop(given.ref)
            await worker.succeed((await worker.assigned(3))[-1].ref)
            await room.all_become(job_id, [CANCELED, CANCELED, DONE])
            assert await room.skips(job_id) == []
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_a_worker_that_does_not_listen_is_waited_for(self, room: Room) -> None:
        owner = await room.owner()
        async with ScriptedWorker(owner.address, slots=3) as worker, worker.beating():
            await worker.grant(3)
            job_id = await room.job(overlap=Overlap.CANCEL_OTHER)
            running = await triggered(room, job_id)
            given = await worker.assignment(run_id=str(running))
            newer = await triggered(room, job_id)
            await worker.canceled(given.ref)
            await behind_gate(owner, 1)
            await worker.succeed(given.ref)  # a success that commits first wins
            await worker.succeed((await worker.assignment(run_id=str(newer))).ref)
            await room.becomes(newer, DONE)
            assert await room.state(running) is DONE
            await one_at_a_time(room, job_id)
            await room.check(worker)

    async def test_a_worker_that_is_silent_is_waited_for_until_its_lease_ends(self, room: Room) -> None:
        owner = await room.owner(**SHORT)
        async with (
            ScriptedWorker(owner.address, "silent") as silent,
            ScriptedWorker(owner.address, "other") as other,
        ):
            await silent.grant(1)
            job_id = await room.job(overlap=Overlap.CANCEL_OTHER)
            running = await triggered(room, job_id)
            await silent.assignment(run_id=str(running))
            await other.grant(1)
            newer = await triggered(room, job_id)
            given = await other.assignment(run_id=str(newer))
            assert (await room.attempts(running))[0]["outcome"] == AttemptOutcome.CANCELED
            await other.succeed(given.ref)
            await room.becomes(newer, DONE)
            await one_at_a_time(room, job_id)
            await room.check(silent, other)

    async def test_runs_that_wait_for_a_retry_or_a_worker_are_canceled_at_once(self, room: Room) -> None:
        owner = await room.owner()
        slow = Retry(max_attempts=2, first_delay_us=600 * US_PER_S, max_delay_us=600 * US_PER_S, jitter=0.0)
        async with ScriptedWorker(owner.address, slots=3) as worker, worker.beating():
            await worker.grant(3)
            flaky_job = await room.job(overlap=Overlap.CANCEL_OTHER, retry=slow)
            flaky = await triggered(room, flaky_job)
            await worker.fail((await worker.assignment(run_id=str(flaky))).ref)
            newer = await triggered(room, flaky_job)
            await worker.succeed((await worker.assignment(run_id=str(newer))).ref)
            await room.becomes(flaky, CANCELED)
        orphan_job = await room.job(overlap=Overlap.CANCEL_OTHER, handler="nobody-yet")
        runs = [await triggered(room, orphan_job) for _ in range(3)]
        await room.all_become(orphan_job, [CANCELED, CANCELED, PENDING])
        async with ScriptedWorker(owner.address, "late", handlers=["nobody-yet"], work=success) as late:
            await late.grant(1)
            await room.becomes(runs[-1], DONE)
            await room.check(worker, late)

    async def test_a_dispatcher_that_dies_before_it_has_made_way_leaves_that_to_the_next(self, room: Room) -> None:
        first = await room.owner()
        job_id = await room.job(overlap=Overlap.CANCEL_OTHER)

        async def never() -> None:
            return None

        first.parts.loops.gates.make_way = never  # type: ignore[method-assign]
        async with ScriptedWorker(first.address) as worker:
            await worker.grant(1)
            running = await triggered(room, job_id)
            given = await worker.assignment(run_id=str(running))
            newer = await triggered(room, job_id)
            await eventually(lambda: _no_due_rows(room), 15, what="it has been met")
            assert (await room.run(running))["cancel_requested_us"] == 0
            await first.kill()
        second = await room.owner()
        async with ScriptedWorker(second.address, holding=[given.ref]) as heir, heir.beating():
            await heir.heartbeat(given.ref)
            assert await heir.canceled(given.ref) == "cancel requested"
            await heir.stop(given.ref)
            await heir.grant(1)
            await heir.succeed((await heir.assignment(run_id=str(newer))).ref)
            await room.becomes(newer, DONE)
            assert await room.state(running) is CANCELED
            await room.check(worker, heir)


async def _no_due_rows(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM due")
