"""Returning from a downtime: what each policy makes of what was missed, in the rows, and at which pace."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.calendars import CalendarPin, DayOff, DaysOff, content_to_json
from core.clock import US_PER_S
from core.intervals import Every
from core.jobspec import JobSpec, Pins
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap
from core.schedule import Schedule
from core.states import JobState, RunState, SkipReason
from tests.component.dispatcher.conftest import Departure
from tests.support.dispatcher_room import Room, now_us
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, success

DONE = RunState.SUCCEEDED
GRACE_US = 2 * US_PER_S
LONG_AGO_US = 600 * US_PER_S
SKIP, LATEST, ALL = CatchUpMode.SKIP, CatchUpMode.LATEST, CatchUpMode.ALL


def secondly(begin_us: int, count: int) -> Schedule:
    """So many occurrences, a second apart, from `begin_us` on."""
    return Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=begin_us, end_us=begin_us + count * US_PER_S)


async def missed(room: Room, schedule: Schedule, since_us: int, **policy: Any) -> UUID:
    """A job that may overlap itself, none of whose occurrences since then has been fired."""
    catch_up = CatchUp(**({"grace_us": GRACE_US} | policy))
    return await room.missed_job(JobSpec("work", schedule=schedule, catch_up=catch_up, overlap=Overlap.ALLOW), since_us)


async def due_rows(room: Room) -> list[dict[str, Any]]:
    return [dict(row) for row in await room.eye.fetch("SELECT * FROM due ORDER BY due_at_us")]


async def gone_from_due(room: Room) -> bool:
    return not await room.eye.fetch("SELECT 1 FROM due")


# --- what is run and what is recorded ---


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        ({"mode": SKIP}, []),
        ({"mode": LATEST}, [4]),
        ({"mode": ALL}, [0, 1, 2, 3, 4]),
        ({"mode": ALL, "max_runs": 3}, [2, 3, 4]),
        ({"mode": ALL, "max_runs": 3, "order": CatchUpOrder.NEWEST_FIRST}, [4, 3, 2]),
        ({"mode": ALL, "window_us": 60 * US_PER_S}, []),
    ],
    ids=["skip", "latest", "all", "capped", "newest-first", "outside-the-window"],
)
async def test_b50_after_a_downtime_each_mode_runs_what_it_promises_and_records_the_rest_in_one_row(
    room: Room, policy: dict[str, Any], runs: list[int]
) -> None:
    begin_us = now_us() - LONG_AGO_US
    job_id = await missed(room, secondly(begin_us, 5), begin_us, **policy)
    occurrences = room.expected[job_id]
    owner = await room.dispatcher()
    async with ScriptedWorker(owner.address, work=success, slots=10) as worker:
        await worker.grant(10)
        await worker.heard()  # each run finds a credit, so that none overtakes another
        await room.give(owner)
        await eventually(lambda: gone_from_due(room), what="the chain has ended")
        await eventually(lambda: _done(room, job_id, len(runs)), what="what was made has run")
        assert [start.due_at_us for start in worker.starts] == [occurrences[n] for n in runs]
        left_out = [at for n, at in enumerate(occurrences) if n not in runs]
        skips = [(s["from_us"], s["to_us"], s["reason"]) for s in await room.skips(job_id)]
        assert skips == ([(left_out[0], left_out[-1], SkipReason.CATCH_UP)] if left_out else [])
        await room.check(worker)


async def test_b59_a_one_off_that_was_missed_runs_once_or_is_recorded_and_leaves_no_row(room: Room) -> None:
    at_us = now_us() - LONG_AGO_US
    run_late = await missed(room, Schedule(at_us=(at_us,)), at_us)
    left_out = await missed(room, Schedule(at_us=(at_us,)), at_us, mode=SKIP)
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=success) as worker:
        await worker.grant(1)
        await room.all_become(run_late, [DONE])
        await eventually(lambda: gone_from_due(room))
        (skip,) = await room.skips(left_out)
        assert (skip["from_us"], skip["to_us"], skip["reason"]) == (at_us, at_us, SkipReason.CATCH_UP)
        await room.check(worker)


async def test_within_the_grace_everything_missed_runs_in_order(room: Room) -> None:
    begin_us = now_us() - 4 * US_PER_S
    job_id = await missed(room, secondly(begin_us, 3), begin_us, mode=SKIP, grace_us=60 * US_PER_S)
    owner = await room.dispatcher()
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)
        await worker.heard()
        await room.give(owner)
        await room.all_become(job_id, [DONE] * 3)
        assert [start.due_at_us for start in worker.starts] == room.expected[job_id]
        await room.check(worker)


# --- the pace ---


async def test_a_new_owner_goes_on_with_a_catch_up_backwards_where_the_old_one_left_it(room: Room) -> None:
    begin_us = now_us() - LONG_AGO_US
    schedule = Schedule(every=(Every(elapsed_us=30 * US_PER_S),), anchor_us=begin_us, end_us=now_us() + 3600 * US_PER_S)
    job_id = await missed(room, schedule, begin_us, mode=ALL, max_runs=6, grace_us=0, order=CatchUpOrder.NEWEST_FIRST)
    first = await room.owner(catch_up_runs_per_s=1.0)
    await eventually(lambda: _count(room, job_id, 2), what="it has begun")
    await first.kill()
    (row,) = await due_rows(room)
    left = [at for at in room.expected[job_id] if row["back_to_us"] <= at <= row["back_us"]]
    assert 0 < len(left) < 6
    assert row["scheduled_for_us"] > now_us() - 30 * US_PER_S, "the head went on in time"
    second = await room.owner(catch_up_runs_per_s=5.0)
    await eventually(lambda: _count(room, job_id, 6), 30)
    made = sorted(await room.runs(job_id), key=lambda run: run["created_us"])
    instants = [run["scheduled_for_us"] for run in made]
    assert instants == sorted(instants, reverse=True), "backwards, across the two owners"
    assert instants[-len(left) :] == left[::-1]
    await eventually(lambda: _back_is_over(room))
    (skip,) = await room.skips(job_id)
    assert (skip["from_us"], skip["reason"]) == (room.expected[job_id][0], SkipReason.CATCH_UP)
    assert second.shards


async def test_a_namespace_catches_up_at_its_pace_and_neither_others_nor_what_is_on_time_wait_for_it(
    room: Room,
) -> None:
    at_us = now_us() - LONG_AGO_US
    crowd = [await missed(room, Schedule(at_us=(at_us + n,)), at_us) for n in range(24)]
    stranger = await missed(room, Schedule(at_us=(at_us,)), at_us)
    await room.eye.execute("UPDATE jobs SET namespace = 'another' WHERE job_id = $1", stranger)
    await room.owner(catch_up_runs_per_s=4.0)
    on_time = [await room.once(after_s=1.0 + n / 2) for n in range(3)]
    await eventually(lambda: _made_of(room, [*crowd, stranger, *on_time]), 60, what="everything was made")
    made_us = sorted([(await room.runs(job_id))[0]["created_us"] for job_id in crowd])
    # A second's worth at once, then one each quarter of a second; a turn taken late brings no later one forward.
    assert all(at_us >= made_us[0] + (n - 3) * US_PER_S // 4 for n, at_us in enumerate(made_us))
    (other,) = await room.runs(stranger)
    assert other["created_us"] < made_us[8], "another namespace has a pace of its own"
    for job_id in on_time:
        (run,) = await room.runs(job_id)
        assert run["created_us"] < run["due_at_us"] + 5 * US_PER_S
        assert run["created_us"] < made_us[-1], "while the crowd was waiting"
    assert await gone_from_due(room)


async def test_a_crowd_that_waits_long_waits_in_the_database_and_hides_nothing_from_the_scans(room: Room) -> None:
    """More late rows than a scan reads, at a pace that would take them minutes."""
    at_us = now_us() - LONG_AGO_US
    crowd = [await missed(room, Schedule(at_us=(at_us + n,)), at_us) for n in range(40)]
    owner = await room.owner(catch_up_runs_per_s=0.5, scan_limit_per_shard=5)
    await eventually(lambda: _made_of(room, crowd[:1]), what="the first one was made")
    on_time = await room.once(after_s=0.5)
    await eventually(lambda: _made_of(room, [on_time]), what="what is due is seen")
    (run,) = await room.runs(on_time)
    assert run["created_us"] < run["due_at_us"] + 5 * US_PER_S
    rows = await eventually(lambda: _all_put_off(room, at_us + US_PER_S), what="each was told when to ask again")
    assert len(rows) > 30
    spread_us = [later["due_at_us"] - sooner["due_at_us"] for sooner, later in pairwise(rows[3:])]
    assert min(spread_us) >= US_PER_S
    assert len(owner.parts.memory.agenda) < 20


# --- between the nominal instant and the due time ---


JITTER_US = 1_500_000


@pytest.mark.parametrize(
    ("state", "reason"),
    [(JobState.PAUSED, SkipReason.PAUSED), (JobState.DELETED, SkipReason.DELETED)],
    ids=["pause", "deletion"],
)
async def test_what_had_begun_and_was_not_due_when_the_job_stopped_is_recorded_as_skipped(
    depart: Departure, state: JobState, reason: SkipReason
) -> None:
    machine = await depart("2026-01-10T12:00Z")
    room = machine.room
    job_id, at_us = await room.job_from(0.7, lambda at_us: secondly(at_us, 3), pins=Pins(jitter_offset_us=JITTER_US))
    await machine.leap_to(at_us + 100_000)
    cutover_us = await room.change(job_id, state=state)
    assert at_us < cutover_us < at_us + JITTER_US
    await machine.run_until(at_us + 2 * JITTER_US)
    assert await gone_from_due(room), "the chain has ended"
    (skip,) = await room.skips(job_id)
    last_us = at_us + (cutover_us - at_us) // US_PER_S * US_PER_S
    assert (skip["from_us"], skip["to_us"], skip["reason"]) == (at_us, last_us, reason)
    assert await room.runs(job_id) == []
    await room.check(machine.worker)


async def test_what_had_begun_and_was_not_due_when_the_job_was_edited_runs_as_it_was(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00Z")
    room = machine.room
    pins = Pins(jitter_offset_us=JITTER_US)
    job_id, at_us = await room.job_from(0.7, lambda at_us: Schedule(at_us=(at_us,)), pins=pins)
    await machine.leap_to(at_us + 100_000)
    later_us = at_us + 10 * US_PER_S
    assert await room.change(job_id, schedule=Schedule(at_us=(later_us,))) < at_us + JITTER_US
    await machine.run_until(at_us + 2 * JITTER_US)
    (run,) = await room.all_become(job_id, [DONE])
    assert (run["job_version"], run["scheduled_for_us"], run["due_at_us"]) == (1, at_us, at_us + JITTER_US)
    assert run["started_us"] >= at_us + JITTER_US
    room.expected[job_id] = [at_us]
    await room.check(machine.worker)


# --- calendars ---


async def test_b32_a_job_whose_calendar_is_missing_is_set_aside_until_it_is_there(room: Room) -> None:
    owner = await room.owner()
    pin = CalendarPin(uuid4(), 1)
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)
        with owner.firing_nothing():
            job_id, other = await room.once(after_s=1.0), await room.once(after_s=1.0)
            (at_us,) = room.expected[job_id]
            needs_it = JobSpec(
                "work",
                schedule=Schedule(at_us=(at_us,), exclude_calendars=("holidays",)),
                pins=Pins(calendars={"holidays": pin}),
            )
            await room.eye.execute(
                "UPDATE job_versions SET spec = $2 WHERE job_id = $1", job_id, json.dumps(needs_it.to_json())
            )
        await room.all_become(other, [DONE])
        error = await eventually(lambda: _error(room, job_id))
        assert "holidays" in error
        (row,) = await due_rows(room)
        assert (row["scheduled_for_us"], row["due_at_us"] > now_us() + 30 * US_PER_S) == (at_us, True)
        await room.eye.execute(
            "INSERT INTO calendar_versions VALUES ($1, 1, $2, '', 0, '', '', '')",
            *(pin.calendar_id, json.dumps(content_to_json(DaysOff(days=(DayOff("2001-01-01"),))))),
        )
        await _look_again_now(room, owner, row)
        (run,) = await room.all_become(job_id, [DONE])
        assert (run["scheduled_for_us"], run["due_at_us"]) == (at_us, at_us)
        await room.check(worker)


async def _look_again_now(room: Room, owner: Any, row: dict[str, Any]) -> None:
    """As if the time had come at which the job is looked at again."""
    await owner.kill()
    at_us = now_us()
    await room.eye.execute(
        "UPDATE due SET due_at_us = $1, bucket = $2 WHERE id = $3",
        *(at_us, max(room.scale.bucket_of(at_us), await _floor(room, row["shard"])), row["id"]),
    )
    successor = await room.owner()
    worker = ScriptedWorker(successor.address, "worker-2", work=success, slots=5)
    await worker.open()
    room.stack.push_async_callback(worker.close)
    await worker.grant(5)


async def _floor(room: Room, shard: int) -> int:
    return int(await room.eye.fetchval("SELECT floor FROM shard_floors WHERE shard = $1", shard))


async def _error(room: Room, job_id: UUID) -> str:
    return str(await room.eye.fetchval("SELECT error FROM jobs WHERE job_id = $1", job_id))


async def _done(room: Room, job_id: UUID, count: int) -> bool:
    return [run["state"] for run in await room.runs(job_id)] == [DONE] * count


async def _count(room: Room, job_id: UUID, count: int) -> bool:
    return len(await room.runs(job_id)) >= count


async def _made_of(room: Room, jobs: list[UUID]) -> bool:
    made = {run["job_id"] for run in await room.runs()}
    return made >= set(jobs)


async def _all_put_off(room: Room, missed_by_us: int) -> list[dict[str, Any]]:
    """The due rows, once none of them stands where its job was missed."""
    rows = await due_rows(room)
    assert all(row["due_at_us"] > missed_by_us for row in rows)
    return rows


async def _back_is_over(room: Room) -> bool:
    return all(row["back_us"] is None for row in await due_rows(room))
