"""Schedules, policies and pauses of jobs over a real server: what comes back, and what stands in the rows."""

from __future__ import annotations

from typing import Any

import asyncpg
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2
from tidewheel.v1.job_pb2 import CatchUpPolicy, Exclusions, Interval, Job, Schedule
from tidewheel.v1.job_service_pb2 import (
    PAUSED_OCCURRENCES_CATCH_UP,
    PAUSED_OCCURRENCES_SKIP,
    DeleteJobRequest,
    PauseJobRequest,
    ResumeJobRequest,
    UpdateJobRequest,
)

from tests.support.control_plane import ControlPlane, refused, settings_for
from tests.support.instants import clear_of_the_next

US = 1_000_000
HOUR_US = 3600 * US
HOURLY = Schedule(cron=["0 * * * *"])


def micros(stamp: Timestamp | Duration) -> int:
    return stamp.seconds * US + stamp.nanos // 1000


async def update(plane: ControlPlane, *paths: str, **fields: Any) -> job_pb2.Job:
    answer: job_pb2.Job = await plane.jobs.UpdateJob(
        UpdateJobRequest(job=Job(name="a", **fields), update_mask=FieldMask(paths=paths))
    )
    return answer


async def age(eye: asyncpg.Connection, by_us: int) -> None:
    """Let everything that stands in the rows of jobs have happened so much earlier."""
    await eye.execute("UPDATE job_versions SET cutover_us = cutover_us - $1, from_us = from_us - $1", by_us)
    await eye.execute("UPDATE jobs SET cutover_us = cutover_us - $1", by_us)


async def plant_calendar(eye: asyncpg.Connection, name: str, content: str) -> None:
    await eye.execute(
        """INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)
           VALUES (gen_random_uuid(), 'default', $1, 1, 0, 0)""",
        name,
    )
    await eye.execute(
        """INSERT INTO calendar_versions SELECT calendar_id, 1, $2::jsonb, '', 0, '', '', '' FROM calendars
           WHERE name = $1""",
        *(name, content),
    )


WEEKEND = '{"days_off": {"weekdays": [0, 6], "days": [], "working": []}}'
NIGHT = (
    '{"windows": {"action": 2, "windows": [{"from_us": null, "to_us": null, "cron": "0 22 * * *", "zone": "UTC",'
    ' "duration_us": 28800000000, "name": ""}]}}'
)


