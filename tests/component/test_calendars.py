"""CalendarService over a real server and database: a calendar's life, and how its changes reach jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import grpc
import pytest
from tidewheel.v1 import calendar_service_pb2 as pb
from tidewheel.v1 import job_pb2, operation_pb2
from tidewheel.v1.job_service_pb2 import DeleteJobRequest, PauseJobRequest, UpdateJobRequest

from tests.support.control_plane import ControlPlane, refused

NIGHTLY = job_pb2.Schedule(
    cron=["0 3 * * *"], zone="UTC", exclude=job_pb2.Exclusions(calendars=["holidays"]), start={"seconds": 4102444800}
)
CHRISTMAS = pb.DaysOff(days=[pb.DayOff(date="*-12-25", name="Christmas")])


async def make(plane: ControlPlane, name: str = "holidays", request_id: str = "", **fields: Any) -> pb.Calendar:
    calendar = pb.Calendar(name=name, **(fields or {"days_off": CHRISTMAS}))
    answer: pb.Calendar = await plane.calendars.CreateCalendar(
        pb.CreateCalendarRequest(calendar=calendar, request_id=request_id, note="first")
    )
    return answer


async def change(plane: ControlPlane, name: str = "holidays", etag: str = "", **fields: Any) -> Any:
    calendar = pb.Calendar(name=name, etag=etag, **fields)
    return await plane.calendars.UpdateCalendar(pb.UpdateCalendarRequest(calendar=calendar, note="changed"))


async def found(plane: ControlPlane, name: str = "holidays", version: int = 0) -> pb.Calendar:
    answer: pb.Calendar = await plane.calendars.GetCalendar(pb.GetCalendarRequest(name=name, version=version))
    return answer


class TestALife:
    async def test_what_was_made_is_read_back(self, plane: ControlPlane) -> None:
        made = await make(plane, description="of the office", days_off=CHRISTMAS)
        assert (made.namespace, made.name, made.version, made.jobs) == ("default", "holidays", 1, 0)
        assert (made.description, made.note, made.author) == ("of the office", "first", "unauthenticated")
        assert made.days_off == CHRISTMAS
        assert made.create_time == made.update_time
        assert await found(plane) == made

    async def test_windows_are_read_back(self, plane: ControlPlane) -> None:
        windows = pb.Windows(
            action=pb.WINDOW_ACTION_DEFER,
            windows=[
                pb.Window(**{"from": {"seconds": 1_800_000_000}, "to": {"seconds": 1_800_003_600}}, name="once"),
                pb.Window(cron="0 2 * * 0", zone="Europe/Berlin", duration={"seconds": 7200}, name="weekly"),
            ],
        )
        assert (await make(plane, windows=windows)).windows == windows
        assert (await found(plane)).windows == windows

    async def test_an_update_is_a_version_of_its_own_and_the_old_one_stays(self, plane: ControlPlane) -> None:
        first = await make(plane)
        days = pb.DaysOff(weekdays=[0, 6])
        updated = await change(plane, days_off=days, description="weekends", etag=first.etag)
        assert (updated.calendar.version, updated.calendar.days_off, updated.calendar.note) == (2, days, "changed")
        assert not updated.HasField("operation")
        old = await found(plane, version=1)
        assert (old.days_off, old.version, old.etag, old.note) == (CHRISTMAS, 1, first.etag, "first")
        versions = (
            await plane.calendars.ListCalendarVersions(pb.ListCalendarVersionsRequest(name="holidays"))
        ).versions
        assert [each.version for each in versions] == [2, 1]
        assert versions[1] == old

    async def test_a_stale_etag_is_refused(self, plane: ControlPlane) -> None:
        first = await make(plane)
        await change(plane, days_off=CHRISTMAS)
        refusal = await refused(change(plane, days_off=CHRISTMAS, etag=first.etag))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "STALE_ETAG")

    async def test_a_deleted_one_frees_its_name(self, plane: ControlPlane) -> None:
        first = await make(plane)
        await plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name="holidays"))
        assert (await refused(found(plane))).code is grpc.StatusCode.NOT_FOUND
        assert (await make(plane)).calendar_id != first.calendar_id

    async def test_a_repeat_gets_the_first_answer(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        first = await make(plane, request_id="r-1")
        assert await make(plane, request_id="r-1") == first
        assert await eye.fetchval("SELECT count(*) FROM calendars") == 1
        refusal = await refused(make(plane, "other", request_id="r-1"))
        assert refusal.reason == "REQUEST_REUSED"

    async def test_a_taken_name_is_refused(self, plane: ControlPlane) -> None:
        await make(plane)
        assert (await refused(make(plane))).code is grpc.StatusCode.ALREADY_EXISTS

    async def test_every_change_is_in_the_record(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await make(plane)
        await change(plane, days_off=CHRISTMAS)
        await plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name="holidays", note="gone"))
        rows = await eye.fetch("SELECT action, object, note FROM audit ORDER BY at_us")
        assert [tuple(row) for row in rows] == [
            ("calendar.create", "holidays", "first"),
            ("calendar.update", "holidays", "changed"),
            ("calendar.delete", "holidays", "gone"),
        ]

    async def test_listing_pages_by_name_without_content(self, plane: ControlPlane) -> None:
        for name in ("b", "a", "c"):
            await make(plane, name)
        first = await plane.calendars.ListCalendars(pb.ListCalendarsRequest(page_size=2))
        assert [each.name for each in first.calendars] == ["a", "b"]
        assert first.calendars[0].WhichOneof("content") is None
        rest = await plane.calendars.ListCalendars(
            pb.ListCalendarsRequest(page_size=2, page_token=first.next_page_token)
        )
        assert ([each.name for each in rest.calendars], rest.next_page_token) == (["c"], "")


class TestReferences:
    async def test_a_job_blocks_the_deletion_which_names_it(self, plane: ControlPlane) -> None:
        await make(plane)
        await plane.create("nightly", schedule=NIGHTLY)
        await plane.create("other", schedule=NIGHTLY)
        assert (await found(plane)).jobs == 2
        refusal = await refused(plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name="holidays")))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "2 in all" in refusal.message
        assert "'nightly'" in refusal.message or "'other'" in refusal.message

    async def test_a_job_that_is_deleted_or_edited_away_lets_it_go(self, plane: ControlPlane) -> None:
        await make(plane)
        await plane.create("gone", schedule=NIGHTLY)
        await plane.create("edited", schedule=NIGHTLY)
        await plane.jobs.DeleteJob(DeleteJobRequest(name="gone"))
        other = job_pb2.Schedule(cron=["0 3 * * *"])
        await plane.jobs.UpdateJob(
            UpdateJobRequest(job=job_pb2.Job(name="edited", schedule=other), update_mask={"paths": ["schedule"]})
        )
        await plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name="holidays"))

    async def test_a_name_that_is_no_calendar_is_refused(self, plane: ControlPlane) -> None:
        refusal = await refused(plane.create("nightly", schedule=NIGHTLY))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert list(refusal.fields) == ["job.schedule.exclude.calendars[0]"]

    async def test_registrations_and_a_deletion_at_once_leave_no_job_without_its_calendar(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        for round_no in range(5):
            name = f"holidays-{round_no}"
            await make(plane, name)
            schedule = job_pb2.Schedule(cron=["0 3 * * *"], exclude=job_pb2.Exclusions(calendars=[name]))
            creations = [plane.create(f"job-{round_no}-{n}", schedule=schedule) for n in range(4)]
            deletion = plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name=name))
            await asyncio.gather(*creations, deletion, return_exceptions=True)
        orphans = await eye.fetchval(
            """SELECT count(*) FROM calendar_jobs r JOIN calendars c ON c.calendar_id = r.calendar_id
               WHERE c.deleted_us > 0"""
        )
        assert orphans == 0


class TestAChange:
    async def test_reaches_its_jobs_before_the_call_is_answered(self, plane: ControlPlane) -> None:
        """The next occurrence moves off the day that is off now."""
        await make(plane)
        before = [await plane.create(name, schedule=NIGHTLY) for name in ("a", "b", "c")]
        assert before[0].next_occurrence.ToJsonString() == "2100-01-01T03:00:00Z"
        updated = await change(plane, days_off=pb.DaysOff(days=[pb.DayOff(date="2100-01-01")]))
        operation = updated.operation
        assert (operation.kind, operation.state) == (
            operation_pb2.OPERATION_KIND_CALENDAR_CHANGE,
            operation_pb2.OPERATION_STATE_SUCCEEDED,
        )
        assert (operation.done, operation.total, operation.unchanged, operation.subject) == (3, 3, 0, "holidays")
        for name in ("a", "b", "c"):
            job = await plane.get(name)
            assert (job.version, job.next_occurrence.ToJsonString()) == (2, "2100-01-02T03:00:00Z")

    async def test_leaves_what_was_due_before_to_the_old_version(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        """The old version's row stays, and the new version begins after the cut-over."""
        await make(plane, days_off=pb.DaysOff(days=[pb.DayOff(date="2100-06-01")]))
        schedule = job_pb2.Schedule(cron=["* * * * *"], exclude=job_pb2.Exclusions(calendars=["holidays"]))
        await plane.create("minutely", schedule=schedule)
        (old,) = await eye.fetch("SELECT job_version, due_at_us FROM due")
        await change(plane, days_off=pb.DaysOff(days=[pb.DayOff(date="2100-07-01")]))
        rows = await eye.fetch("SELECT job_version, due_at_us FROM due ORDER BY job_version")
        cutover_us = await eye.fetchval("SELECT cutover_us FROM jobs")
        assert rows[0] == old
        assert (rows[1]["job_version"], rows[1]["due_at_us"] > cutover_us) == (2, True)

    async def test_reaches_a_paused_job_which_stays_paused(self, plane: ControlPlane) -> None:
        await make(plane)
        await plane.create("a", schedule=NIGHTLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        await change(plane, days_off=pb.DaysOff(weekdays=[1]))
        job = await plane.get("a")
        assert (job.version, job.state) == (3, job_pb2.JOB_STATE_PAUSED)

    async def test_that_takes_every_occurrence_away_leaves_a_job_without_a_next_one(self, plane: ControlPlane) -> None:
        await make(plane)
        await plane.create("a", schedule=NIGHTLY)
        await change(plane, days_off=pb.DaysOff(weekdays=[0, 1, 2, 3, 4, 5, 6]))
        job = await plane.get("a")
        assert job.version == 2
        assert not job.HasField("next_occurrence")
        await change(plane, days_off=CHRISTMAS)
        assert (await plane.get("a")).HasField("next_occurrence")


NO_DAYS = {"days_off": pb.DaysOff()}
BAD = {
    "no content": ({}, "calendar"),
    "no day": (NO_DAYS, "calendar.days_off"),
    "a day of the week": ({"days_off": pb.DaysOff(weekdays=[7])}, "calendar.days_off.weekdays[0]"),
    "a date": ({"days_off": pb.DaysOff(days=[pb.DayOff(date="2026-02-30")])}, "calendar.days_off.days[0].date"),
    "an action": ({"windows": pb.Windows(windows=[pb.Window(cron="* * * * *")])}, "calendar.windows.action"),
    "no window": ({"windows": pb.Windows(action=pb.WINDOW_ACTION_SKIP)}, "calendar.windows.windows"),
    "a zone": (
        {
            "windows": pb.Windows(
                action=pb.WINDOW_ACTION_SKIP,
                windows=[pb.Window(cron="0 2 * * *", zone="Europe/Atlantis", duration={"seconds": 60})],
            )
        },
        "calendar.windows.windows[0].zone",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("case", BAD)
    async def test_is_refused_by_its_field_and_changes_nothing(
        self, plane: ControlPlane, eye: asyncpg.Connection, case: str
    ) -> None:
        fields, path = BAD[case]
        calendar = pb.Calendar(name="x", **fields)
        refusal = await refused(plane.calendars.CreateCalendar(pb.CreateCalendarRequest(calendar=calendar)))
        assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, [path])
        assert await eye.fetchval("SELECT count(*) FROM calendars") == 0

    async def test_names_every_fault_at_once(self, plane: ControlPlane) -> None:
        calendar = pb.Calendar(namespace="No", name="no good", description="x" * 1025, **NO_DAYS)
        refusal = await refused(plane.calendars.CreateCalendar(pb.CreateCalendarRequest(calendar=calendar)))
        assert set(refusal.fields) == {
            "calendar.namespace",
            "calendar.name",
            "calendar.description",
            "calendar.days_off",
        }

    async def test_the_kind_of_content_cannot_change(self, plane: ControlPlane) -> None:
        await make(plane)
        windows = pb.Windows(
            action=pb.WINDOW_ACTION_SKIP, windows=[pb.Window(cron="0 2 * * *", duration={"seconds": 60})]
        )
        refusal = await refused(change(plane, windows=windows))
        assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, ["calendar"])

    async def test_what_is_not_there_is_not_found(self, plane: ControlPlane) -> None:
        await make(plane)
        for call in (
            found(plane, "other"),
            found(plane, version=9),
            change(plane, "other", days_off=CHRISTMAS),
            plane.calendars.DeleteCalendar(pb.DeleteCalendarRequest(name="other")),
            plane.calendars.ListCalendarVersions(pb.ListCalendarVersionsRequest(name="other")),
        ):
            assert (await refused(call)).code is grpc.StatusCode.NOT_FOUND
