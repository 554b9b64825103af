"""Versions of a job over a real server: listed newest first, compared field by field, and restored."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2
from tidewheel.v1.job_pb2 import Interval, Job, Schedule
from tidewheel.v1.job_service_pb2 import (
    CompareJobVersionsRequest,
    CreateJobRequest,
    DeleteJobRequest,
    ListJobVersionsRequest,
    PauseJobRequest,
    RestoreJobVersionRequest,
    ResumeJobRequest,
    UpdateJobRequest,
)

from tests.support.control_plane import ControlPlane, refused

HOURLY = Schedule(cron=["0 * * * *"], zone="Europe/Berlin")
DAILY = Schedule(every=[Interval(days=1)], cron=["30 4 * * *"], zone="Europe/Berlin")


async def edit(plane: ControlPlane, *paths: str, note: str = "", request_id: str = "", **fields: Any) -> job_pb2.Job:
    answer: job_pb2.Job = await plane.jobs.UpdateJob(
        UpdateJobRequest(
            job=Job(name="a", **fields), update_mask=FieldMask(paths=paths), note=note, request_id=request_id
        )
    )
    return answer


async def restore(plane: ControlPlane, version: int, **fields: Any) -> job_pb2.Job:
    answer: job_pb2.Job = await plane.jobs.RestoreJobVersion(
        RestoreJobVersionRequest(name="a", version=version, **fields)
    )
    return answer


async def changes(plane: ControlPlane, before: int, after: int = 0, **which: str) -> dict[str, tuple[str, str]]:
    """What differs, by path."""
    request = CompareJobVersionsRequest(from_version=before, to_version=after, **(which or {"name": "a"}))
    answer = await plane.jobs.CompareJobVersions(request)
    return {change.path: (getattr(change, "from"), change.to) for change in answer.changes}


class TestAListing:
    async def test_tells_of_each_version_who_made_it_when_and_why(self, plane: ControlPlane) -> None:
        created = await plane.create("a", "r-1", schedule=HOURLY, payload=b"p")
        edited = await edit(plane, "description", note="because", request_id="r-2", description="new")
        await plane.jobs.PauseJob(PauseJobRequest(name="a", note="broken"))
        answer = await plane.jobs.ListJobVersions(ListJobVersionsRequest(name="a"))
        assert [(each.version, each.note, each.request_id) for each in answer.versions] == [
            (3, "broken", ""),
            (2, "because", "r-2"),
            (1, "", "r-1"),
        ]
        paused, second, first = answer.versions
        assert (paused.state, second.state) == (job_pb2.JOB_STATE_PAUSED, job_pb2.JOB_STATE_ACTIVE)
        assert (first.cutover, second.cutover) == (created.create_time, edited.update_time)
        assert {each.author for each in answer.versions} == {"unauthenticated"}
        assert (first.job.description, second.job.description) == ("", "new")
        assert (first.job.payload, first.job.schedule, first.job.name) == (b"p", created.schedule, "a")
        assert not first.job.etag
        assert answer.next_page_token == ""

    async def test_goes_on_page_by_page_while_versions_are_added(self, plane: ControlPlane) -> None:
        await plane.create("a")
        for number in range(4):
            await edit(plane, "description", description=str(number))
        seen, request = [], ListJobVersionsRequest(name="a", page_size=2)
        while True:
            page = await plane.jobs.ListJobVersions(request)
            seen.append([each.version for each in page.versions])
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
            await edit(plane, "description", description="meanwhile")
        assert seen == [[5, 4], [3, 2], [1]]

    async def test_of_a_deleted_job_is_found_by_its_id(self, plane: ControlPlane) -> None:
        job = await plane.create("a")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        await plane.create("a")
        deleted = await plane.jobs.ListJobVersions(ListJobVersionsRequest(job_id=job.job_id))
        assert [each.state for each in deleted.versions] == [job_pb2.JOB_STATE_DELETED, job_pb2.JOB_STATE_ACTIVE]
        assert len((await plane.jobs.ListJobVersions(ListJobVersionsRequest(name="a"))).versions) == 1

    async def test_shows_a_version_that_cannot_be_read_with_its_fault(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a", schedule=HOURLY)
        await edit(plane, "description", description="new")
        await eye.execute("UPDATE job_versions SET spec = '[]' WHERE version = 1")
        second, first = (await plane.jobs.ListJobVersions(ListJobVersionsRequest(name="a"))).versions
        assert "not readable" in first.job.error
        assert (second.job.error, second.job.description) == ("", "new")

    async def test_with_the_token_of_another_job_is_refused(self, plane: ControlPlane) -> None:
        for name in ("a", "b"):
            await plane.create(name)
        await edit(plane, "description", description="new")
        page = await plane.jobs.ListJobVersions(ListJobVersionsRequest(name="a", page_size=1))
        other = ListJobVersionsRequest(name="b", page_size=1, page_token=page.next_page_token)
        assert list((await refused(plane.jobs.ListJobVersions(other))).fields) == ["page_token"]


class TestAComparison:
    async def test_names_each_field_that_differs_with_both_values(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=HOURLY, payload=b"p", labels={"team": "x"})
        await edit(
            plane,
            *("schedule", "payload", "labels", "retry", "overlap"),
            schedule=DAILY,
            payload=b"q",
            labels={"team": "y"},
            retry=job_pb2.RetryPolicy(max_attempts=9),
            overlap=job_pb2.OVERLAP_POLICY_BUFFER_ONE,
        )
        found = await changes(plane, 1)
        assert {path: pair for path, pair in found.items() if not path.startswith("schedule")} == {
            "labels": ('{"team": "x"}', '{"team": "y"}'),
            "overlap": ('"OVERLAP_POLICY_SKIP"', '"OVERLAP_POLICY_BUFFER_ONE"'),
            "payload": ('"cA=="', '"cQ=="'),
            "retry.max_attempts": ("4", "9"),
        }
        assert found["schedule.cron"] == ('["0 * * * *"]', '["30 4 * * *"]')
        assert found["schedule.every"] == ("", '[{"days": 1}]')
        assert set(found) >= {"schedule.anchor"}
        assert "schedule.zone" not in found

    async def test_tells_of_a_pause_and_of_a_schedule_that_is_gone(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        assert await changes(plane, 1, 2) == {"state": ('"JOB_STATE_ACTIVE"', '"JOB_STATE_PAUSED"')}
        await edit(plane, "schedule")
        found = await changes(plane, 2, 3)
        assert list(found) == ["schedule"]
        assert json.loads(found["schedule"][0])["cron"] == ["0 * * * *"]
        assert found["schedule"][1] == ""
        assert await changes(plane, 3, 3) == {}
        assert await changes(plane, 3) == {}

    async def test_of_a_version_that_is_not_there_is_not_found(self, plane: ControlPlane) -> None:
        await plane.create("a")
        refusal = await refused(changes(plane, 1, 7))
        assert refusal.code is grpc.StatusCode.NOT_FOUND
        assert "'7'" in refusal.message

    async def test_with_a_version_that_cannot_be_read_is_refused(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a")
        await edit(plane, "description", description="new")
        await eye.execute("UPDATE job_versions SET spec = '[]' WHERE version = 1")
        assert (await refused(changes(plane, 1))).code is grpc.StatusCode.FAILED_PRECONDITION


class TestARestoration:
    async def test_makes_a_new_version_that_says_what_the_old_one_did(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        first = await plane.create("a", schedule=HOURLY, payload=b"p", labels={"team": "x"})
        await edit(plane, "schedule", "payload", "labels", "handler", schedule=DAILY, payload=b"q", handler="other")
        restored = await restore(plane, 1, note="was better", request_id="r-9")
        assert (restored.version, restored.handler, restored.payload) == (3, "h", b"p")
        assert (restored.schedule, dict(restored.labels)) == (first.schedule, {"team": "x"})
        assert restored.HasField("next_occurrence")
        assert await changes(plane, 1, 3) == {}
        newest = (await plane.jobs.ListJobVersions(ListJobVersionsRequest(name="a"))).versions[0]
        assert (newest.note, newest.request_id) == ("was better", "r-9")
        assert await restore(plane, 1, note="was better", request_id="r-9") == restored, "a repeat"
        row = await eye.fetchrow("SELECT action, note FROM audit ORDER BY at_us DESC LIMIT 1")
        assert row is not None
        assert tuple(row) == ("job.restore", "was better")

    async def test_keeps_the_state(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        restored = await restore(plane, 1)
        assert (restored.version, restored.state) == (3, job_pb2.JOB_STATE_PAUSED)
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version > 1") == 0
        await plane.jobs.ResumeJob(ResumeJobRequest(name="a"))
        assert (await restore(plane, 2)).state == job_pb2.JOB_STATE_ACTIVE

    async def test_does_not_fire_a_one_off_of_the_past_again(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a", schedule=Schedule(at=[Timestamp(seconds=1_000_000_000)]))
        await edit(plane, "schedule", schedule=HOURLY)
        restored = await restore(plane, 1)
        assert [time.seconds for time in restored.schedule.at] == [1_000_000_000]
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version = 3") == 0

    @pytest.mark.parametrize("version", [2, 99])
    async def test_of_a_version_that_is_not_there_changes_nothing(
        self, plane: ControlPlane, eye: asyncpg.Connection, version: int
    ) -> None:
        await plane.create("a")
        assert (await refused(restore(plane, version))).code is grpc.StatusCode.NOT_FOUND
        assert await eye.fetchval("SELECT count(*) FROM job_versions") == 1

    async def test_with_a_stale_etag_is_refused(self, plane: ControlPlane) -> None:
        first = await plane.create("a")
        await edit(plane, "description", description="new")
        refusal = await refused(restore(plane, 1, etag=first.etag))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "STALE_ETAG")

    async def test_takes_a_shared_calendar_as_it_is_now(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        """Unless it was deleted meanwhile: that is told."""
        await eye.execute(
            """INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)
               VALUES (gen_random_uuid(), 'default', 'holidays', 1, 0, 0)"""
        )
        content = '{"days_off": {"weekdays": [], "days": [{"date": "*-12-25", "name": ""}], "working": []}}'
        await eye.execute(
            "INSERT INTO calendar_versions SELECT calendar_id, 1, $1::jsonb, '', 0, '', '', '' FROM calendars", content
        )
        named = Schedule(cron=["0 * * * *"], exclude=job_pb2.Exclusions(calendars=["holidays"]))
        await plane.jobs.CreateJob(CreateJobRequest(job=Job(name="a", handler="h", schedule=named)))
        await edit(plane, "schedule", schedule=HOURLY)
        assert (await restore(plane, 1)).schedule.exclude.calendars == ["holidays"]
        assert await eye.fetchval("SELECT count(*) FROM calendar_jobs") == 1
        await edit(plane, "schedule", schedule=HOURLY)
        await eye.execute("UPDATE calendars SET deleted_us = 1")
        refusal = await refused(restore(plane, 1))
        assert list(refusal.fields) == ["version"]
        assert "job.schedule.exclude.calendars[0]: no calendar of the namespace" in refusal.fields["version"]
