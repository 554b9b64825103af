"""The client: plain values in, requests out; one control plane of two may die; refusals become exceptions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tidewheel import (
    AlreadyExists,
    CallFailed,
    CatchUp,
    Client,
    Conflict,
    Cron,
    Every,
    FieldViolation,
    InvalidArgument,
    NotFound,
    RetryPolicy,
    StaleEtag,
    TidewheelError,
    Unavailable,
)
from tidewheel.v1 import job_pb2, job_service_pb2

from tests.link.scripted_control_plane import ScriptedControlPlane, control_planes, violations
from tests.support.tcp_proxy import TcpProxy


def sent(plane: ScriptedControlPlane, method: str) -> Any:
    """The newest request of that method."""
    return [request for name, request in plane.requests if name == method][-1]


async def test_a_job_is_created_from_plain_values() -> None:
    async with control_planes() as (plane,), Client(plane.address, namespace="team") as client:
        job = await client.create_job(
            "report",
            handler="nightly",
            schedule=Cron("0 6 * * *", zone="Europe/Berlin"),
            queue="slow",
            payload={"rows": 3},
            retry=RetryPolicy(max_attempts=2, first_delay=timedelta(seconds=1)),
            overlap="buffer_all",
            max_buffered=7,
            catch_up=CatchUp("all", grace=timedelta(minutes=5), max_runs=3, order="newest_first"),
            start_to_close_timeout=timedelta(minutes=10),
            labels={"a": "b"},
        )
        request = sent(plane, "CreateJob")
    assert (job.name, job.state, job.etag, job.next_occurrence) == ("report", "ACTIVE", "e1", None)
    made = request.job
    assert (made.namespace, made.name, made.handler, made.queue) == ("team", "report", "nightly", "slow")
    assert (made.payload, made.payload_type) == (b'{"rows":3}', "application/json")
    assert (list(made.schedule.cron), made.schedule.zone) == (["0 6 * * *"], "Europe/Berlin")
    assert (made.retry.max_attempts, made.retry.first_delay.seconds) == (2, 1)
    assert (made.overlap, made.max_buffered) == (job_pb2.OVERLAP_POLICY_BUFFER_ALL, 7)
    assert (made.catch_up.mode, made.catch_up.order) == (
        job_pb2.CATCH_UP_MODE_ALL,
        job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
    )
    assert (made.catch_up.max_runs, made.catch_up.HasField("window")) == (3, False)
    assert (made.catch_up.grace.seconds, made.start_to_close_timeout.seconds) == (300, 600)
    assert dict(made.labels) == {"a": "b"}
    assert 1 <= len(request.request_id) <= 128


async def test_what_is_not_said_is_not_sent() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        await client.create_job("report", handler="nightly")
        made = sent(plane, "CreateJob").job
    assert made == job_pb2.Job(namespace="default", name="report", handler="nightly")


async def test_an_update_names_what_it_changes_and_none_is_a_value() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        await client.update_job(
            "report", schedule=None, queue="fast", payload=b"x", catch_up=None, etag="e1", note="because"
        )
        request = sent(plane, "UpdateJob")
    assert list(request.update_mask.paths) == ["catch_up", "payload", "payload_type", "queue", "schedule"]
    assert not request.job.HasField("schedule")
    assert not request.job.HasField("catch_up")
    assert (request.job.queue, request.job.payload, request.job.etag) == ("fast", b"x", "e1")
    assert request.note == "because"


async def test_a_resume_says_what_becomes_of_the_pause() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        await client.resume_job("report")
        assert sent(plane, "ResumeJob").paused == job_service_pb2.PAUSED_OCCURRENCES_SKIP
        await client.resume_job("report", paused="catch_up")
        assert sent(plane, "ResumeJob").paused == job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP
        with pytest.raises(ValueError, match="paused: must be one of 'skip', 'catch_up', not 'later'"):
            await client.resume_job("report", paused="later")


async def test_every_other_call() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        for call in (client.get_job, client.pause_job, client.resume_job, client.delete_job):
            assert (await call("report")).name == "report"
        assert [job.name async for job in client.list_jobs(page_size=2)] == [f"job-{number}" for number in range(5)]
        run = await client.trigger_job("report", payload="x", delay=timedelta(seconds=2), request_id="mine")
        assert (run.run_id, run.cause, run.ended) == ("r1", "TRIGGER", False)
        trigger = sent(plane, "TriggerJob")
        assert (trigger.payload, trigger.delay.seconds, trigger.request_id) == (b"x", 2, "mine")
        run = await client.get_run("r1")
        assert (run.state, run.ended, run.json()) == ("SUCCEEDED", True, [1])
        assert run.scheduled_for == datetime(2030, 1, 1, tzinfo=UTC)
        since = datetime(2030, 1, 1, tzinfo=UTC)
        assert [run.run_id async for run in client.list_runs("report", since=since, states=["dead"])] == ["r1"]
        assert list(sent(plane, "ListRuns").states) == [5]
        assert [attempt.outcome for attempt in await client.list_attempts("r1")] == ["LOST"]
        assert (await client.cancel_run("r1")).state == "CANCELED"


async def test_an_absent_payload_of_a_trigger_keeps_the_jobs() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        await client.trigger_job("report")
        assert not sent(plane, "TriggerJob").HasField("payload")
        await client.trigger_job("report", payload=b"")
        assert sent(plane, "TriggerJob").HasField("payload")


# ---- failover ----


async def test_no_call_fails_when_one_control_plane_of_two_is_killed() -> None:
    async with control_planes(2) as (first, second), Client([first.address, second.address]) as client:
        await client.get_job("a")
        assert len(first.requests) == 1
        await first.stop()
        for _ in range(20):
            await client.trigger_job("a")
        await first.start()
        await second.stop()
        for _ in range(20):
            await client.trigger_job("a")
    assert len(first.requests) + len(second.requests) == 41


async def test_a_call_that_was_under_way_is_repeated_elsewhere_with_the_same_request_id() -> None:
    async with control_planes(2) as (first, second), Client([first.address, second.address]) as client:
        arrived = asyncio.Event()

        async def hang(method: str, request: Any, context: Any) -> None:
            arrived.set()
            await asyncio.sleep(60)

        first.before = hang
        call = asyncio.create_task(client.create_job("a", handler="h"))
        await arrived.wait()
        await first.stop()
        assert (await call).name == "a"
    assert sent(first, "CreateJob") == sent(second, "CreateJob")
    assert sent(first, "CreateJob").request_id


async def test_a_frozen_control_plane_is_left_after_a_while_and_not_asked_first_again() -> None:
    async with (
        control_planes(2) as (first, second),
        TcpProxy("127.0.0.1", first.port) as proxy,
        Client([proxy.endpoint, second.address], timeout_s=6.0) as client,
    ):
        await client.get_job("a")
        proxy.stall()
        await client.get_job("b")
        await client.get_job("c")
        proxy.heal()
    assert [request.name for _, request in second.requests] == ["b", "c"]


async def test_a_control_plane_that_says_unavailable_is_asked_again() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        refusals = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE]

        async def refuse(method: str, request: Any, context: Any) -> None:
            if refusals:
                await context.abort(refusals.pop(), "the database is away")

        plane.before = refuse
        await client.create_job("a", handler="h")
        ids = {request.request_id for _, request in plane.requests}
    assert (len(plane.requests), len(ids)) == (3, 1)


async def test_with_nobody_there_the_call_ends_in_time_and_names_the_request_id() -> None:
    async with Client(["127.0.0.1:1", "127.0.0.1:2"], timeout_s=0.5) as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2") as caught:
            await client.create_job("a", handler="h", request_id="mine")
    assert caught.value.request_id == "mine"


# ---- refusals ----


async def test_invalid_arguments_name_their_fields() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:

        async def refuse(method: str, request: Any, context: Any) -> None:
            details = violations(job__schedule__zone="unknown zone", job__name="too long")
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")

        plane.before = refuse
        with pytest.raises(InvalidArgument, match=r"job\.schedule\.zone: unknown zone; job\.name: too long") as caught:
            await client.create_job("a", handler="h")
    assert caught.value.violations == (
        FieldViolation("job.schedule.zone", "unknown zone"),
        FieldViolation("job.name", "too long"),
    )
    assert len(plane.requests) == 1, "a refusal is an answer"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.ALREADY_EXISTS, AlreadyExists),
        (grpc.StatusCode.ABORTED, StaleEtag),
        (grpc.StatusCode.FAILED_PRECONDITION, Conflict),
        (grpc.StatusCode.PERMISSION_DENIED, CallFailed),
        (grpc.StatusCode.INTERNAL, CallFailed),
    ],
)
async def test_each_refusal_is_an_exception_that_says_what_to_do(
    code: grpc.StatusCode, error: type[TidewheelError]
) -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:

        async def refuse(method: str, request: Any, context: Any) -> None:
            await context.abort(code, "the reason")

        plane.before = refuse
        with pytest.raises(TidewheelError, match="the reason") as caught:
            await client.get_job("a")
    assert type(caught.value) is error
    assert len(plane.requests) == 1


async def test_a_time_without_a_zone_never_leaves() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        with pytest.raises(ValueError, match="needs a zone"):
            await client.create_job("a", handler="h", schedule=Every(timedelta(seconds=5), anchor=datetime(2030, 1, 1)))
    assert plane.requests == []


async def test_a_control_plane_with_too_much_to_do_is_asked_again_but_other_exhaustion_is_an_answer() -> None:
    async with control_planes() as (plane,), Client([plane.address]) as client:
        reasons = ["OVERLOADED", "OVERLOADED", "SOMETHING_ELSE"]

        async def refuse(method: str, request: Any, context: Any) -> None:
            status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
            status.details.add().Pack(ErrorInfo(reason=reasons.pop(0), domain="tidewheel"))
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not now")

        plane.before = refuse
        with pytest.raises(CallFailed, match="RESOURCE_EXHAUSTED: not now"):
            await client.get_job("a")
    assert reasons == []
