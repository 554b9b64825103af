"""Changes of a job between discovery and firing: what was due before the cut-over may run, nothing after it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from core.clock import US_PER_S
from core.intervals import Every
from core.schedule import Schedule
from core.states import JobState, RunState
from tests.component.dispatcher.conftest import Departure
from tests.support.dispatcher_room import Room, now_us
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

DONE = RunState.SUCCEEDED


async def in_memory(owner: RunningDispatcher, rows: int = 1) -> None:
    """Wait until the due rows have been discovered: the dispatcher has decided nothing yet, but has read the job."""
    await eventually(lambda: len(owner.parts.memory.agenda) >= rows, what="the due row is in memory")


@pytest.mark.parametrize("change", ["edit", "pause", "delete"])
async def test_a_change_before_an_occurrence_is_due_wins_over_what_was_discovered(
    depart: Departure, change: str
) -> None:
    machine = await depart("2026-01-10T12:00Z")
    room, owner = machine.room, machine.owned_by
    assert owner is not None
    job_id, at_us = await room.job_from(3.0, lambda at_us: Schedule(at_us=(at_us,)))
    await machine.leap_to(at_us - US_PER_S // 2)
    await machine.until(lambda: len(owner.parts.memory.agenda) >= 1, "the due row is in memory")
    match change:
        case "edit":
            later_us = at_us + 700_000
            assert await room.change(job_id, schedule=Schedule(at_us=(later_us,))) < at_us
            room.expected[job_id] = [later_us]
        case "pause":
            assert await room.change(job_id, state=JobState.PAUSED) < at_us
            room.expected[job_id] = []
        case "delete":
            assert await room.change(job_id, state=JobState.DELETED) < at_us
            room.expected[job_id] = []
    await machine.run_until(at_us + US_PER_S)
    assert await _no_due_rows(room)
    if change == "edit":
        (run,) = await room.all_become(job_id, [DONE])
        assert run["job_version"] == 2
    await room.check(machine.worker)


async def test_a_recurring_job_changes_its_version_without_losing_or_doubling_an_occurrence(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=50) as worker:
        await worker.grant(50)
        job_id, first_us = await room.job_from(
            0.5, lambda at_us: Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=at_us)
        )
        await eventually(lambda: len(worker.starts) >= 2)
        cutover_us = await room.change(job_id, handler="work", description="another")
        await eventually(lambda: len(worker.starts) >= 4)
        await room.change(job_id, state=JobState.PAUSED)
        runs = await room.runs(job_id)
        for run in runs:
            assert run["job_version"] == (1 if run["scheduled_for_us"] <= cutover_us else 2)
        instants = [run["scheduled_for_us"] for run in runs]
        assert instants == [first_us + n * US_PER_S for n in range(len(runs))]


async def test_b52_a_paused_job_does_not_catch_up_when_it_is_resumed(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=50) as worker:
        await worker.grant(50)
        job_id = await room.job(Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=now_us()))
        await eventually(lambda: len(worker.starts) >= 1)
        paused_us = await room.change(job_id, state=JobState.PAUSED)
        await asyncio.sleep(2.2)
        resumed_us = await room.change(job_id, state=JobState.ACTIVE)
        before = len([s for s in worker.starts if s.due_at_us <= resumed_us])
        await eventually(lambda: len(worker.starts) > before)
        meanwhile = [s for s in worker.starts if paused_us < s.due_at_us <= resumed_us]
        assert meanwhile == []


async def test_an_occurrence_that_was_due_before_the_edit_runs_as_the_version_it_was_due_under(
    room: Room,
) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        with owner.firing_nothing():
            job_id = await room.once(after_s=0.3)
            await in_memory(owner)
            await asyncio.sleep(0.5)
            await room.change(job_id, description="too late to matter")
        await worker.grant(5)
        (run,) = await room.all_become(job_id, [DONE])
        assert run["job_version"] == 1


async def test_b108_one_unreadable_job_is_set_aside_and_the_others_go_on(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await room.owner()
    spoilt = ['"x"', '{"handler": 5}', "UNKNOWN OVERLAP", "Nowhere/Bad"]
    async with ScriptedWorker(owner.address, work=success, slots=50) as worker:
        await worker.grant(50)
        with owner.firing_nothing():
            jobs = [await room.once(after_s=1.0) for _ in range(20)]
            for job_id, text in zip(jobs[: len(spoilt)], spoilt, strict=True):
                await _spoil(room, job_id, text)
                del room.expected[job_id]
        with caplog.at_level(logging.ERROR, "dispatcher"):
            for job_id in jobs[len(spoilt) :]:
                await room.all_become(job_id, [DONE])
            triggered = await room.trigger(jobs[-1])
            await eventually(lambda: _errors(room, len(spoilt)), 30)
            await room.becomes(triggered, DONE)
        assert len(_logged(caplog)) <= len(spoilt)
        rows = await room.eye.fetch("SELECT due_at_us, scheduled_for_us FROM due")
        assert len(rows) == len(spoilt)
        assert all(row["due_at_us"] > now_us() + 30 * US_PER_S > row["scheduled_for_us"] for row in rows), (
            "kept for later"
        )
        await room.check(worker)


async def test_b108_a_trigger_of_an_unreadable_job_waits_and_does_not_fill_the_log(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)
        job_id, other = await room.job(), await room.job()
        with caplog.at_level(logging.ERROR, "dispatcher"):
            with owner.firing_nothing():
                run_id = await room.trigger(job_id, delay_s=0.3)
                await _spoil(room, job_id, '"x"')
            await eventually(lambda: _errors(room, 1))
            await asyncio.sleep(1.0)
            await room.becomes(await room.trigger(other), DONE)
        assert len(_logged(caplog)) == 1
        assert await room.state(run_id) is RunState.PENDING
        await room.check(worker)


async def test_a_due_row_without_its_job_is_left_alone_and_stops_nothing(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)
        with owner.firing_nothing():
            orphan, other = await room.once(after_s=0.5), await room.once(after_s=1.0)
            await room.eye.execute("DELETE FROM job_versions WHERE job_id = $1", orphan)
            await room.eye.execute("DELETE FROM jobs WHERE job_id = $1", orphan)
        del room.expected[orphan]
        with caplog.at_level(logging.ERROR, "dispatcher"):
            await room.all_become(other, [DONE])
            await eventually(lambda: _logged(caplog))
            restarts = owner.database.restarts
            await asyncio.sleep(0.5)
        assert len(_logged(caplog)) == 1
        assert owner.database.restarts == restarts
        assert await room.eye.fetchval("SELECT count(*) FROM due") == 1
        await room.check(worker)


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def _spoil(room: Room, job_id: object, text: str) -> None:
    spec = await room.eye.fetchval("SELECT spec FROM job_versions WHERE job_id = $1", job_id)
    match text:
        case "UNKNOWN OVERLAP":
            text = spec.replace('"ALLOW"', '"SOMETIMES"')
        case "Nowhere/Bad":
            text = spec.replace("at_us", "every_us")
    await room.eye.execute("UPDATE job_versions SET spec = $2 WHERE job_id = $1", job_id, text)


async def _errors(room: Room, count: int) -> bool:
    return len(await room.eye.fetch("SELECT 1 FROM jobs WHERE error <> ''")) == count


async def _no_due_rows(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM due")
