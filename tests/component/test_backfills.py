"""BackfillJob over a real server and database: which runs it makes, when they are due, and how it is taken back.

No dispatcher is there: a run starts when the test says so.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import asyncpg
import grpc
import pytest
from tidewheel.v1 import calendar_service_pb2, job_pb2, operation_pb2
from tidewheel.v1.job_service_pb2 import (
    BackfillJobRequest,
    DeleteJobRequest,
    PauseJobRequest,
    UpdateJobRequest,
)
from tidewheel.v1.operation_service_pb2 import CancelOperationRequest, GetOperationRequest
from tidewheel.v1.run_service_pb2 import ListRunsRequest

from tests.support.control_plane import ControlPlane, refused
from tests.support.polling import eventually

US = 1_000_000
RUNNING, SUCCEEDED, CANCELED, FAILED = (
    operation_pb2.OPERATION_STATE_RUNNING,
    operation_pb2.OPERATION_STATE_SUCCEEDED,
    operation_pb2.OPERATION_STATE_CANCELED,
    operation_pb2.OPERATION_STATE_FAILED,
)
HOURLY = job_pb2.Schedule(cron=["0 * * * *"])


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * US)


def request(name: str, begin: str, end: str, **fields: Any) -> BackfillJobRequest:
    bounds = {"from": {"seconds": at(begin) // US}, "to": {"seconds": at(end) // US}}
    return BackfillJobRequest(name=name, **bounds, **fields)


async def backfill(plane: ControlPlane, name: str, begin: str, end: str, **fields: Any) -> operation_pb2.Operation:
    answer: operation_pb2.Operation = await plane.jobs.BackfillJob(request(name, begin, end, **fields))
    return answer


async def look(plane: ControlPlane, operation: operation_pb2.Operation) -> operation_pb2.Operation:
    answer: operation_pb2.Operation = await plane.operations.GetOperation(
        GetOperationRequest(operation_id=operation.operation_id)
    )
    return answer


async def reaches(plane: ControlPlane, operation: operation_pb2.Operation, state: int) -> operation_pb2.Operation:
    async def there() -> bool:
        return (await look(plane, operation)).state == state

    await eventually(there, within_s=60)
    return await look(plane, operation)


async def runs(eye: asyncpg.Connection) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await eye.fetch("SELECT * FROM runs ORDER BY scheduled_for_us, run_id")
    return rows


async def start_all(eye: asyncpg.Connection, where: str = "TRUE") -> None:
    await eye.execute(
        f"UPDATE runs SET state = 3, attempt = 1, ended_us = 5, not_before_us = 0 WHERE state = 1 AND {where}"
    )


class TestARange:
    async def test_gets_a_run_for_each_occurrence_and_a_due_row_for_each_run(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        job = await plane.create("hourly", schedule=HOURLY, payload=b"x")
        operation = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T05:00", note="lost day")
        assert (operation.total, operation.subject, operation.note) == (5, "hourly", "lost day")
        assert operation.kind == operation_pb2.OPERATION_KIND_BACKFILL
        made = await runs(eye)
        assert [row["scheduled_for_us"] for row in made] == [at(f"2020-01-01T{hour:02}:00") for hour in range(5)]
        assert {(row["cause"], row["state"], row["job_version"], row["gated"]) for row in made} == {(3, 1, 1, True)}
        assert {str(row["operation_id"]) for row in made} == {operation.operation_id}
        assert {str(row["job_id"]) for row in made} == {job.job_id}
        due = await eye.fetch("SELECT id, kind, due_at_us, scheduled_for_us FROM due WHERE kind = 2")
        assert {(row["id"], row["due_at_us"]) for row in due} == {(row["run_id"], row["due_at_us"]) for row in made}

    async def test_becomes_due_at_the_rate(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        operation = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T05:00", runs_per_second=0.5)
        begun_us = operation.create_time.ToMicroseconds()
        assert [row["due_at_us"] - begun_us for row in await runs(eye)] == [n * 2 * US for n in range(5)]

    async def test_is_made_no_longer_ahead_than_a_minute(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("minutely", schedule=job_pb2.Schedule(cron=["* * * * *"]))
        operation = await backfill(
            plane, "minutely", "2020-01-01T00:00", "2020-01-01T15:00", runs_per_second=1, max_runs=1000
        )
        assert (operation.total, operation.state) == (900, RUNNING)
        # The first two hundred reach further than a minute ahead: there the making rests, and the looking goes on.
        await start_all(eye, f"scheduled_for_us = {at('2020-01-01T00:00')}")

        async def seen() -> bool:
            return (await look(plane, operation)).done == 1

        await eventually(seen)
        assert len(await runs(eye)) == 200

    async def test_over_a_change_of_clocks_has_the_gap_and_the_repeat_as_the_schedule_has_them(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        """New York sprang forward on 8 March 2020 at 02:00, and fell back on 1 November at 02:00."""
        zone = "America/New_York"
        await plane.create("early", schedule=job_pb2.Schedule(cron=["30 2 * * *"], zone=zone))
        await backfill(plane, "early", "2020-03-07T05:00", "2020-03-10T05:00")
        assert [row["scheduled_for_us"] for row in await runs(eye)] == [
            at("2020-03-07T07:30"),
            at("2020-03-08T07:00"),
            at("2020-03-09T06:30"),
        ]
        await eye.execute("DELETE FROM runs")
        twice = job_pb2.Schedule(cron=["30 1 * * *"], zone=zone, repeat=job_pb2.REPEAT_RULE_BOTH)
        await plane.create("twice", schedule=twice)
        await backfill(plane, "twice", "2020-10-31T04:00", "2020-11-03T05:00")
        assert [row["scheduled_for_us"] for row in await runs(eye)] == [
            at("2020-10-31T05:30"),
            at("2020-11-01T05:30"),
            at("2020-11-01T06:30"),
            at("2020-11-02T06:30"),
        ]

    async def test_leaves_out_what_a_calendar_takes_away(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        days = calendar_service_pb2.DaysOff(days=[calendar_service_pb2.DayOff(date="2020-01-02")])
        await plane.calendars.CreateCalendar(
            calendar_service_pb2.CreateCalendarRequest(
                calendar=calendar_service_pb2.Calendar(name="off", days_off=days)
            )
        )
        schedule = job_pb2.Schedule(cron=["0 3 * * *"], exclude=job_pb2.Exclusions(calendars=["off"]))
        await plane.create("nightly", schedule=schedule)
        operation = await backfill(plane, "nightly", "2020-01-01T00:00", "2020-01-04T00:00")
        assert operation.total == 2
        assert [row["scheduled_for_us"] for row in await runs(eye)] == [at("2020-01-01T03:00"), at("2020-01-03T03:00")]

    async def test_side_by_side_is_not_gated(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T02:00", overlap=job_pb2.OVERLAP_POLICY_ALLOW)
        assert {row["gated"] for row in await runs(eye)} == {False}

    async def test_of_a_paused_job_is_made(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="hourly"))
        await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T02:00")
        assert len(await runs(eye)) == 2

    async def test_uses_the_version_that_stood_when_it_was_asked_for(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("minutely", schedule=job_pb2.Schedule(cron=["* * * * *"]))
        asked = {"runs_per_second": 1000, "max_runs": 1000}
        operation = await backfill(plane, "minutely", "2020-01-01T00:00", "2020-01-01T10:00", **asked)
        await plane.jobs.UpdateJob(
            UpdateJobRequest(job=job_pb2.Job(name="minutely", schedule=HOURLY), update_mask={"paths": ["schedule"]})
        )

        async def all_made() -> bool:
            return len(await runs(eye)) == 600

        await eventually(all_made, within_s=60)
        assert {row["job_version"] for row in await runs(eye)} == {1}
        assert (await look(plane, operation)).description.endswith("600 runs made")


class TestOccurrencesThatHaveARun:
    async def test_are_left_out_and_a_backfill_repeated_makes_nothing(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("hourly", schedule=HOURLY)
        bounds = ("hourly", "2020-01-01T00:00", "2020-01-01T04:00")
        await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T02:00")
        second = await backfill(plane, *bounds)
        assert second.total == 2
        assert len(await runs(eye)) == 4
        assert (await backfill(plane, *bounds, validate_only=True)).total == 0
        third = await backfill(plane, *bounds, include_run=True)
        assert third.total == 4
        assert len(await runs(eye)) == 8

    async def test_a_repeated_request_is_the_same_operation(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        bounds = ("hourly", "2020-01-01T00:00", "2020-01-01T04:00")
        first = await backfill(plane, *bounds, request_id="r-1")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="hourly"))
        again = await backfill(plane, *bounds, request_id="r-1")
        assert again.operation_id == first.operation_id
        assert len(await runs(eye)) == 4


class TestItsEnd:
    async def test_comes_when_every_run_has_started(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        operation = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T05:00")
        assert (operation.state, operation.done) == (RUNNING, 0)
        await start_all(eye, f"scheduled_for_us < {at('2020-01-01T02:00')}")

        async def two_done() -> bool:
            return (await look(plane, operation)).done == 2

        await eventually(two_done)
        await start_all(eye)
        ended = await reaches(plane, operation, SUCCEEDED)
        assert (ended.done, ended.total, ended.unchanged, ended.error) == (5, 5, 0, "")

    async def test_by_a_cancel_takes_back_what_has_not_started(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("minutely", schedule=job_pb2.Schedule(cron=["* * * * *"]))
        operation = await backfill(plane, "minutely", "2020-01-01T00:00", "2020-01-01T15:00", runs_per_second=1)
        await start_all(eye, f"scheduled_for_us < {at('2020-01-01T00:07')}")
        await plane.operations.CancelOperation(
            CancelOperationRequest(operation_id=operation.operation_id, note="wrong day")
        )
        canceled = await reaches(plane, operation, CANCELED)
        assert canceled.description.endswith("200 runs made, 193 of them taken back")
        made = await runs(eye)
        assert [row["state"] for row in made] == [3] * 7 + [6] * 193
        assert all(row["cancel_requested_us"] == row["ended_us"] > 0 for row in made[7:])
        # What was taken back can be asked for again.
        again = await backfill(plane, "minutely", "2020-01-01T00:00", "2020-01-01T00:10")
        assert again.total == 3

    async def test_by_the_jobs_deletion_says_so(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        """Also while the making rests: of 900 runs, one a second, the first 200 are made at once."""
        await plane.create("minutely", schedule=job_pb2.Schedule(cron=["* * * * *"]))
        operation = await backfill(plane, "minutely", "2020-01-01T00:00", "2020-01-01T15:00", runs_per_second=1)
        assert operation.state == RUNNING
        await plane.jobs.DeleteJob(DeleteJobRequest(name="minutely"))
        ended = await reaches(plane, operation, FAILED)
        assert ended.error == "the job was deleted meanwhile"
        assert [row["state"] for row in await runs(eye)] == [1] * 200

    async def test_by_its_runs_start_when_the_job_was_deleted_after_all_were_made(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("hourly", schedule=HOURLY)
        operation = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T05:00")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="hourly"))
        await start_all(eye)
        assert (await reaches(plane, operation, SUCCEEDED)).done == 5


class TestAsking:
    async def test_only_counts(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("hourly", schedule=HOURLY)
        counted = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-11T00:00", validate_only=True)
        assert (counted.total, counted.operation_id, counted.state) == (240, "", 0)
        assert await runs(eye) == []
        assert await eye.fetchval("SELECT count(*) FROM operations") == 0

    @pytest.mark.parametrize("validate_only", [True, False])
    async def test_for_more_than_the_cap_is_refused(
        self, plane: ControlPlane, eye: asyncpg.Connection, validate_only: bool
    ) -> None:
        await plane.create("hourly", schedule=HOURLY)
        wish = request("hourly", "2020-01-01T00:00", "2020-01-02T00:00", max_runs=23, validate_only=validate_only)
        refusal = await refused(plane.jobs.BackfillJob(wish))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "more than 23" in refusal.message
        assert await runs(eye) == []

    async def test_the_default_cap_is_a_thousand(self, plane: ControlPlane) -> None:
        await plane.create("hourly", schedule=HOURLY)
        wish = request("hourly", "2020-01-01T00:00", "2020-03-01T00:00", validate_only=True)
        assert "more than 1000" in (await refused(plane.jobs.BackfillJob(wish))).message

    async def test_of_a_job_that_is_gone_or_was_never_there_is_not_found(self, plane: ControlPlane) -> None:
        await plane.create("gone", schedule=HOURLY)
        await plane.jobs.DeleteJob(DeleteJobRequest(name="gone"))
        for name in ("gone", "never"):
            refusal = await refused(backfill(plane, name, "2020-01-01T00:00", "2020-01-02T00:00"))
            assert refusal.code is grpc.StatusCode.NOT_FOUND

    async def test_of_a_job_without_a_schedule_is_refused(self, plane: ControlPlane) -> None:
        await plane.create("by-hand")
        refusal = await refused(backfill(plane, "by-hand", "2020-01-01T00:00", "2020-01-02T00:00"))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION

    async def test_bad_input_is_named_field_by_field(self, plane: ControlPlane) -> None:
        await plane.create("hourly", schedule=HOURLY)
        good = request("hourly", "2020-01-01T00:00", "2020-01-02T00:00")
        cases = {
            "to": request("hourly", "2020-01-02T00:00", "2020-01-02T00:00"),
            "max_runs": request("hourly", "2020-01-01T00:00", "2020-01-02T00:00", max_runs=100_001),
            "overlap": request("hourly", "2020-01-01T00:00", "2020-01-02T00:00", overlap=job_pb2.OVERLAP_POLICY_SKIP),
            "name": request("no good", "2020-01-01T00:00", "2020-01-02T00:00"),
        }
        future = request("hourly", "2020-01-01T00:00", "2150-01-02T00:00")
        for field, wish in [*cases.items(), ("to", future)]:
            refusal = await refused(plane.jobs.BackfillJob(wish))
            assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
        for rate in (-1.0, 1000.5, math.nan, math.inf):
            good.runs_per_second = rate
            assert list((await refused(plane.jobs.BackfillJob(good))).fields) == ["runs_per_second"]
        refusal = await refused(plane.jobs.BackfillJob(BackfillJobRequest(name="hourly")))
        assert set(refusal.fields) == {"from", "to"}


async def test_the_runs_of_a_backfill_say_what_they_are(plane: ControlPlane) -> None:
    await plane.create("hourly", schedule=HOURLY)
    operation = await backfill(plane, "hourly", "2020-01-01T00:00", "2020-01-01T01:00")
    (run,) = (await plane.runs.ListRuns(ListRunsRequest(job="hourly"))).runs
    assert run.operation_id == operation.operation_id
    assert run.scheduled_for.ToJsonString() == "2020-01-01T00:00:00Z"
