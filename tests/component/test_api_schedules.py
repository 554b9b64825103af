"""ScheduleService over a real server and database: what is shown of schedules before anything runs by them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import calendar_service_pb2, job_pb2, job_service_pb2, schedule_service_pb2

from tests.support.command import tidewheel
from tests.support.control_plane import ControlPlane, refused

NEW_YORK = "America/New_York"
GAP_DAYS = ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]


def at(text: str) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromisoformat(text))
    return stamp


def shown(occurrences: Any) -> list[str]:
    return [one.at.ToJsonString() for one in occurrences]


def marks(one: Any) -> list[str]:
    return [schedule_service_pb2.Mark.Name(mark).removeprefix("MARK_") for mark in one.marks]


async def preview(plane: ControlPlane, draft: job_pb2.Schedule | None = None, *, job: str = "", **more: Any) -> Any:
    version = more.pop("version", 0)
    ref = schedule_service_pb2.ScheduleRef(job=job, draft=draft, version=version)
    return await plane.schedules.PreviewSchedule(schedule_service_pb2.PreviewScheduleRequest(schedule=ref, **more))


async def compare(plane: ControlPlane, before: Any, after: Any, **more: Any) -> Any:
    refs = {
        name: ref if isinstance(ref, schedule_service_pb2.ScheduleRef) else schedule_service_pb2.ScheduleRef(draft=ref)
        for name, ref in (("before", before), ("after", after))
    }
    return await plane.schedules.CompareSchedules(schedule_service_pb2.CompareSchedulesRequest(**refs, **more))


async def calendar(plane: ControlPlane, name: str, days_off: calendar_service_pb2.DaysOff) -> None:
    made = calendar_service_pb2.Calendar(name=name, days_off=days_off)
    await plane.calendars.CreateCalendar(calendar_service_pb2.CreateCalendarRequest(calendar=made))


async def edit(plane: ControlPlane, name: str, schedule: job_pb2.Schedule) -> job_pb2.Job:
    answer: job_pb2.Job = await plane.jobs.UpdateJob(
        job_service_pb2.UpdateJobRequest(
            job=job_pb2.Job(name=name, schedule=schedule), update_mask=FieldMask(paths=["schedule"])
        )
    )
    return answer


class TestPreviews:
    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (job_pb2.GAP_RULE_UNSPECIFIED, GAP_DAYS),
            (job_pb2.GAP_RULE_END, GAP_DAYS),
            (job_pb2.GAP_RULE_SHIFT, ["2026-03-08T07:30:00Z", *GAP_DAYS[1:]]),
            (job_pb2.GAP_RULE_SKIP, [*GAP_DAYS[1:], "2026-03-11T06:30:00Z"]),
        ],
    )
    async def test_b01_a_draft_in_the_gap(self, plane: ControlPlane, rule: Any, expected: list[str]) -> None:
        draft = job_pb2.Schedule(cron=["30 2 * * *"], zone=NEW_YORK, gap=rule)
        answer = await preview(plane, draft, after=at("2026-03-08T06:30:00+00:00"), count=3)
        assert shown(answer.occurrences) == expected
        assert answer.more

    async def test_b01_the_stored_job_the_command_line_and_the_due_row_show_the_same_instants(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        line, zone = "30 2 * * *", NEW_YORK
        job = await plane.create("a", schedule=job_pb2.Schedule(cron=[line], zone=zone))
        of_job = shown((await preview(plane, job="a", count=3)).occurrences)
        of_draft = shown((await preview(plane, job_pb2.Schedule(cron=[line], zone=zone), count=3)).occurrences)
        words = ["schedule", "preview", "--count", "3", "-o", "json"]
        here = (await asyncio.to_thread(tidewheel, *words, "--cron", line, "--zone", zone)).document
        there = (await asyncio.to_thread(tidewheel, *words, "--job", "a", "--address", plane.address)).document
        assert [one["at"] for one in here] == [one["at"] for one in there] == of_job == of_draft
        explained = await plane.jobs.ExplainJob(
            job_service_pb2.ExplainJobRequest(name="a", at=at(datetime.now(UTC).isoformat()))
        )
        (stored_us,) = await eye.fetchrow("SELECT scheduled_for_us FROM due")
        nexts = {job.next_occurrence.ToJsonString(), explained.next.ToJsonString(), of_job[0]}
        assert nexts == {at(datetime.fromtimestamp(stored_us / 1e6, UTC).isoformat()).ToJsonString()}

    @pytest.mark.parametrize(
        ("line", "zone", "after", "expected", "local"),
        [
            (
                "48 17 * * 3",
                "America/Phoenix",
                "2021-12-01T12:00:00+00:00",
                "2021-12-02T00:48:00Z",
                "2021-12-01T17:48:00-07:00",
            ),
            (
                "37 20 2 5 *",
                "America/Santiago",
                "2022-05-02T12:00:00+00:00",
                "2022-05-03T00:37:00Z",
                "2022-05-02T20:37:00-04:00",
            ),
        ],
    )
    async def test_b133_next_is_computed_in_the_zone_that_fires(
        self, plane: ControlPlane, line: str, zone: str, after: str, expected: str, local: str
    ) -> None:
        draft = job_pb2.Schedule(cron=[line], zone=zone)
        (one,) = (await preview(plane, draft, after=at(after), count=1)).occurrences
        assert (one.at.ToJsonString(), one.local) == (expected, local)
        words = ["--cron", line, "--zone", zone, "--after", after, "--count", "1", "-o", "json"]
        (of_command,) = (await asyncio.to_thread(tidewheel, "schedule", "preview", *words)).document
        assert (of_command["at"], of_command["local"]) == (expected, local)
        await plane.create("a", schedule=draft)
        (of_job,) = (await preview(plane, job="a", after=at(after), count=1)).occurrences
        assert of_job == one

    async def test_marks_what_a_transition_does(self, plane: ControlPlane) -> None:
        draft = job_pb2.Schedule(cron=["30 1 * * *"], zone=NEW_YORK, repeat=job_pb2.REPEAT_RULE_BOTH)
        range_ = {"from": at("2026-10-31T12:00:00-04:00"), "to": at("2026-11-02T00:00:00-05:00")}
        answer = await preview(plane, draft, **range_)
        assert [one.local for one in answer.occurrences] == ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"]
        assert [marks(one) for one in answer.occurrences] == [["REPEATED"], ["REPEATED"]]

    async def test_shows_what_is_taken_away_only_on_wish(self, plane: ControlPlane) -> None:
        draft = job_pb2.Schedule(cron=["0 9 * * *"], exclude=job_pb2.Exclusions(dates=["2026-12-25"]))
        wish = {"after": at("2026-12-24T00:00:00+00:00"), "count": 2}
        assert shown((await preview(plane, draft, **wish)).occurrences) == [
            "2026-12-24T09:00:00Z",
            "2026-12-26T09:00:00Z",
        ]
        whole = await preview(plane, draft, include_excluded=True, **wish)
        assert [marks(one) for one in whole.occurrences] == [[], ["EXCLUDED"]]
        assert whole.occurrences[1].notes

    async def test_of_a_draft_reads_the_calendars_that_it_names(self, plane: ControlPlane) -> None:
        await calendar(plane, "weekends", calendar_service_pb2.DaysOff(weekdays=[0, 6]))
        draft = job_pb2.Schedule(cron=["0 9 * * *"], exclude=job_pb2.Exclusions(calendars=["weekends"]))
        answer = await preview(plane, draft, after=at("2026-01-02T12:00:00+00:00"), count=2)
        assert shown(answer.occurrences) == ["2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"]

    async def test_of_a_draft_without_its_calendar_is_refused(self, plane: ControlPlane) -> None:
        draft = job_pb2.Schedule(cron=["0 9 * * *"], exclude=job_pb2.Exclusions(calendars=["nowhere"]))
        refusal = await refused(preview(plane, draft))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "schedule.draft.exclude.calendars[0]" in refusal.fields

    async def test_of_a_job_shows_its_own_jitter_and_of_a_draft_that_there_is_some(self, plane: ControlPlane) -> None:
        schedule = job_pb2.Schedule(cron=["0 9 * * *"], jitter=Duration(seconds=600))
        job = await plane.create("a", schedule=schedule)
        (of_job,) = (await preview(plane, job="a", count=1)).occurrences
        assert of_job.due_at.ToMicroseconds() - of_job.at.ToMicroseconds() == job.jitter_offset.ToMicroseconds()
        assert of_job.due_at == job.next_due
        (of_draft,) = (await preview(plane, schedule, count=1)).occurrences
        assert (marks(of_draft), of_draft.due_at) == (["JITTERED"], of_draft.at)
        assert "10 min" in of_draft.notes[0]

    async def test_of_an_older_version_shows_what_that_said(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=job_pb2.Schedule(cron=["0 9 * * *"]))
        await edit(plane, "a", job_pb2.Schedule(cron=["0 10 * * *"]))
        hours = [
            (await preview(plane, job="a", version=version, count=1)).occurrences[0].local[11:16]
            for version in (1, 2, 0)
        ]
        assert hours == ["09:00", "10:00", "10:00"]
        assert (await refused(preview(plane, job="a", version=9))).code is grpc.StatusCode.NOT_FOUND

    async def test_ends_after_the_number_of_runs(self, plane: ControlPlane) -> None:
        answer = await preview(plane, job_pb2.Schedule(cron=["0 9 * * *"], max_runs=2), count=5)
        assert (len(answer.occurrences), answer.more) == (2, False)
        await plane.create("a", schedule=job_pb2.Schedule(cron=["0 9 * * *"], max_runs=2))
        answer = await preview(plane, job="a", count=5)
        assert (len(answer.occurrences), answer.more) == (2, False)

    async def test_says_what_rules_hold(self, plane: ControlPlane) -> None:
        draft = job_pb2.Schedule(cron=["0 3 1-31 * 1", "*/10 * * * *"], zone=NEW_YORK)
        notes = " ".join((await preview(plane, draft, count=1)).notes)
        assert "either of day-of-month `1-31` and day-of-week `1` is enough" in notes
        assert "it follows elapsed time" in notes
        assert "a wall time that does not exist" in notes

    async def test_of_a_paused_job_says_that_it_is_paused(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=job_pb2.Schedule(cron=["0 9 * * *"]))
        await plane.jobs.PauseJob(job_service_pb2.PauseJobRequest(name="a"))
        assert any("paused" in note for note in (await preview(plane, job="a")).notes)

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({}, "schedule"),
            ({"job": "a", "draft": job_pb2.Schedule(cron=["@daily"])}, "schedule"),
            ({"draft": job_pb2.Schedule(cron=["@daily"]), "version": 1}, "schedule.version"),
            ({"job": "a", "version": -1}, "schedule.version"),
            ({"job": "no good"}, "schedule.job"),
            ({"draft": job_pb2.Schedule(cron=["0 0 30 2 *"])}, "schedule.draft.cron[0]"),
            ({"draft": job_pb2.Schedule(cron=["@daily"], zone="Mars/X")}, "schedule.draft.zone"),
            ({"draft": job_pb2.Schedule()}, "schedule.draft"),
            ({"job": "a", "count": 1001}, "count"),
            ({"job": "a", "count": -1}, "count"),
            ({"job": "a", "after": Timestamp(seconds=1), "from": Timestamp(seconds=1)}, "after"),
            ({"job": "a", "from": Timestamp(seconds=5), "to": Timestamp(seconds=4)}, "to"),
            ({"job": "a", "after": Timestamp(seconds=-1)}, "after"),
            ({"job": "a", "namespace": "UPPER"}, "namespace"),
        ],
    )
    async def test_refuse_what_makes_no_sense(self, plane: ControlPlane, more: dict[str, Any], field: str) -> None:
        refusal = await refused(preview(plane, **more))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert field in refusal.fields

    async def test_of_a_job_that_is_not_there_or_has_no_schedule(self, plane: ControlPlane) -> None:
        assert (await refused(preview(plane, job="a"))).code is grpc.StatusCode.NOT_FOUND
        await plane.create("a")
        refusal = await refused(preview(plane, job="a"))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no schedule" in refusal.message

    async def test_are_bounded_where_everything_is_taken_away(self, plane: ControlPlane) -> None:
        await calendar(plane, "always", calendar_service_pb2.DaysOff(weekdays=range(7)))
        draft = job_pb2.Schedule(cron=["0 0 29 2 *"], exclude=job_pb2.Exclusions(calendars=["always"]))
        answer = await preview(plane, draft, count=1000)
        assert not answer.occurrences
        whole = await preview(plane, draft, count=3, include_excluded=True)
        assert [marks(one) for one in whole.occurrences] == [["EXCLUDED"]] * 3
        assert "always" in whole.occurrences[0].notes[0]


class TestComparisons:
    async def test_of_two_drafts(self, plane: ControlPlane) -> None:
        answer = await compare(
            plane,
            job_pb2.Schedule(cron=["0 9 * * *"]),
            job_pb2.Schedule(cron=["0 9 * * 1-5", "30 9 * * 6"]),
            **{"from": at("2026-01-05T00:00:00+00:00")},
            span=Duration(seconds=7 * 86_400),
        )
        assert (answer.unchanged, answer.moved, answer.lost, answer.gained, answer.partial) == (5, 1, 1, 0, False)
        moved, lost = answer.changes
        assert (moved.before.local, moved.after.local) == ("2026-01-10T09:00:00+00:00", "2026-01-10T09:30:00+00:00")
        assert lost.before.local == "2026-01-11T09:00:00+00:00"
        assert not lost.HasField("after")

    async def test_of_a_job_with_a_draft_reads_it_as_an_edit(self, plane: ControlPlane) -> None:
        """The same slots of `H`, the same share of the jitter, the same phase: nothing has changed."""
        schedule = job_pb2.Schedule(
            cron=["H H * * *", "@every 5h"], jitter=Duration(seconds=3600), every=[job_pb2.Interval(days=2)]
        )
        await plane.create("a", schedule=schedule)
        ref = schedule_service_pb2.ScheduleRef(job="a")
        answer = await compare(plane, ref, schedule)
        assert (answer.gained, answer.lost, answer.moved) == (0, 0, 0)
        assert answer.unchanged > 150
        await edit(plane, "a", job_pb2.Schedule(cron=["@yearly"]))
        versions = [schedule_service_pb2.ScheduleRef(job="a", version=version) for version in (1, 2)]
        assert (await compare(plane, *versions)).lost > 150

    async def test_count_beyond_what_they_show(self, plane: ControlPlane) -> None:
        answer = await compare(
            plane,
            job_pb2.Schedule(cron=["@daily"]),
            job_pb2.Schedule(cron=["@hourly"]),
            limit=3,
            **{"from": at("2026-01-05T00:00:00+00:00")},
        )
        assert (len(answer.changes), answer.gained, answer.unchanged) == (3, 30 * 23, 30)

    async def test_of_more_than_can_be_compared_are_of_a_part(self, plane: ControlPlane) -> None:
        answer = await compare(
            plane, job_pb2.Schedule(cron=["* * * * * *"]), job_pb2.Schedule(cron=["* * * * * *"]), limit=1
        )
        assert (answer.partial, answer.unchanged) == (True, 100_000)

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"span": Duration(seconds=0)}, "span"),
            ({"span": Duration(seconds=367 * 86_400)}, "span"),
            ({"limit": 1001}, "limit"),
            ({"before": schedule_service_pb2.ScheduleRef()}, "before"),
            ({"after": job_pb2.Schedule(cron=["60 * * * *"])}, "after.draft.cron[0]"),
        ],
    )
    async def test_refuse_what_makes_no_sense(self, plane: ControlPlane, more: dict[str, Any], field: str) -> None:
        daily = job_pb2.Schedule(cron=["@daily"])
        refusal = await refused(compare(plane, **{"before": daily, "after": daily, **more}))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert field in refusal.fields
