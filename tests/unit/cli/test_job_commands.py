"""What the commands of jobs ask of the server, and how they show its answers; a scripted server answers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, job_service_pb2, operation_pb2

from tools.cli import job_pauses, job_versions, jobs
from tools.cli.commands import Call, Output
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Printer

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)


class ScriptedServer:
    """Gives the answers it was told to, in their order, and keeps what it was asked."""

    def __init__(self, *answers: Message) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    async def jobs(self, method: str, request: Any) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        self.asked.append((method, copy))
        return self._answers.pop(0)


def call(server: ScriptedServer, *, output: Output = Output.TABLE) -> tuple[Call, io.StringIO]:
    stream = io.StringIO()
    return Call(server, "shop", output, Printer(stream, terminal=False), NOW), stream  # type: ignore[arg-type]


STORED = job_pb2.Job(
    namespace="shop",
    name="report",
    handler="report",
    etag="v3",
    schedule=job_pb2.Schedule(cron=["0 3 * * *"], zone="Europe/Berlin", jitter=Duration(seconds=60)),
    catch_up=job_pb2.CatchUpPolicy(mode=job_pb2.CATCH_UP_MODE_SKIP, grace=Duration(seconds=60)),
    retry=job_pb2.RetryPolicy(max_attempts=7),
)


async def updated(given: dict[str, Any], *, etag: str = "") -> tuple[list[str], job_service_pb2.UpdateJobRequest]:
    """The methods that an update calls, and its request."""
    server = ScriptedServer(*([STORED] * 2))
    made, _ = call(server)
    await jobs.update(made, name="report", etag=etag, **given)
    return [method for method, _ in server.asked], server.asked[-1][1]


async def test_an_update_of_a_part_goes_over_what_the_job_has_and_is_refused_if_that_changed() -> None:
    methods, request = await updated({"jitter": "5m", "catch_up": "all"})
    assert methods == ["GetJob", "UpdateJob"]
    assert sorted(request.update_mask.paths) == ["catch_up", "schedule"]
    assert request.job.etag == "v3"
    expected = job_pb2.Schedule(cron=["0 3 * * *"], zone="Europe/Berlin", jitter=Duration(seconds=300))
    assert request.job.schedule == expected
    assert request.job.catch_up == job_pb2.CatchUpPolicy(mode=job_pb2.CATCH_UP_MODE_ALL, grace=Duration(seconds=60))
    assert not request.job.HasField("retry")


async def test_the_callers_own_etag_stands() -> None:
    _, request = await updated({"jitter": "5m"}, etag="v2")
    assert request.job.etag == "v2"


async def test_an_update_of_whole_fields_asks_for_nothing_first() -> None:
    methods, request = await updated({"overlap": "buffer-one", "max_buffered": 3, "label": ["team=shop"]})
    assert methods == ["UpdateJob"]
    assert sorted(request.update_mask.paths) == ["labels", "max_buffered", "overlap"]
    assert request.job.etag == ""


async def test_new_times_replace_all_times_and_leave_what_stands_around_them() -> None:
    _, request = await updated({"every_days": [2], "at": ["2026-07-01T00:00:00Z"]})
    assert request.job.schedule == job_pb2.Schedule(
        at=[Timestamp(seconds=1_782_864_000)],
        every=[job_pb2.Interval(days=2)],
        zone="Europe/Berlin",
        jitter=Duration(seconds=60),
    )


@pytest.mark.parametrize(
    ("catch_up", "choice"),
    [
        (False, job_service_pb2.PAUSED_OCCURRENCES_SKIP),
        (True, job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP),
    ],
)
async def test_a_resume_says_what_becomes_of_the_pause(catch_up: bool, choice: int) -> None:
    server = ScriptedServer(STORED)
    made, _ = call(server)
    await job_pauses.resume(made, name="report", catch_up=catch_up, note="moved")
    ((method, request),) = server.asked
    assert (method, request.paused, request.note, request.namespace) == ("ResumeJob", choice, "moved", "shop")


def counted(count: int, *names: str) -> job_service_pb2.ChangeJobsResponse:
    return job_service_pb2.ChangeJobsResponse(count=count, names=names)


def finished(count: int) -> job_service_pb2.ChangeJobsResponse:
    made = counted(count)
    made.operation.operation_id, made.operation.state = "op-1", operation_pb2.OPERATION_STATE_SUCCEEDED
    made.operation.done = made.operation.total = count
    return made


async def test_a_pause_by_label_hands_back_the_count_that_was_shown() -> None:
    server = ScriptedServer(counted(2, "a", "b"), finished(2))
    made, stream = call(server)
    await job_pauses.pause(made, label=["team=shop", "tier=1"], yes=True, note="moving", request_id="r-1")
    (_, asked), (method, request) = server.asked
    assert asked.validate_only
    assert (method, request.expected_count, request.note, request.request_id) == ("PauseJobs", 2, "moving", "r-1")
    assert dict(request.selector.labels) == {"team": "shop", "tier": "1"}
    assert request.selector.namespace == "shop"
    assert "op-1" in stream.getvalue()


async def test_a_resume_of_a_namespace_says_what_becomes_of_the_pauses() -> None:
    server = ScriptedServer(counted(1, "a"), finished(1))
    made, _ = call(server)
    await job_pauses.resume(made, everything=True, catch_up=True, yes=True, note="moved")
    method, request = server.asked[-1]
    assert (method, request.paused) == ("ResumeJobs", job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP)
    assert not request.selector.labels


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "which jobs? give a name, --label, or --all"),
        ({"name": "report", "everything": True}, "exactly one of them"),
        ({"label": ["a=b"], "everything": True}, "exactly one of them"),
        ({"everything": True, "etag": "v3"}, "--etag goes with one job's name"),
        ({"label": ["team"], "note": "x"}, "--label: 'team' is not KEY=VALUE"),
        ({"everything": True, "yes": True}, "--note is required"),
    ],
)
async def test_which_jobs_are_meant_is_said_in_exactly_one_way(given: dict[str, Any], says: str) -> None:
    made, _ = call(ScriptedServer())
    for command in (job_pauses.pause, job_pauses.resume):
        with pytest.raises(Failure) as caught:
            await command(made, **given)
        assert caught.value.code is ExitCode.USAGE
        assert says in caught.value.line()


def version(number: int, state: job_pb2.JobState, note: str) -> job_service_pb2.JobVersion:
    made = job_service_pb2.JobVersion(version=number, state=state, note=note, author="ada", job=STORED)
    made.cutover.FromJsonString(f"2026-06-0{number}T00:00:00Z")
    return made


async def test_versions_are_listed_with_who_when_and_why() -> None:
    answer = job_service_pb2.ListJobVersionsResponse(
        versions=[version(2, job_pb2.JOB_STATE_PAUSED, "stocktaking"), version(1, job_pb2.JOB_STATE_ACTIVE, "")]
    )
    server = ScriptedServer(answer)
    made, stream = call(server)
    await job_versions.versions(made, name="report")
    title, newest, oldest = (line.split("  ") for line in stream.getvalue().splitlines())
    assert title[0].strip() == "VERSION"
    shown = [[cell.strip() for cell in row if cell.strip()] for row in (newest, oldest)]
    assert shown == [
        ["2", "paused", "2026-06-02T00:00:00Z", "ada", "stocktaking", "0 3 * * * in Europe/Berlin; jitter up to 1m"],
        ["1", "active", "2026-06-01T00:00:00Z", "ada", "-", "0 3 * * * in Europe/Berlin; jitter up to 1m"],
    ]


def change(path: str, before: str, after: str) -> job_service_pb2.FieldChange:
    made = job_service_pb2.FieldChange(path=path, to=after)
    setattr(made, "from", before)
    return made


async def shown_difference(changes: Sequence[job_service_pb2.FieldChange]) -> list[str]:
    server = ScriptedServer(job_service_pb2.CompareJobVersionsResponse(changes=changes))
    made, stream = call(server)
    await job_versions.diff(made, name="report", from_version=1, to_version=3)
    ((_, request),) = server.asked
    assert (request.from_version, request.to_version) == (1, 3)
    return stream.getvalue().splitlines()


async def test_a_difference_shows_each_field_before_and_after() -> None:
    assert await shown_difference(
        [change("overlap", '"SKIP"', '"ALLOW"'), change("description", "", '"\x1b[2Jx"')]
    ) == [
        "overlap",
        '  - "SKIP"',
        '  + "ALLOW"',
        "description",
        '  + "x"',
    ]


async def test_equal_versions_have_no_difference() -> None:
    assert await shown_difference([]) == ["no difference"]


async def test_a_restoration_names_the_version_and_the_reason() -> None:
    server = ScriptedServer(STORED)
    made, stream = call(server)
    await job_versions.restore(made, name="report", version=2, note="as it was", etag="v3", request_id="r-1")
    ((method, request),) = server.asked
    assert (method, request.version, request.note, request.etag, request.request_id) == (
        "RestoreJobVersion",
        2,
        "as it was",
        "v3",
        "r-1",
    )
    assert stream.getvalue().startswith("restored")


async def test_versions_need_exactly_one_way_to_name_the_job() -> None:
    made, _ = call(ScriptedServer())
    for name, job_id in ((None, ""), ("report", "id")):
        with pytest.raises(Failure) as caught:
            await job_versions.versions(made, name=name, job_id=job_id)
        assert caught.value.code is ExitCode.USAGE
