"""Jobs whose newest run cancels the others: with workers that stop, that do not, and with owners that die."""

from __future__ import annotations

from typing import Any

from core.clock import US_PER_S
from core.policy import Overlap, Retry
from core.states import AttemptOutcome, RunState
from tests.support.dispatcher_room import Room
from tests.support.overlap_room import all_met, behind_gate, one_at_a_time, ticking, triggered, without_tick
from tests.support.scripted_worker import ScriptedWorker, success

PENDING, LEASED, DONE, CANCELED = RunState.PENDING, RunState.LEASED, RunState.SUCCEEDED, RunState.CANCELED
SHORT: dict[str, Any] = {"attempt_lease_s": 2.0, "heartbeat_interval_s": 0.5}


class TestCancelOther:
    async def test_the_running_one_is_told_to_stop_and_the_newest_starts_when_it_has(self, room: Room) -> None:
        """With one slot, too: what waits gets no credit before the running one gives it back."""
        owner = await room.owner()
        without_tick(owner)
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
            job_id, _ = await ticking(room, 3, 3, overlap=Overlap.CANCEL_OTHER)
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
            await all_met(room)
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
