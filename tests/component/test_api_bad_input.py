"""Bad input: each call gets the fitting code with the field named, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2
from tidewheel.v1.job_pb2 import CatchUpPolicy, Interval, Job, RetryPolicy, Schedule
from tidewheel.v1.job_service_pb2 import (
    CompareJobVersionsRequest,
    CreateJobRequest,
    DeleteJobRequest,
    GetJobRequest,
    ListJobsRequest,
    ListJobVersionsRequest,
    PauseJobRequest,
    RestoreJobVersionRequest,
    ResumeJobRequest,
    TriggerJobRequest,
    UpdateJobRequest,
)
from tidewheel.v1.run_service_pb2 import CancelRunRequest, GetRunRequest, ListRunsRequest

from tests.support.bad_input import INVALID, all_refused, cron, rows
from tests.support.control_plane import ControlPlane, refused

# What is wrong with a creation, and the field that must be named.
BAD_JOBS: list[tuple[str, dict[str, Any]]] = [
    ("job.name", {"name": ""}),
    ("job.name", {"name": "a/b"}),
    ("job.name", {"name": " a"}),
    ("job.name", {"name": ".."}),
    ("job.name", {"name": "a?b#c"}),
    ("job.name", {"name": "ä"}),
    ("job.name", {"name": "n" * 129}),
    ("job.name", {"name": "a\n"}),
    ("job.namespace", {"namespace": "Upper"}),
    ("job.namespace", {"namespace": "9a"}),
    ("job.handler", {"handler": ""}),
    ("job.handler", {"handler": "a b"}),
    ("job.queue", {"queue": "a/b"}),
    ("job.payload", {"payload": b"x" * 262_145}),
    ("job.payload_type", {"payload_type": "x" * 129}),
    ("job.description", {"description": "x" * 1025}),
    ("job.description", {"description": "a\0b"}),
    ("job.contact", {"contact": "x" * 257}),
    ("job.labels", {"labels": {"a b": "c"}}),
    ("job.labels", {"labels": {f"k{n}": "" for n in range(33)}}),
    ("job.labels[k]", {"labels": {"k": "x" * 129}}),
    ("job.start_to_close_timeout", {"start_to_close_timeout": Duration(seconds=-1)}),
    ("job.start_to_close_timeout", {"start_to_close_timeout": Duration(seconds=0)}),
    ("job.start_to_close_timeout", {"start_to_close_timeout": Duration(seconds=7 * 86_400 + 1)}),
    ("job.retry.max_attempts", {"retry": RetryPolicy(max_attempts=101)}),
    ("job.retry.max_attempts", {"retry": RetryPolicy(max_attempts=-1)}),
    ("job.retry.first_delay", {"retry": RetryPolicy(first_delay=Duration(nanos=-1))}),
    ("job.retry.first_delay", {"retry": RetryPolicy(first_delay=Duration(seconds=9), max_delay=Duration(seconds=8))}),
    ("job.retry.max_delay", {"retry": RetryPolicy(max_delay=Duration(seconds=2**40))}),
    ("job.retry.factor", {"retry": RetryPolicy(factor=0.5)}),
    ("job.retry.factor", {"retry": RetryPolicy(factor=float("nan"))}),
    ("job.retry.jitter", {"retry": RetryPolicy(jitter=0.6)}),
    ("job.overlap", {"overlap": 99}),
    ("job.catch_up.mode", {"catch_up": CatchUpPolicy(mode=99)}),
    ("job.catch_up.grace", {"catch_up": CatchUpPolicy(grace=Duration(seconds=8 * 86_400))}),
    ("job.catch_up.grace", {"catch_up": CatchUpPolicy(grace=Duration(nanos=1))}),
    ("job.catch_up.max_runs", {"catch_up": CatchUpPolicy(max_runs=-1)}),
    ("job.catch_up.max_runs", {"catch_up": CatchUpPolicy(max_runs=1001)}),
    ("job.catch_up.window", {"catch_up": CatchUpPolicy(window=Duration(seconds=-1))}),
    ("job.catch_up.window", {"catch_up": CatchUpPolicy(window=Duration(seconds=366 * 86_400 + 1))}),
    ("job.catch_up.order", {"catch_up": CatchUpPolicy(order=9)}),
    ("job.max_buffered", {"max_buffered": -1}),
    ("job.max_buffered", {"max_buffered": 1001}),
]


async def test_a_creation_names_the_field_at_fault_and_changes_nothing(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    await all_refused(plane, eye, BAD_JOBS)


async def test_every_fault_of_a_request_is_told_at_once(plane: ControlPlane) -> None:
    refusal = await refused(
        plane.jobs.CreateJob(
            CreateJobRequest(
                job=Job(
                    namespace="BAD",
                    name="a/b",
                    queue="a b",
                    retry=RetryPolicy(factor=99),
                    schedule=cron("* * * * *", zone="Nowhere"),
                ),
                request_id="\x01",
            )
        )
    )
    assert set(refusal.fields) == {
        *("job.namespace", "job.name", "job.handler", "job.queue", "job.retry.factor", "job.schedule.zone"),
        "request_id",
    }


MISSING_RUN = "00000000-0000-4000-8000-000000000000"
MASKED = FieldMask(paths=["handler"])

OTHER_CALLS: list[tuple[str, Callable[[ControlPlane], Any]]] = [
    ("update_mask", lambda p: p.jobs.UpdateJob(UpdateJobRequest(job=Job(name="a")))),
    ("update_mask", lambda p: p.jobs.UpdateJob(_update("handlr"))),
    ("update_mask", lambda p: p.jobs.UpdateJob(_update("name"))),
    ("update_mask", lambda p: p.jobs.UpdateJob(_update("schedule.cron"))),
    ("update_mask", lambda p: p.jobs.UpdateJob(_update("handler", "state"))),
    ("job.handler", lambda p: p.jobs.UpdateJob(UpdateJobRequest(job=Job(name="a"), update_mask=MASKED))),
    ("job.name", lambda p: p.jobs.UpdateJob(UpdateJobRequest(job=Job(handler="x"), update_mask=MASKED))),
    ("note", lambda p: p.jobs.PauseJob(PauseJobRequest(name="a", note="x" * 1025))),
    ("note", lambda p: p.jobs.PauseJob(PauseJobRequest(name="a", note="\0"))),
    ("request_id", lambda p: p.jobs.PauseJob(PauseJobRequest(name="a", request_id="x" * 129))),
    ("request_id", lambda p: p.jobs.PauseJob(PauseJobRequest(name="a", request_id="ü"))),
    ("paused", lambda p: p.jobs.ResumeJob(ResumeJobRequest(name="a", paused=9))),
    ("version", lambda p: p.jobs.RestoreJobVersion(RestoreJobVersionRequest(name="a"))),
    ("version", lambda p: p.jobs.RestoreJobVersion(RestoreJobVersionRequest(name="a", version=-1))),
    ("name", lambda p: p.jobs.RestoreJobVersion(RestoreJobVersionRequest(version=1))),
    ("from_version", lambda p: p.jobs.CompareJobVersions(CompareJobVersionsRequest(name="a"))),
    ("to_version", lambda p: p.jobs.CompareJobVersions(_compared(1, -1))),
    ("name", lambda p: p.jobs.ListJobVersions(ListJobVersionsRequest())),
    ("page_size", lambda p: p.jobs.ListJobVersions(ListJobVersionsRequest(name="a", page_size=1001))),
    ("page_token", lambda p: p.jobs.ListJobVersions(ListJobVersionsRequest(name="a", page_token="nonsense"))),
    ("name", lambda p: p.jobs.DeleteJob(DeleteJobRequest(name=""))),
    ("name", lambda p: p.jobs.GetJob(GetJobRequest())),
    ("name", lambda p: p.jobs.GetJob(GetJobRequest(name="a", job_id=MISSING_RUN))),
    ("job_id", lambda p: p.jobs.GetJob(GetJobRequest(job_id="7"))),
    ("page_size", lambda p: p.jobs.ListJobs(ListJobsRequest(page_size=-1))),
    ("page_size", lambda p: p.jobs.ListJobs(ListJobsRequest(page_size=1001))),
    ("page_token", lambda p: p.jobs.ListJobs(ListJobsRequest(page_token="nonsense"))),
    ("page_token", lambda p: p.jobs.ListJobs(ListJobsRequest(page_token="AQ" * 40))),
    ("page_token", lambda p: p.jobs.ListJobs(ListJobsRequest(page_token="ü"))),
    ("name_prefix", lambda p: p.jobs.ListJobs(ListJobsRequest(name_prefix="a%"))),
    ("delay", lambda p: p.jobs.TriggerJob(TriggerJobRequest(name="a", delay=Duration(seconds=-1)))),
    ("delay", lambda p: p.jobs.TriggerJob(TriggerJobRequest(name="a", delay=Duration(seconds=367 * 86_400)))),
    ("payload", lambda p: p.jobs.TriggerJob(TriggerJobRequest(name="a", payload=b"x" * 262_145))),
    ("run_id", lambda p: p.runs.GetRun(GetRunRequest(run_id="../x"))),
    ("run_id", lambda p: p.runs.CancelRun(CancelRunRequest(run_id=""))),
    ("job", lambda p: p.runs.ListRuns(ListRunsRequest())),
    ("job", lambda p: p.runs.ListRuns(ListRunsRequest(job="a", job_id=MISSING_RUN))),
    ("states", lambda p: p.runs.ListRuns(ListRunsRequest(job="a", states=[0]))),
    ("states", lambda p: p.runs.ListRuns(ListRunsRequest(job="a", states=[77]))),
    ("to", lambda p: p.runs.ListRuns(ListRunsRequest(job="a", to=Timestamp(seconds=-5)))),
    ("page_token", lambda p: p.runs.ListRuns(ListRunsRequest(job="a", page_token="nonsense"))),
]


def _compared(from_version: int, to_version: int) -> CompareJobVersionsRequest:
    return CompareJobVersionsRequest(name="a", from_version=from_version, to_version=to_version)


def _update(*paths: str) -> UpdateJobRequest:
    return UpdateJobRequest(job=Job(name="a", handler="x"), update_mask=FieldMask(paths=paths))


async def test_other_calls_name_the_field_at_fault_and_change_nothing(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    await plane.create("a", schedule=cron("0 0 * * *"))
    before = await rows(eye)
    for number, (field, call) in enumerate(OTHER_CALLS):
        refusal = await refused(call(plane))
        assert (refusal.code, list(refusal.fields)) == (INVALID, [field]), f"case {number}: {refusal}"
    assert await rows(eye) == before


async def test_what_is_not_there_is_not_found(plane: ControlPlane) -> None:
    for call in (
        plane.get("nobody"),
        plane.jobs.PauseJob(PauseJobRequest(name="nobody")),
        plane.jobs.TriggerJob(TriggerJobRequest(name="nobody")),
        plane.jobs.GetJob(GetJobRequest(job_id=MISSING_RUN)),
        plane.jobs.ListJobVersions(ListJobVersionsRequest(name="nobody")),
        plane.jobs.CompareJobVersions(_compared(1, 0)),
        plane.jobs.RestoreJobVersion(RestoreJobVersionRequest(name="a", version=1)),
        plane.runs.GetRun(GetRunRequest(run_id=MISSING_RUN)),
        plane.runs.CancelRun(CancelRunRequest(run_id=MISSING_RUN)),
        plane.runs.ListRuns(ListRunsRequest(job="nobody")),
        plane.runs.ListRuns(ListRunsRequest(job_id=MISSING_RUN)),
    ):
        assert (await refused(call)).code is grpc.StatusCode.NOT_FOUND


async def test_a_field_that_the_server_does_not_know_is_refused(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    """A newer client's wish is not dropped without a word (B119's rule, on the wire)."""
    unknown = b"\xba\x3e\x01x"  # field 999, one byte
    job = Job(name="new", handler="h", retry=RetryPolicy.FromString(unknown))
    refusal = await refused(plane.jobs.CreateJob(CreateJobRequest(job=job)))
    assert refusal.code is INVALID
    assert "999" in refusal.fields["job.retry"]
    job = Job(name="new", handler="h", schedule=Schedule(every=[Interval(days=1), Interval.FromString(unknown)]))
    refusal = await refused(plane.jobs.CreateJob(CreateJobRequest(job=job)))
    assert list(refusal.fields) == ["job.schedule.every[1]"]
    assert await eye.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_payload_of_the_greatest_size_is_taken_and_a_message_beyond_the_limit_is_not(
    plane: ControlPlane,
) -> None:
    assert len((await plane.create("a", payload=b"x" * 262_144)).payload) == 262_144
    refusal = await refused(plane.create("b", payload=b"x" * (5 * 1024 * 1024)))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("name", ["a", "A", "0", "a.b-c_d", "N" * 128])
async def test_good_names_can_be_read_back(plane: ControlPlane, name: str) -> None:
    created = await plane.create(name)
    assert await plane.get(name) == created
    assert [job.name for job in (await plane.jobs.ListJobs(ListJobsRequest())).jobs] == [name]
    assert created.state == job_pb2.JOB_STATE_ACTIVE
