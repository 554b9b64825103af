"""Decisions about jobs in their transaction: calendars held, runs counted, minutes measured, pauses recorded."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from controlplane.api.violations import BadRequest
from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Repinning, Resume
from core.calendars import CalendarContent, CalendarPin, DayOff, DaysOff, content_to_json
from core.enumerator import Enumerator
from core.jobspec import JobSpec
from core.schedule import Schedule
from core.states import JobState, RunState, SkipReason
from core.store.job_changes import Changed, Decision
from core.store.jobs import JobRecord
from core.store.surroundings import Wishes, gather, measure
from tests.support.api_store import MINUTE_US, MINUTELY, NAMESPACE, ApiStore, shown_job
from tests.support.db_faults import DbFaults
from tests.support.raw_statements import until_held_up
from tests.support.store_world import NOW_US, SHARDS, Job, StoreWorld

HOUR_US = 60 * MINUTE_US
HOURLY = Schedule(cron=("0 * * * *",))
HOLIDAY = DaysOff(days=(DayOff("2026-01-01"),))
NAMED = replace(HOURLY, exclude_calendars=("holidays",))


@pytest.fixture
def store(world: StoreWorld) -> ApiStore:
    return ApiStore(world)


async def create(store: ApiStore, schedule: Schedule | None, *, name: str = "job") -> Changed:
    job_id = store.world.rand.uuid()
    decision = Creation(job_id, JobSpec("h", schedule=schedule), b"payload", Enumerator())
    return await store.job_changes.create(store.call(), job_id=job_id, name=name, decision=decision, render=shown_job)


async def change(store: ApiStore, decision: Decision, *, name: str = "job") -> Changed:
    return await store.job_changes.change(
        store.call(), action="job.update", name=name, decision=decision, render=shown_job
    )


def to(schedule: Schedule | None) -> Edit:
    """An edit that gives another schedule."""

    def edited(job: JobRecord) -> tuple[JobSpec, bytes]:
        assert job.spec is not None
        return replace(job.spec, schedule=schedule), job.payload

    return Edit(edited, Enumerator())


def described() -> Edit:
    """An edit that leaves the schedule alone."""

    def edited(job: JobRecord) -> tuple[JobSpec, bytes]:
        assert job.spec is not None
        return replace(job.spec, description="other"), job.payload

    return Edit(edited, Enumerator())


async def calendar(store: ApiStore, content: CalendarContent = HOLIDAY, *, name: str = "holidays") -> CalendarPin:
    """Plant a calendar at its first version."""
    calendar_id = store.world.rand.uuid()
    await store.world.eye.execute(
        "INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)"
        " VALUES ($1, $2, $3, 1, 0, 0)",
        *(calendar_id, NAMESPACE, name),
    )
    return await content_of(store, CalendarPin(calendar_id, 1), content)


async def content_of(store: ApiStore, pin: CalendarPin, content: CalendarContent) -> CalendarPin:
    await store.world.eye.execute(
        "INSERT INTO calendar_versions VALUES ($1, $2, $3, '', 0, '', '', '')",
        *(pin.calendar_id, pin.version, json.dumps(content_to_json(content))),
    )
    return pin


async def references(store: ApiStore) -> list[tuple[UUID, UUID]]:
    return [(row["calendar_id"], row["job_id"]) for row in await store.world.rows("calendar_jobs")]


class TestReferencesToCalendars:
    async def test_stand_while_the_job_names_the_calendar_and_go_with_it(self, store: ApiStore) -> None:
        pin = await calendar(store)
        await create(store, NAMED)
        job = await store.jobs.by_name(NAMESPACE, "job")
        assert job.spec is not None
        assert job.spec.pins.calendars == {"holidays": pin}
        assert await references(store) == [(pin.calendar_id, job.job_id)]
        await change(store, to(HOURLY))
        assert await references(store) == []
        await change(store, to(NAMED))
        assert await references(store) == [(pin.calendar_id, job.job_id)]
        await change(store, Deletion(Enumerator()))
        assert await references(store) == []

    async def test_are_left_alone_by_changes_that_alter_none(self, store: ApiStore, on_postgresql: None) -> None:
        await calendar(store)
        await create(store, NAMED)
        written = await store.world.eye.fetchval("SELECT xmin::text FROM calendar_jobs")
        for decision in (described(), Pause(), Resume(PausedOccurrences.SKIP, Enumerator())):
            await change(store, decision)
        assert await store.world.eye.fetchval("SELECT xmin::text FROM calendar_jobs") == written

    async def test_go_with_a_job_that_cannot_be_read(self, store: ApiStore) -> None:
        await calendar(store)
        await create(store, NAMED)
        await store.world.eye.execute("UPDATE job_versions SET spec = jsonb_set(spec, '{handler}', '7')")
        assert (await store.jobs.by_name(NAMESPACE, "job")).spec is None
        await change(store, Deletion(Enumerator()))
        assert await references(store) == []

    async def test_and_a_deletion_of_the_calendar_exclude_each_other(
        self, store: ApiStore, on_postgresql: None
    ) -> None:
        """On PostgreSQL one waits for the other; CockroachDB refuses the later COMMIT."""
        pin = await calendar(store)
        deletion = store.world.eye.transaction()
        await deletion.start()
        await store.world.eye.execute("UPDATE calendars SET deleted_us = 1 WHERE calendar_id = $1", pin.calendar_id)
        creating = asyncio.ensure_future(create(store, NAMED))
        await until_held_up(store.world)
        assert not creating.done()
        await deletion.commit()
        with pytest.raises(BadRequest, match="no calendar of the namespace is named 'holidays'"):
            await creating
        assert await store.world.rows("jobs") == []

    async def test_wait_for_a_change_of_the_calendar_and_name_its_new_version(
        self, store: ApiStore, on_postgresql: None
    ) -> None:
        pin = await calendar(store)
        update = store.world.eye.transaction()
        await update.start()
        await store.world.eye.execute("UPDATE calendars SET version = 2 WHERE calendar_id = $1", pin.calendar_id)
        await content_of(store, replace(pin, version=2), HOLIDAY)
        creating = asyncio.ensure_future(create(store, NAMED))
        await until_held_up(store.world)
        assert not creating.done()
        await update.commit()
        await creating
        job = await store.jobs.by_name(NAMESPACE, "job")
        assert job.spec is not None
        assert job.spec.pins.calendars["holidays"].version == 2

    async def test_to_a_calendar_of_another_namespace_are_refused(self, store: ApiStore) -> None:
        await calendar(store)
        await store.world.eye.execute("UPDATE calendars SET namespace = 'other'")
        with pytest.raises(BadRequest, match="no calendar of the namespace"):
            await create(store, NAMED)

    async def test_follow_a_changed_calendar_when_they_are_pinned_anew(self, store: ApiStore) -> None:
        pin = await calendar(store)
        await create(store, NAMED)
        await store.world.eye.execute("UPDATE calendars SET version = 2")
        await content_of(store, replace(pin, version=2), DaysOff(days=(DayOff("2026-01-01/2026-01-05"),)))
        store.clock.set_wall(NOW_US + MINUTE_US)
        await change(store, Repinning(Enumerator()))
        rows = {row["job_version"]: row["scheduled_for_us"] for row in await store.world.rows("due")}
        assert rows == {1: NOW_US + 24 * HOUR_US, 2: NOW_US + 5 * 24 * HOUR_US}
        assert (await change(store, Repinning(Enumerator()))).answer == b"job v2 ACTIVE"


class TestAPause:
    async def paused(self, store: ApiStore, schedule: Schedule = HOURLY) -> JobRecord:
        """A job that was paused half an hour after its registration, and it is three hours later."""
        await create(store, schedule)
        store.clock.set_wall(NOW_US + HOUR_US // 2)
        await change(store, Pause())
        store.clock.set_wall(NOW_US + 3 * HOUR_US + HOUR_US // 2)
        return await store.jobs.by_name(NAMESPACE, "job")

    async def test_b52_that_is_skipped_leaves_one_row_and_begins_now(self, store: ApiStore) -> None:
        job = await self.paused(store)
        await change(store, Resume(PausedOccurrences.SKIP, Enumerator()))
        (skip,) = await store.world.rows("skips")
        assert (skip["from_us"], skip["to_us"]) == (NOW_US + HOUR_US, NOW_US + 3 * HOUR_US)
        assert (skip["reason"], skip["job_version"], skip["term"]) == (SkipReason.PAUSED, 2, 0)
        assert (skip["job_id"], skip["shard"]) == (job.job_id, job.shard)
        rows = {row["job_version"]: row["scheduled_for_us"] for row in await store.world.rows("due")}
        assert rows == {1: NOW_US + HOUR_US, 3: NOW_US + 4 * HOUR_US}

    async def test_b52_that_is_caught_up_on_begins_where_it_began(self, store: ApiStore) -> None:
        job = await self.paused(store)
        await store.world.eye.execute("UPDATE shard_floors SET floor = floor + 900")
        await change(store, Resume(PausedOccurrences.CATCH_UP, Enumerator()))
        assert await store.world.rows("skips") == []
        (row,) = [row for row in await store.world.rows("due") if row["job_version"] == 3]
        assert (row["scheduled_for_us"], row["due_at_us"]) == (NOW_US + HOUR_US, NOW_US + HOUR_US)
        assert row["bucket"] == store.world.bucket + 900, "where somebody looks"
        version = (await store.world.rows("job_versions"))[-1]
        assert (version["from_us"], version["cutover_us"]) == (job.cutover_us, NOW_US + 3 * HOUR_US + HOUR_US // 2)

    async def test_keeps_its_beginning_over_edits_that_leave_the_schedule_alone(self, store: ApiStore) -> None:
        job = await self.paused(store)
        await change(store, described())
        store.clock.set_wall(NOW_US + 5 * HOUR_US)
        await change(store, Resume(PausedOccurrences.CATCH_UP, Enumerator()))
        versions = await store.world.rows("job_versions")
        assert [version["from_us"] for version in versions] == [NOW_US, *[job.cutover_us] * 3]
        assert await store.world.rows("skips") == []

    async def test_is_skipped_so_far_by_an_edit_of_the_schedule(self, store: ApiStore) -> None:
        await self.paused(store)
        await change(store, to(Schedule(cron=("15 * * * *",))))
        store.clock.set_wall(NOW_US + 5 * HOUR_US)
        await change(store, Resume(PausedOccurrences.SKIP, Enumerator()))
        skips = await store.world.rows("skips")
        assert [(skip["from_us"], skip["to_us"], skip["job_version"]) for skip in skips] == [
            (NOW_US + HOUR_US, NOW_US + 3 * HOUR_US, 2),
            (NOW_US + 4 * HOUR_US + HOUR_US // 4, NOW_US + 4 * HOUR_US + HOUR_US // 4, 3),
        ]

    async def test_that_a_deletion_ends_is_recorded(self, store: ApiStore) -> None:
        await self.paused(store)
        await change(store, Deletion(Enumerator()))
        (skip,) = await store.world.rows("skips")
        assert (skip["from_us"], skip["to_us"]) == (NOW_US + HOUR_US, NOW_US + 3 * HOUR_US)

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
    async def test_is_recorded_once_when_the_commit_is_lost(self, store: ApiStore, applied: bool) -> None:
        await self.paused(store)
        faults = DbFaults(store.world.database)
        with faults.lost_commits(applied=applied):
            await change(store, Resume(PausedOccurrences.SKIP, Enumerator()))
        assert faults.count == 1
        assert len(await store.world.rows("skips")) == 1
        assert len(await store.world.rows("job_versions")) == 3

    @pytest.mark.parametrize("number", range(1, 6))
    async def test_is_recorded_once_when_a_statement_has_to_be_run_again(self, store: ApiStore, number: int) -> None:
        await self.paused(store)
        faults = DbFaults(store.world.database)
        with faults.conflict_at_statement(number):
            await change(store, Resume(PausedOccurrences.SKIP, Enumerator()))
        assert faults.count == 1
        assert len(await store.world.rows("skips")) == 1


class TestAnEdit:
    async def test_at_the_instant_of_an_occurrence_neither_drops_nor_doubles_it(self, store: ApiStore) -> None:
        """The old version's row still stands for it; the new version begins strictly later."""
        await create(store, MINUTELY)
        store.clock.set_wall(NOW_US + MINUTE_US)
        await change(store, to(Schedule(cron=("*/1 * * * *",))))
        rows = {row["job_version"]: row["scheduled_for_us"] for row in await store.world.rows("due")}
        assert rows == {1: NOW_US + MINUTE_US, 2: NOW_US + 2 * MINUTE_US}

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
    async def test_with_calendars_has_one_effect_when_its_commit_is_lost(self, store: ApiStore, applied: bool) -> None:
        await calendar(store)
        await create(store, MINUTELY)
        with DbFaults(store.world.database).lost_commits(applied=applied):
            await change(store, to(NAMED))
        assert len(await references(store)) == 1
        assert len(await store.world.rows("job_versions")) == 2

    async def test_lands_in_the_bucket_of_the_due_time(self, store: ApiStore) -> None:
        await create(store, replace(MINUTELY, jitter_us=HOUR_US))
        job = await store.jobs.by_name(NAMESPACE, "job")
        assert job.spec is not None
        offset_us = job.spec.pins.jitter_offset_us
        assert offset_us > 5_000_000
        (row,) = await store.world.rows("due")
        assert (row["scheduled_for_us"], row["due_at_us"]) == (NOW_US + MINUTE_US, NOW_US + MINUTE_US + offset_us)
        assert row["bucket"] == store.world.scale.bucket_of(row["due_at_us"])