class TestSchedules:
    async def test_of_every_kind_come_back_as_they_were_given(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plant_calendar(eye, "weekend", WEEKEND)
        await plant_calendar(eye, "night", NIGHT)
        schedule = Schedule(
            at=[Timestamp(seconds=4_000_000_000), Timestamp(seconds=4_000_000_001, nanos=1000)],
            every=[
                Interval(elapsed=Duration(seconds=90), anchor=Timestamp(seconds=1_900_000_000)),
                Interval(days=3, anchor=Timestamp(seconds=1_900_000_000)),
                Interval(months=2, anchor=Timestamp(seconds=1_900_000_000)),
            ],
            cron=["0 9 * * 1-5", "@every 3600s", "0 0 12 L * ?"],
            anchor=Timestamp(seconds=1_900_000_005),
            zone="Europe/Berlin",
            start=Timestamp(seconds=1_900_000_000),
            end=Timestamp(seconds=4_100_000_000),
            gap=job_pb2.GAP_RULE_SHIFT,
            repeat=job_pb2.REPEAT_RULE_BOTH,
            exclude=Exclusions(dates=["*-12-25", "2031-01-01/2031-01-06"], cron=["0 9 1 * *"], calendars=["weekend"]),
            windows=["night"],
            max_runs=5000,
            jitter=Duration(seconds=600),
        )
        job = await plane.create("a", schedule=schedule)
        assert job.schedule == schedule
        assert await plane.get("a") == job
        assert await eye.fetchval("SELECT count(*) FROM calendar_jobs") == 2

    async def test_with_weeks_show_the_days_that_they_are(self, plane: ControlPlane) -> None:
        job = await plane.create("a", schedule=Schedule(every=[Interval(weeks=2)]))
        assert [interval.days for interval in job.schedule.every] == [14]
        assert micros(job.next_occurrence) == micros(job.schedule.anchor) + 14 * 24 * HOUR_US

    async def test_equal_instants_of_several_parts_are_one_occurrence(self, plane: ControlPlane) -> None:
        noon = Timestamp(seconds=4_000_017_600)
        shared = Schedule(at=[noon, noon], cron=["0 12 * * *"], start=noon, end=Timestamp(seconds=noon.seconds + 1))
        job = await plane.create("a", schedule=shared)
        assert (job.next_occurrence, list(job.schedule.at)) == (noon, [noon])

    async def test_b59_one_offs_in_the_past_land_at_once_the_earliest_first(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        past = [Timestamp(seconds=1_000_000_007), Timestamp(seconds=1_000_000_000)]
        job = await plane.create("a", schedule=Schedule(at=past))
        row = await eye.fetchrow("SELECT d.*, f.floor FROM due d JOIN shard_floors f ON f.shard = d.shard")
        assert row is not None
        assert (row["scheduled_for_us"], row["bucket"]) == (1_000_000_000 * US, row["floor"])
        assert not job.HasField("next_occurrence")
        await update(plane, "schedule", schedule=Schedule(at=[*past, Timestamp(seconds=1_000_000_003)]))
        (row,) = await eye.fetch("SELECT scheduled_for_us FROM due WHERE job_version = 2")
        assert row["scheduled_for_us"] == 1_000_000_003 * US, "the newly given one"

    async def test_b29_b30_a_zone_means_what_iana_says_and_the_answer_shows_it(self, plane: ControlPlane) -> None:
        """Etc/GMT-3 lies east of Greenwich; EST has no summer time. On a day in July: nine o'clock there."""
        start = Timestamp(seconds=1_909_440_000)  # 2030-07-05T00:00:00Z
        hours = {"Etc/GMT-3": 6, "Etc/GMT+3": 12, "EST": 14, "America/New_York": 13}
        for number, (zone, hour) in enumerate(hours.items()):
            schedule = Schedule(cron=["0 9 * * *"], zone=zone, start=start)
            job = await plane.create(f"a-{number}", schedule=schedule)
            assert (job.schedule.zone, job.next_occurrence.seconds) == (zone, start.seconds + hour * 3600)
        for zone in ("UTC+3", "GMT+3", "+03:00"):
            refusal = await refused(plane.create("b", schedule=Schedule(cron=["0 9 * * *"], zone=zone)))
            assert list(refusal.fields) == ["job.schedule.zone"]


class TestJitter:
    JITTERED = Schedule(cron=["0 0 1 1 *"], jitter=Duration(seconds=3600))

    async def test_is_fixed_and_shown_and_puts_the_due_time_off(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        job = await plane.create("a", schedule=self.JITTERED)
        offset_us = micros(job.jitter_offset)
        assert 0 <= offset_us <= 3600 * US
        assert micros(job.next_due) - micros(job.next_occurrence) == offset_us
        (row,) = await eye.fetch("SELECT due_at_us, scheduled_for_us FROM due")
        assert (row["due_at_us"], row["scheduled_for_us"]) == (micros(job.next_due), micros(job.next_occurrence))

    async def test_stays_over_edits_pauses_and_another_replica(
        self, plane: ControlPlane, database_url: str, isolation: str
    ) -> None:
        first = await plane.create("a", schedule=self.JITTERED)
        moved = await update(
            plane, "schedule", schedule=Schedule(cron=["0 12 1 1 *"], jitter=self.JITTERED.jitter), description="x"
        )
        assert moved.jitter_offset == first.jitter_offset
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        resumed = await plane.jobs.ResumeJob(ResumeJobRequest(name="a"))
        assert resumed.jitter_offset == first.jitter_offset
        settings = settings_for(database_url, isolation, plane.settings.etcd.endpoints[0], plane.settings.cluster.name)
        other = await ControlPlane(settings).serving()
        try:
            assert await other.get("a") == resumed
        finally:
            await other.close()

    async def test_is_absent_without_a_window(self, plane: ControlPlane) -> None:
        job = await plane.create("a", schedule=HOURLY)
        assert not job.HasField("jitter_offset")
        assert job.next_due == job.next_occurrence


class TestPolicies:
    async def test_are_answered_with_every_default_spelt_out(self, plane: ControlPlane) -> None:
        job = await plane.create("a")
        assert (job.catch_up.max_runs, job.catch_up.window.seconds) == (6, 366 * 86_400)
        assert (job.catch_up.order, job.max_buffered) == (job_pb2.CATCH_UP_ORDER_OLDEST_FIRST, 100)

    async def test_come_back_as_they_were_given(self, plane: ControlPlane) -> None:
        catch_up = CatchUpPolicy(
            mode=job_pb2.CATCH_UP_MODE_ALL,
            grace=Duration(seconds=5),
            max_runs=1000,
            window=Duration(seconds=7),
            order=job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
        )
        job = await plane.create("a", catch_up=catch_up, overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL, max_buffered=7)
        assert (job.catch_up, job.overlap, job.max_buffered) == (catch_up, job_pb2.OVERLAP_POLICY_BUFFER_ALL, 7)
        for policy in (job_pb2.OVERLAP_POLICY_BUFFER_ONE, job_pb2.OVERLAP_POLICY_CANCEL_OTHER):
            assert (await update(plane, "overlap", overlap=policy)).overlap == policy
        assert (await update(plane, "max_buffered")).max_buffered == 100, "named and left out: the default"


class TestPauses:
    async def test_b52_a_resume_skips_what_was_paused_unless_told_otherwise(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await clear_of_the_next(3600)
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a", note="broken"))
        await age(eye, 72 * HOUR_US)
        resumed = await plane.jobs.ResumeJob(ResumeJobRequest(name="a", note="mended"))
        (skip,) = await eye.fetch("SELECT * FROM skips")
        assert (skip["to_us"] - skip["from_us"], skip["reason"], skip["job_version"]) == (71 * HOUR_US, 4, 2)
        (row,) = await eye.fetch("SELECT scheduled_for_us FROM due WHERE job_version = 3")
        assert row["scheduled_for_us"] == micros(resumed.next_occurrence) == skip["to_us"] + HOUR_US

    async def test_b52_a_resume_with_catch_up_begins_with_the_first_paused_occurrence(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await clear_of_the_next(3600)
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        await age(eye, 72 * HOUR_US)
        resumed = await plane.jobs.ResumeJob(ResumeJobRequest(name="a", paused=PAUSED_OCCURRENCES_CATCH_UP))
        assert await eye.fetchval("SELECT count(*) FROM skips") == 0
        (row,) = await eye.fetch("SELECT scheduled_for_us FROM due WHERE job_version = 3")
        assert row["scheduled_for_us"] == micros(resumed.next_occurrence) - 72 * HOUR_US

    async def test_an_edit_of_the_schedule_during_a_pause_skips_what_lies_before_it(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await clear_of_the_next(3600)
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        await age(eye, 72 * HOUR_US)
        await update(plane, "schedule", schedule=Schedule(cron=["30 * * * *"]))
        assert await eye.fetchval("SELECT to_us - from_us FROM skips") == 71 * HOUR_US
        resumed = await plane.jobs.ResumeJob(ResumeJobRequest(name="a", paused=PAUSED_OCCURRENCES_CATCH_UP))
        (row,) = await eye.fetch("SELECT scheduled_for_us FROM due WHERE job_version = 4")
        assert row["scheduled_for_us"] == micros(resumed.next_occurrence)

    async def test_a_resume_of_an_active_job_is_answered_as_it_is_whatever_the_choice(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await clear_of_the_next(3600)
        await plant_calendar(eye, "weekend", WEEKEND)
        named = Schedule(cron=["0 * * * *"], exclude=Exclusions(calendars=["weekend"]))
        job = await plane.create("a", schedule=named)
        for choice in (PAUSED_OCCURRENCES_SKIP, PAUSED_OCCURRENCES_CATCH_UP):
            assert await plane.jobs.ResumeJob(ResumeJobRequest(name="a", paused=choice)) == job

    async def test_a_deletion_records_the_pause_that_it_ends(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await clear_of_the_next(3600)
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        await age(eye, 3 * HOUR_US)
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        assert await eye.fetchval("SELECT to_us - from_us FROM skips") == 2 * HOUR_US


class TestEdits:
    async def test_keep_an_anchor_that_they_do_not_name(self, plane: ControlPlane) -> None:
        given = Timestamp(seconds=1_700_000_000)
        await plane.create("a", schedule=Schedule(cron=["@every 7200s"], anchor=given))
        kept = await update(plane, "schedule", schedule=Schedule(every=[Interval(days=1)]))
        assert kept.schedule.anchor == given
        gone = await update(plane, "schedule", schedule=HOURLY)
        assert not gone.schedule.HasField("anchor")

    async def test_that_name_a_schedule_that_is_over_are_refused_and_change_nothing(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a", schedule=HOURLY)
        over = Schedule(cron=["0 * * * *"], end=Timestamp(seconds=1_000_000_000))
        refusal = await refused(update(plane, "schedule", schedule=over))
        assert "no occurrence after now" in refusal.fields["job.schedule"]
        assert await eye.fetchval("SELECT count(*) FROM job_versions") == 1

    async def test_of_a_limited_schedule_go_on_from_the_runs_that_were_made(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        yearly = Schedule(cron=["0 0 1 1 *"], max_runs=3)
        await plane.create("a", schedule=yearly)
        await eye.execute(
            """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us,
                                 state, home_term, ended_us)
               SELECT gen_random_uuid(), job_id, 1, shard, 1, n, n, n, 3, 1, 1 FROM jobs, generate_series(1, 2) AS n"""
        )
        edited = await update(plane, "schedule", schedule=Schedule(cron=["0 0 1 7 *"], max_runs=3))
        last_us = await eye.fetchval("SELECT (spec->'pins'->>'last_us')::bigint FROM job_versions WHERE version = 2")
        assert last_us == micros(edited.next_occurrence), "one is left"
        used_up = await update(plane, "schedule", schedule=Schedule(cron=["0 0 1 7 *"], max_runs=2))
        assert not used_up.HasField("next_occurrence")
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version = 3") == 0
