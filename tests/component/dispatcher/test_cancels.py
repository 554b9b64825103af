"""Cancels: a waiting run ends at once, a running one when its worker says so, or with its lease; a success wins."""

from __future__ import annotations

from typing import Any

from tidewheel.v1 import worker_service_pb2 as pb

from core.states import AttemptOutcome, RunState
from tests.support.dispatcher_room import Room
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker

SHORT: dict[str, Any] = {"attempt_lease_s": 1.5, "heartbeat_interval_s": 0.5}


async def outcomes(room: Room, run_id: Any) -> list[AttemptOutcome]:
    return [AttemptOutcome(row["outcome"]) for row in await room.attempts(run_id)]


async def test_cancels_end_a_waiting_run_at_once_and_a_running_one_when_its_worker_says_so(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        job_id = await room.job()
        running = await room.trigger(job_id)
        given = await worker.assignment()
        waiting, later = await room.trigger(job_id), await room.trigger(job_id, delay_s=1.0)
        await eventually(lambda: owner.parts.memory.routes.holds(waiting))
        for run_id in (running, waiting, later):
            await room.cancel(run_id)
        await owner.hint(canceled=(str(running), str(waiting), str(later)))
        assert await worker.canceled(given.ref) == "cancel requested"
        assert [await room.state(run_id) for run_id in (running, waiting, later)] == [
            RunState.LEASED,
            RunState.CANCELED,
            RunState.CANCELED,
        ]
        assert not owner.parts.memory.routes.holds(waiting)
        await worker.stop(given.ref)
        await room.becomes(running, RunState.CANCELED)
        assert await outcomes(room, running) == [AttemptOutcome.CANCELED]
        await worker.grant(5)
        done = await room.trigger(job_id)
        again = await worker.assignment(run_id=str(done))
        await worker.succeed(again.ref)
        await room.becomes(done, RunState.SUCCEEDED)
        await eventually(lambda: _no_due_rows(room), 10)
        assert len(worker.starts) == 2, "nothing that was canceled was sent"
        await room.check(worker)


async def test_a_cancel_without_its_hint_reaches_the_worker_with_the_next_renewal(room: Room) -> None:
    owner = await room.owner(attempt_lease_s=4.0, heartbeat_interval_s=1.0)
    async with ScriptedWorker(owner.address) as worker, worker.beating():
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await room.cancel(run_id)
        assert await worker.canceled(given.ref) == "cancel requested"


async def test_a_success_that_commits_before_the_cancel_is_heard_wins(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await room.cancel(run_id)
        await worker.succeed(given.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        assert await worker.verdict(given.ref) == pb.VERDICT_ACCEPTED
        await room.check(worker)


async def test_a_failure_after_a_cancel_was_requested_is_not_retried(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await room.cancel(run_id)
        await worker.fail(given.ref)
        await room.becomes(run_id, RunState.CANCELED)
        await room.check(worker)


async def test_a_canceled_run_whose_worker_never_answers_ends_with_its_lease(room: Room) -> None:
    owner = await room.owner(**SHORT)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        await worker.assignment()
        await room.cancel(run_id)
        await owner.hint(canceled=(str(run_id),))
        await room.becomes(run_id, RunState.CANCELED, 30)
        assert await outcomes(room, run_id) == [AttemptOutcome.CANCELED]
        await room.check(worker)


async def _no_due_rows(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM due")