class TestTheRunsOfALimitedSchedule:
    async def test_count_when_it_is_edited(self, store: ApiStore) -> None:
        await create(store, replace(MINUTELY, max_runs=10))
        job = await store.jobs.by_name(NAMESPACE, "job")
        planted = Job(job.job_id, job.shard)
        for minute, cause in ((1, 1), (2, 1), (3, 1)):
            await plant_run(store, planted, NOW_US + minute * MINUTE_US, cause)
        store.clock.set_wall(NOW_US + 3 * MINUTE_US + 1)
        await change(store, to(replace(HOURLY, max_runs=10)))
        edited = await store.jobs.by_name(NAMESPACE, "job")
        assert edited.spec is not None
        assert edited.spec.pins.last_us == NOW_US + 7 * HOUR_US

    async def test_are_those_of_the_schedule_and_skips_tell_how_far_it_came(self, store: ApiStore) -> None:
        await create(store, replace(MINUTELY, max_runs=10))
        job = await store.jobs.by_name(NAMESPACE, "job")
        planted = Job(job.job_id, job.shard)
        operation = store.world.rand.uuid()
        await plant_run(store, planted, NOW_US + MINUTE_US, 1)
        await plant_run(store, planted, NOW_US + 2 * MINUTE_US, 2)
        await plant_run(store, planted, NOW_US + 3 * MINUTE_US, 3, operation_id=operation)
        assert await counted(store, job.job_id) == (1, NOW_US + MINUTE_US)
        await store.world.eye.execute(
            "INSERT INTO skips VALUES ($1, $2, $3, 2, 1, 0, 1, 0)",
            *(job.job_id, NOW_US + 2 * MINUTE_US, NOW_US + 4 * MINUTE_US),
        )
        assert await counted(store, job.job_id) == (1, NOW_US + 4 * MINUTE_US)
        assert await counted(store, UUID(int=1)) == (0, -1)


