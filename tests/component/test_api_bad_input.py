"""Bad input: each call gets the fitting code with the field named, and nothing changes. Issue cases B112 to B116."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2
from tidewheel.v1.job_pb2 import CatchUpPolicy, Exclusions, Interval, Job, RetryPolicy, Schedule
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

from tests.support.control_plane import ControlPlane, refused
from tests.support.instants import rfc3339, us

US = 1_000_000
INVALID = grpc.StatusCode.INVALID_ARGUMENT
TABLES = ("jobs", "job_versions", "due", "runs", "skips", "calendar_jobs", "audit", "requests")


def cron(*lines: str, **fields: Any) -> Schedule:
    return Schedule(cron=lines, **fields)


def every(**interval: Any) -> Schedule:
    return Schedule(every=[Interval(**interval)])


def excluding(**exclusions: Any) -> Schedule:
    return cron("* * * * *", exclude=Exclusions(**exclusions))


def stamp(text: str) -> Timestamp:
    return Timestamp(seconds=us(text) // US)


def creation(**fields: Any) -> CreateJobRequest:
    return CreateJobRequest(job=Job(**{"name": "new", "handler": "h", **fields}), request_id="r-bad")


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
    ("job.schedule", {"schedule": Schedule()}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=-1)])}),
    ("job.schedule.at[1]", {"schedule": Schedule(at=[Timestamp(seconds=1), Timestamp(seconds=1, nanos=1)])}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=1, nanos=-1)])}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=7_258_118_400)])}),
    ("job.schedule.at", {"schedule": Schedule(at=[Timestamp(seconds=n) for n in range(65)])}),
    ("job.schedule.at", {"schedule": cron("* * * * *", at=[Timestamp(seconds=5)])}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(nanos=999_999_000))}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(seconds=-5))}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(seconds=367 * 86_400))}),
    ("job.schedule.every[0].days", {"schedule": every(days=0)}),
    ("job.schedule.every[0].days", {"schedule": every(days=3661)}),
    ("job.schedule.every[0].weeks", {"schedule": every(weeks=-1)}),
    ("job.schedule.every[0].weeks", {"schedule": every(weeks=3661)}),
    ("job.schedule.every[0].months", {"schedule": every(months=1201)}),
    ("job.schedule.every[0].anchor", {"schedule": every(days=1, anchor=Timestamp(seconds=-1))}),
    ("job.schedule.every[0]", {"schedule": every()}),
    ("job.schedule.every", {"schedule": Schedule(every=[Interval(days=1)] * 17)}),
    ("job.schedule.anchor", {"schedule": cron("* * * * *", anchor=Timestamp(seconds=5))}),
    (
        "job.schedule.anchor",
        {"schedule": Schedule(every=[Interval(days=1, anchor=Timestamp(seconds=9))], anchor=Timestamp(seconds=5))},
    ),
    ("job.schedule.end", {"schedule": cron("* * * * *", start=Timestamp(seconds=9), end=Timestamp(seconds=9))}),
    ("job.schedule.exclude.dates[0]", {"schedule": excluding(dates=["2026-02-30"])}),
    ("job.schedule.exclude.dates[1]", {"schedule": excluding(dates=["*-12-25", "yesterday"])}),
    ("job.schedule.exclude.dates[0]", {"schedule": excluding(dates=["2027-01-02/2026-12-24"])}),
    ("job.schedule.exclude.dates", {"schedule": excluding(dates=["*-12-25"] * 257)}),
    ("job.schedule.exclude.cron[0]", {"schedule": excluding(cron=["61 * * * *"])}),
    ("job.schedule.exclude.cron[1]", {"schedule": excluding(cron=["0 1 * * *", "@every 5s"])}),
    ("job.schedule.exclude.cron", {"schedule": excluding(cron=["0 1 * * *"] * 9)}),
    ("job.schedule.exclude.calendars[0]", {"schedule": excluding(calendars=["no such calendar"])}),
    ("job.schedule.exclude.calendars[0]", {"schedule": excluding(calendars=["nobody"])}),
    ("job.schedule.exclude.calendars[1]", {"schedule": excluding(calendars=["a", "a"])}),
    ("job.schedule.exclude.calendars", {"schedule": excluding(calendars=[f"c{n}" for n in range(9)])}),
    ("job.schedule.windows[0]", {"schedule": cron("* * * * *", windows=["nobody"])}),
    ("job.schedule.windows", {"schedule": cron("* * * * *", windows=[f"c{n}" for n in range(9)])}),
    ("job.schedule", {"schedule": excluding(cron=["* * * * *"])}),
    ("job.schedule.max_runs", {"schedule": cron("* * * * *", max_runs=-1)}),
    ("job.schedule.max_runs", {"schedule": cron("* * * * *", max_runs=100_001)}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(seconds=-1))}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(seconds=86_400, nanos=1000))}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(nanos=1))}),
    ("job.schedule.gap", {"schedule": cron("* * * * *", gap=9)}),
    ("job.schedule.repeat", {"schedule": cron("* * * * *", repeat=9)}),
    ("job.schedule.cron", {"schedule": cron(*["* * * * *"] * 17)}),
    ("job.schedule.cron[1]", {"schedule": cron("* * * * *", "61 * * * *")}),
    ("job.schedule.cron[0]", {"schedule": cron("* * * *")}),
    ("job.schedule.cron[0]", {"schedule": cron("* " * 150)}),
]
# B112: lines that can never fire.
NEVER = ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"]
# B113: what made a parser panic.
PANICS = [
    *("TZ=0", "TZ=TZ=TZ=", "CRON_TZ=UTC", "TZ=UTC ", "@every", "@", "", "*" * 10_240, "٣ * * * *", "1e1 * * * *"),
]
# B115: steps longer than their field.
LONG_STEPS = ["*/90 * * * *", "*/60 * * * *", "0 */25 * * *"]
# B116.
BAD_ZONES = [
    *("PST", "Mars/Olympus", "+05:30", "europe/berlin", "Europe/Berlin ", "../../etc/passwd", "/etc/localtime"),
    *("localtime", "Factory", "\0", "UTC\n", "x" * 10_000),
]


async def rows(eye: asyncpg.Connection) -> dict[str, int]:
    return {table: await eye.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}


async def all_refused(
    plane: ControlPlane, eye: asyncpg.Connection, cases: Iterable[tuple[str, dict[str, Any]]]
) -> None:
    """Each creation is refused with exactly its field named, and no row changes."""
    before = await rows(eye)
    for field, fields in cases:
        refusal = await refused(plane.jobs.CreateJob(creation(**fields)))
        assert (refusal.code, list(refusal.fields)) == (INVALID, [field]), f"{str(fields)[:200]}: {refusal}"
        assert refusal.fields[field], "the rule is told"
        assert "Traceback" not in refusal.message
        assert len(refusal.message) <= 500
    assert await rows(eye) == before
    assert not plane.task.done(), "the same process goes on"


def lines(*texts: str) -> list[tuple[str, dict[str, Any]]]:
    return [("job.schedule.cron[0]", {"schedule": cron(text)}) for text in texts]


async def test_a_creation_names_the_field_at_fault_and_changes_nothing(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    await all_refused(plane, eye, BAD_JOBS)


async def test_b112_a_line_that_never_fires_is_refused_at_once_and_leap_days_are_not(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    began = time.monotonic()
    await all_refused(plane, eye, lines(*NEVER))
    assert time.monotonic() - began < 3.0
    refusal = await refused(plane.create("a", schedule=cron(NEVER[0])))
    assert "day of month" in refusal.fields["job.schedule.cron[0]"]
    assert await plane.create("leap", schedule=cron("0 0 29 2 *"))


async def test_b113_what_is_no_line_at_all_is_refused(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    await all_refused(plane, eye, lines(*PANICS))


async def test_b115_a_step_longer_than_its_field_is_refused(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    await all_refused(plane, eye, lines(*LONG_STEPS))


async def test_b115_a_step_within_its_field_starts_anew_each_day(plane: ControlPlane) -> None:
    async def next_from(start: str) -> str | None:
        job = await plane.create(f"from-{us(start)}", schedule=cron("0 */5 * * *", start=stamp(start)))
        return rfc3339(job.next_occurrence.seconds * US)

    assert await next_from("2030-12-30T15:00:01Z") == "2030-12-30T20:00:00Z"
    assert await next_from("2030-12-30T20:00:01Z") == "2030-12-31T00:00:00Z", "four hours later, at midnight"


async def test_b116_a_bad_zone_is_refused_an_empty_one_is_utc_and_listing_works_beside(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    assert (await plane.create("a", schedule=cron("* * * * *"))).schedule.zone == "UTC"
    zones = [("job.schedule.zone", {"schedule": cron("* * * * *", zone=zone)}) for zone in BAD_ZONES]
    await all_refused(plane, eye, zones)
    assert [job.name for job in (await plane.jobs.ListJobs(ListJobsRequest())).jobs] == ["a"]


async def test_b133_next_is_computed_by_the_zone_that_fires(plane: ControlPlane) -> None:
    """The wall times of the case, from a start that lies ahead: 2031-12-03 is a Wednesday, as 2021-12-01 was."""
    phoenix = cron("48 17 * * 3", zone="America/Phoenix", start=stamp("2031-12-03T12:00:00Z"))
    santiago = cron("37 20 2 5 *", zone="America/Santiago", start=stamp("2032-05-02T12:00:00Z"))
    for name, schedule, expected in (
        ("a", phoenix, "2031-12-04T00:48:00Z"),
        ("b", santiago, "2032-05-03T00:37:00Z"),
    ):
        created = await plane.create(name, schedule=schedule)
        assert rfc3339(created.next_occurrence.seconds * US) == expected
        assert await plane.get(name) == created


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
