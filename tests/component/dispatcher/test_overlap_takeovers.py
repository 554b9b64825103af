"""Runs that wait behind their gate, while dispatchers and workers die."""

from __future__ import annotations

from typing import Any

import pytest

from core.policy import Overlap
from core.states import RunState
from tests.support.dispatcher_room import Room
from tests.support.overlap_room import all_met, behind_gate, one_at_a_time, triggered
from tests.support.scripted_worker import ScriptedWorker, success

PENDING, LEASED, DONE, CANCELED = RunState.PENDING, RunState.LEASED, RunState.SUCCEEDED, RunState.CANCELED
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER]
SHORT: dict[str, Any] = {"attempt_lease_s": 2.0, "heartbeat_interval_s": 0.5}


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
        await all_met(room)
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