async def plant_run(store: ApiStore, job: Job, scheduled_for_us: int, cause: int, **columns: Any) -> None:
    await store.world.plant_run(
        job, state=RunState.SUCCEEDED, scheduled_for_us=scheduled_for_us, cause=cause, **columns
    )


async def counted(store: ApiStore, job_id: UUID) -> tuple[int, int]:
    async def body(tx: Any) -> tuple[int, int]:
        around = (await gather(tx, NAMESPACE, {job_id: Wishes(counts=True)}))[job_id]
        return around.runs_made, around.accounted_us

    return await store.world.database.transaction(body)


class TestJitter:
    async def test_measures_the_minutes_over_all_shards(self, store: ApiStore) -> None:
        for shard, seconds in ((0, 0), (1, 59), (3, 59), (2, 60), (0, 200)):
            job = await store.world.plant_job(shard)
            await store.world.plant_occurrence(job, NOW_US + seconds * 1_000_000)
        minute = NOW_US // MINUTE_US

        async def body(tx: Any) -> dict[int, int]:
            wanted = {minute, minute + 1, minute + 2}
            return await measure(tx, wanted, scale=store.world.scale, shard_count=SHARDS)

        assert await store.world.database.transaction(body) == {minute: 3, minute + 1: 1, minute + 2: 0}

    async def test_spreads_a_crowd_evenly_over_its_window(self, store: ApiStore) -> None:
        """Four times ten jobs in ten minutes: by chance alone some minute would hold eight or more, and some none."""
        daily = Schedule(cron=("0 12 * * *",), jitter_us=10 * MINUTE_US - 1)
        for number in range(40):
            await create(store, daily, name=f"job-{number}")
        minutes = Counter((row["due_at_us"] - NOW_US) // MINUTE_US for row in await store.world.rows("due"))
        assert set(minutes) == set(range(720, 730))
        assert max(minutes.values()) <= 6

    async def test_stays_what_it_was_over_edits_and_is_read_back_with_the_job(self, store: ApiStore) -> None:
        await create(store, replace(MINUTELY, jitter_us=HOUR_US))
        first = await store.jobs.by_name(NAMESPACE, "job")
        for decision in (to(replace(HOURLY, jitter_us=HOUR_US)), described(), Pause()):
            await change(store, decision)
        job = await store.jobs.by_name(NAMESPACE, "job")
        assert job.state is JobState.PAUSED
        assert job.spec is not None
        assert first.spec is not None
        assert job.spec.pins.jitter_offset_us == first.spec.pins.jitter_offset_us > 0
