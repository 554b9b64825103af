"""PauseJobs and ResumeJobs over a real server and database: counted, agreed to, done as one operation."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
from tidewheel.v1 import job_pb2, operation_pb2
from tidewheel.v1.job_service_pb2 import (
    PAUSED_OCCURRENCES_CATCH_UP,
    JobSelector,
    PauseJobRequest,
    PauseJobsRequest,
    ResumeJobRequest,
    ResumeJobsRequest,
)
from tidewheel.v1.operation_service_pb2 import (
    CancelOperationRequest,
    GetOperationRequest,
    ListOperationsRequest,
)

from core.states import JobState
from tests.support.control_plane import ControlPlane, refused, settings_for
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer

MINUTELY = job_pb2.Schedule(cron=["* * * * *"])
SUCCEEDED = operation_pb2.OPERATION_STATE_SUCCEEDED


async def make_jobs(plane: ControlPlane, count: int, prefix: str = "job", **labels: str) -> None:
    async def one(number: int) -> None:
        await plane.create(f"{prefix}-{number:04}", schedule=MINUTELY, labels=labels)

    for start in range(0, count, 50):
        await asyncio.gather(*(one(number) for number in range(start, min(count, start + 50))))


async def pause(plane: ControlPlane, expected: int, request_id: str = "", **labels: str) -> Any:
    request = PauseJobsRequest(
        selector=JobSelector(labels=labels), expected_count=expected, note="storm", request_id=request_id
    )
    return await plane.jobs.PauseJobs(request)


async def resume(plane: ControlPlane, expected: int, paused: int = 0, **labels: str) -> Any:
    request = ResumeJobsRequest(
        selector=JobSelector(labels=labels), expected_count=expected, note="calm", paused=paused
    )
    return await plane.jobs.ResumeJobs(request)


async def operation(plane: ControlPlane, operation_id: str) -> operation_pb2.Operation:
    answer: operation_pb2.Operation = await plane.operations.GetOperation(
        GetOperationRequest(operation_id=operation_id)
    )
    return answer


async def ended(plane: ControlPlane, operation_id: str) -> operation_pb2.Operation:
    async def has_ended() -> bool:
        return (await operation(plane, operation_id)).HasField("end_time")

    await eventually(has_ended, within_s=90)
    return await operation(plane, operation_id)


async def states(eye: asyncpg.Connection) -> dict[JobState, int]:
    rows = await eye.fetch("SELECT state, count(*) AS n FROM jobs GROUP BY state")
    return {JobState(row["state"]): row["n"] for row in rows}


class TestAsking:
    async def test_counts_and_names_the_first_and_changes_nothing(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 30, team="a")
        await make_jobs(plane, 3, "other", team="b")
        await plane.jobs.PauseJob(PauseJobRequest(name="job-0000"))
        answer = await plane.jobs.PauseJobs(
            PauseJobsRequest(selector=JobSelector(labels={"team": "a"}), validate_only=True)
        )
        assert answer.count == 29
        assert list(answer.names) == [f"job-{n:04}" for n in range(1, 21)]
        assert not answer.HasField("operation")
        assert await states(eye) == {JobState.ACTIVE: 32, JobState.PAUSED: 1}
        assert await eye.fetchval("SELECT count(*) FROM operations") == 0

    async def test_a_count_that_is_no_longer_right_is_refused(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 3)
        refusal = await refused(pause(plane, 2))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "STALE_COUNT")
        assert await states(eye) == {JobState.ACTIVE: 3}

    async def test_needs_the_count_and_a_note(self, plane: ControlPlane) -> None:
        refusal = await refused(plane.jobs.PauseJobs(PauseJobsRequest(selector=JobSelector(namespace="No"))))
        assert set(refusal.fields) == {"selector.namespace", "expected_count", "note"}
        refusal = await refused(
            plane.jobs.ResumeJobs(ResumeJobsRequest(validate_only=True, selector=JobSelector(labels={"?": "x"})))
        )
        assert [field.partition("[")[0] for field in refusal.fields] == ["selector.labels"]


class TestPausing:
    async def test_reaches_the_selected_jobs_only_with_versions_notes_and_records(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 5, team="a", tier="1")
        await make_jobs(plane, 2, "other", team="b", tier="1")
        answer = await pause(plane, 5, team="a", tier="1")
        assert (answer.count, answer.operation.state) == (5, SUCCEEDED)
        assert (answer.operation.done, answer.operation.total) == (5, 5)
        assert answer.operation.description == ("pause the jobs of namespace 'default' with team=a, tier=1")
        assert await states(eye) == {JobState.ACTIVE: 2, JobState.PAUSED: 5}
        versions = await eye.fetch("SELECT note, author FROM job_versions WHERE version = 2")
        assert [tuple(row) for row in versions] == [("storm", "unauthenticated")] * 5
        actions = await eye.fetch("SELECT action, count(*) AS n FROM audit GROUP BY action ORDER BY action")
        assert [tuple(row) for row in actions] == [("job.create", 7), ("job.pause", 5), ("jobs.pause", 1)]

    async def test_of_the_whole_namespace_leaves_other_namespaces_alone(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 3)
        await plane.create("theirs", namespace="other", schedule=MINUTELY)
        await pause(plane, 3)
        assert await states(eye) == {JobState.ACTIVE: 1, JobState.PAUSED: 3}

    async def test_keeps_the_payload(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=MINUTELY, payload=b"\x00\xff")
        await pause(plane, 1)
        job = await plane.get("a")
        assert (job.state, job.version, job.payload) == (job_pb2.JOB_STATE_PAUSED, 2, b"\x00\xff")

    async def test_a_repeat_is_the_same_operation_and_is_not_counted_again(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 3)
        first = await pause(plane, 3, request_id="r-1")
        await plane.jobs.ResumeJob(ResumeJobRequest(name="job-0001"))
        again = await pause(plane, 3, request_id="r-1")
        assert again == first
        assert await states(eye) == {JobState.ACTIVE: 1, JobState.PAUSED: 2}
        assert await eye.fetchval("SELECT count(*) FROM operations") == 1

    async def test_a_job_that_cannot_be_read_is_paused_all_the_same(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 3)
        await eye.execute(
            """UPDATE job_versions SET spec = spec - 'handler'
               WHERE job_id = (SELECT job_id FROM jobs WHERE name = 'job-0001')"""
        )
        answer = await pause(plane, 3)
        assert answer.operation.state == SUCCEEDED
        assert await states(eye) == {JobState.PAUSED: 3}
        # It cannot be resumed: that is told, and the others are resumed.
        answer = await resume(plane, 3)
        assert answer.operation.state == SUCCEEDED
        assert (answer.operation.done, answer.operation.unchanged) == (3, 1)
        assert "job 'job-0001'" in answer.operation.error
        assert await states(eye) == {JobState.ACTIVE: 2, JobState.PAUSED: 1}


class TestManyJobs:
    async def test_five_hundred_are_paused_by_label_and_resumed_with_catch_up(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 500, team="a")
        await make_jobs(plane, 5, "other")
        answer = await pause(plane, 500, team="a")
        paused = await ended(plane, answer.operation.operation_id)
        assert (paused.state, paused.done, paused.unchanged) == (SUCCEEDED, 500, 0)
        assert await states(eye) == {JobState.ACTIVE: 5, JobState.PAUSED: 500}
        begun_us = dict(await eye.fetch("SELECT job_id, from_us FROM job_versions WHERE version = 2"))
        answer = await resume(plane, 500, PAUSED_OCCURRENCES_CATCH_UP, team="a")
        resumed = await ended(plane, answer.operation.operation_id)
        assert (resumed.state, resumed.done) == (SUCCEEDED, 500)
        assert await states(eye) == {JobState.ACTIVE: 505}
        rows = await eye.fetch(
            """SELECT v.job_id, v.from_us, d.scheduled_for_us FROM job_versions v
               JOIN due d ON d.job_id = v.job_id AND d.job_version = 3 WHERE v.version = 3"""
        )
        # The chain of each goes on where its pause began.
        assert len(rows) == 500
        assert all(row["from_us"] == begun_us[row["job_id"]] for row in rows)
        assert all(0 < row["scheduled_for_us"] - row["from_us"] <= 60_000_000 for row in rows)

    async def test_resumed_without_catch_up_their_pauses_are_recorded(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await make_jobs(plane, 4)
        await pause(plane, 4)
        # Pauses of an hour.
        hour_us = 3_600_000_000
        await eye.execute("UPDATE job_versions SET cutover_us = cutover_us - $1, from_us = from_us - $1", hour_us)
        await eye.execute("UPDATE jobs SET cutover_us = cutover_us - $1", hour_us)
        await resume(plane, 4)
        skips = await eye.fetch(
            """SELECT s.reason, s.job_version, s.from_us, s.to_us, p.from_us AS began_us, r.cutover_us AS ended_us
               FROM skips s
               JOIN job_versions p ON p.job_id = s.job_id AND p.version = 2
               JOIN job_versions r ON r.job_id = s.job_id AND r.version = 3"""
        )
        assert [(row["reason"], row["job_version"]) for row in skips] == [(4, 2)] * 4
        minute_us = 60_000_000
        for row in skips:
            assert row["from_us"] == (row["began_us"] // minute_us + 1) * minute_us, "the first minute of the pause"
            assert row["to_us"] == row["ended_us"] // minute_us * minute_us, "the last one"
            assert row["to_us"] - row["from_us"] >= 59 * minute_us

    async def test_an_operation_is_finished_by_another_replica_when_its_own_dies(
        self, database_url: str, isolation: str, etcd: EtcdServer, eye: asyncpg.Connection
    ) -> None:
        """It stands still in the middle, at a job that somebody holds, when its replica dies."""
        cluster = uuid4().hex
        first = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, cluster))
        await first.serving()
        await make_jobs(first, 350)
        held = eye.transaction()
        await held.start()
        await eye.execute("SELECT version FROM jobs WHERE name = 'job-0150' FOR UPDATE")
        answer = await pause(first, 350)
        operation_id = answer.operation.operation_id
        assert (answer.operation.state, answer.operation.done) == (operation_pb2.OPERATION_STATE_RUNNING, 100)
        first.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first.task
        await first.channel.close()
        await held.rollback()
        assert await states(eye) == {JobState.ACTIVE: 250, JobState.PAUSED: 100}
        second = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, cluster))
        try:
            await second.serving()
            done = await ended(second, operation_id)
            assert (done.state, done.done, done.unchanged) == (SUCCEEDED, 350, 0)
            assert await states(eye) == {JobState.PAUSED: 350}
            assert await eye.fetchval("SELECT count(*) FROM job_versions WHERE version = 2") == 350
            assert await eye.fetchval("SELECT max(version) FROM jobs") == 2
        finally:
            await second.close()

    async def test_a_cancel_stops_what_has_not_been_done(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await make_jobs(plane, 250)
        held = eye.transaction()
        await held.start()
        await eye.execute("SELECT version FROM jobs WHERE name = 'job-0150' FOR UPDATE")
        answer = await pause(plane, 250)
        await plane.operations.CancelOperation(
            CancelOperationRequest(operation_id=answer.operation.operation_id, note="no")
        )
        await held.rollback()
        canceled = await ended(plane, answer.operation.operation_id)
        assert canceled.state == operation_pb2.OPERATION_STATE_CANCELED
        assert await states(eye) == {JobState.ACTIVE: 150, JobState.PAUSED: 100}
        refusal = await refused(
            resume(plane, 1)  # a hundred are paused
        )
        assert refusal.reason == "STALE_COUNT"


class TestOperations:
    async def test_are_listed_newest_first_in_pages(self, plane: ControlPlane) -> None:
        for number in range(3):
            await plane.create(f"job-{number}", schedule=MINUTELY)
            await pause(plane, 1)
        first = await plane.operations.ListOperations(ListOperationsRequest(page_size=2))
        assert len(first.operations) == 2
        rest = await plane.operations.ListOperations(
            ListOperationsRequest(page_size=2, page_token=first.next_page_token)
        )
        listed = [*first.operations, *rest.operations]
        assert rest.next_page_token == ""
        times = [each.create_time.ToNanoseconds() for each in listed]
        assert (len(listed), times) == (3, sorted(times, reverse=True))

    async def test_of_another_namespace_are_not_found(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=MINUTELY)
        operation_id = (await pause(plane, 1)).operation.operation_id
        for call in (
            plane.operations.GetOperation(GetOperationRequest(namespace="other", operation_id=operation_id)),
            plane.operations.CancelOperation(CancelOperationRequest(namespace="other", operation_id=operation_id)),
        ):
            assert (await refused(call)).code is grpc.StatusCode.NOT_FOUND

    async def test_that_have_ended_cannot_be_canceled(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=MINUTELY)
        operation_id = (await pause(plane, 1)).operation.operation_id
        refusal = await refused(plane.operations.CancelOperation(CancelOperationRequest(operation_id=operation_id)))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION

    async def test_that_cannot_go_on_fail_with_their_reason(
        self, plane: ControlPlane, eye: asyncpg.Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A spec that no step can read: it is tried again, later each time, and then given up."""
        await plane.create("a", schedule=MINUTELY)
        await eye.execute(
            """INSERT INTO operations (namespace, operation_id, kind, state, subject, spec, progress, done, total,
                                       unchanged, created_us, updated_us, author, note)
               SELECT 'default', $1, 2, 1, '', $2, '', 0, 1, 0, created_us, created_us, '', '' FROM jobs""",
            uuid4(),
            json.dumps({"labels": None, "caught_up": False}),
        )
        operation_id = await eye.fetchval("SELECT CAST(operation_id AS TEXT) FROM operations")
        failed = await ended(plane, operation_id)
        assert failed.state == operation_pb2.OPERATION_STATE_FAILED
        assert "a step failed 5 times" in failed.error
        assert "Traceback" in caplog.text
