"""JobService over a real server and database: what a caller gets for each call."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, job_service_pb2
from tidewheel.v1.job_service_pb2 import (
    CreateJobRequest,
    DeleteJobRequest,
    GetJobRequest,
    PauseJobRequest,
    ResumeJobRequest,
    UpdateJobRequest,
)

from tests.support.control_plane import ControlPlane, refused

US = 1_000_000
HOURLY = job_pb2.Schedule(cron=["0 * * * *"], zone="Europe/Berlin")


def micros(stamp: Timestamp) -> int:
    return stamp.seconds * US + stamp.nanos // 1000


def every(seconds: int) -> job_pb2.Interval:
    return job_pb2.Interval(elapsed=Duration(seconds=seconds))


async def update(
    plane: ControlPlane, name: str, *paths: str, etag: str = "", request_id: str = "", **fields: Any
) -> Any:
    return await plane.jobs.UpdateJob(
        UpdateJobRequest(
            job=job_pb2.Job(name=name, etag=etag, **fields),
            update_mask=FieldMask(paths=paths),
            request_id=request_id,
        )
    )


class TestCreation:
    async def test_answers_with_the_job_and_every_default_spelt_out(self, plane: ControlPlane) -> None:
        job = await plane.create("nightly", schedule=HOURLY, payload=b"\x00\xff", labels={"team": "a"})
        assert (job.namespace, job.name, job.handler, job.queue) == ("default", "nightly", "h", "default")
        assert (job.state, job.version, job.payload) == (job_pb2.JOB_STATE_ACTIVE, 1, b"\x00\xff")
        assert (job.retry.max_attempts, job.retry.first_delay.seconds, job.retry.factor) == (4, 10, 2.0)
        assert (job.retry.max_delay.seconds, job.retry.jitter) == (600, 0.1)
        assert (job.overlap, job.catch_up.mode) == (job_pb2.OVERLAP_POLICY_SKIP, job_pb2.CATCH_UP_MODE_LATEST)
        assert (job.catch_up.grace.seconds, job.start_to_close_timeout.seconds) == (60, 3600)
        assert (job.schedule.gap, job.schedule.repeat) == (job_pb2.GAP_RULE_END, job_pb2.REPEAT_RULE_FIRST)
        assert dict(job.labels) == {"team": "a"}
        assert job.create_time == job.update_time
        assert await plane.get("nightly") == job

    async def test_of_what_was_read_makes_the_same_job(self, plane: ControlPlane) -> None:
        """Whatever a server answers can be handed back: output-only fields are ignored."""
        job = await plane.create("a", schedule=job_pb2.Schedule(cron=["@every 90s", "5 4 * * *"]), overlap=2)
        job.name = "b"
        again = await plane.jobs.CreateJob(CreateJobRequest(job=job))
        assert again.job_id != job.job_id
        assert again.schedule == job.schedule

    async def test_counts_intervals_from_the_instant_of_registration_and_shows_it(self, plane: ControlPlane) -> None:
        job = await plane.create("a", schedule=job_pb2.Schedule(every=[every(7)]))
        assert 0 <= micros(job.create_time) - micros(job.schedule.anchor) < 5 * US
        assert micros(job.next_occurrence) == micros(job.schedule.anchor) + 7 * US

    async def test_of_a_one_off_in_the_past_lands_it_as_it_is(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a", schedule=job_pb2.Schedule(at=[Timestamp(seconds=1_000_000_000)]))
        (row,) = await eye.fetch(
            "SELECT d.bucket, d.due_at_us, f.floor FROM due d JOIN shard_floors f ON f.shard = d.shard"
        )
        assert row["due_at_us"] == 1_000_000_000 * US
        assert row["bucket"] == row["floor"]

    async def test_of_a_schedule_that_is_over_is_refused(self, plane: ControlPlane) -> None:
        over = job_pb2.Schedule(cron=["0 0 * * *"], end=Timestamp(seconds=1_000_000_000))
        refusal = await refused(plane.create("a", schedule=over))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "no occurrence after now" in refusal.fields["job.schedule"]

    async def test_races_for_one_name_have_one_winner(self, plane: ControlPlane) -> None:
        answers = await asyncio.gather(*(plane.create("a", schedule=HOURLY) for _ in range(8)), return_exceptions=True)
        codes = [answer.code() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert codes == [grpc.StatusCode.ALREADY_EXISTS] * 7

    async def test_takes_slots_of_h_lines_from_the_name(self, plane: ControlPlane) -> None:
        first = await plane.create("a", schedule=job_pb2.Schedule(cron=["H H * * *"]))
        second = await plane.create("b", schedule=job_pb2.Schedule(cron=["H H * * *"]))
        assert first.next_occurrence != second.next_occurrence


class TestReading:
    async def test_by_id_finds_deleted_jobs_too(self, plane: ControlPlane) -> None:
        job = await plane.create("a", schedule=HOURLY)
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        assert (await refused(plane.get("a"))).code is grpc.StatusCode.NOT_FOUND
        deleted = await plane.jobs.GetJob(GetJobRequest(job_id=job.job_id))
        assert (deleted.state, deleted.version, deleted.name) == (job_pb2.JOB_STATE_DELETED, 2, "a")
        assert not deleted.HasField("next_occurrence")

    async def test_in_another_namespace_finds_nothing(self, plane: ControlPlane) -> None:
        job = await plane.create("a", namespace="one")
        for request in (GetJobRequest(namespace="two", name="a"), GetJobRequest(namespace="two", job_id=job.job_id)):
            assert (await refused(plane.jobs.GetJob(request))).code is grpc.StatusCode.NOT_FOUND

    async def test_shows_what_a_dispatcher_found_wrong(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a")
        await eye.execute("UPDATE jobs SET error = 'cannot be read'")
        assert (await plane.get("a")).error == "cannot be read"

    async def test_b108_shows_a_spoilt_job_with_its_fault_and_the_others_beside_it(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        """B108, B116: one bad row neither hides itself nor the rest of the page."""
        from tidewheel.v1.job_service_pb2 import ListJobsRequest

        for name in ("a", "b", "c", "d"):
            await plane.create(name, schedule=HOURLY)
        spoilt = {"a": '{"handler": 7}', "b": '"x"', "c": "[]"}
        for name, spec in spoilt.items():
            await eye.execute(
                "UPDATE job_versions SET spec = $2 WHERE job_id = (SELECT job_id FROM jobs WHERE name = $1)", name, spec
            )
        page = await plane.jobs.ListJobs(ListJobsRequest())
        assert [job.name for job in page.jobs] == ["a", "b", "c", "d"]
        assert all("not readable" in job.error for job in page.jobs[:3])
        assert page.jobs[3].error == ""
        refusal = await refused(update(plane, "a", "handler", handler="x"))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert (await plane.jobs.PauseJob(PauseJobRequest(name="a"))).state == job_pb2.JOB_STATE_PAUSED
        assert (await refused(plane.jobs.ResumeJob(ResumeJobRequest(name="a")))).code is refusal.code
        assert (await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))).state == job_pb2.JOB_STATE_DELETED
        assert (await plane.create("a")).error == ""


class TestUpdates:
    async def test_change_what_the_mask_names_and_nothing_else(self, plane: ControlPlane) -> None:
        before = await plane.create("a", schedule=HOURLY, payload=b"p", description="d", queue="q")
        after = await update(plane, "a", "handler", "queue", handler="other", description="ignored")
        assert (after.handler, after.queue) == ("other", "default"), "a named field that is left out is reset"
        assert (after.description, after.payload, after.schedule) == ("d", b"p", before.schedule)
        assert (after.version, after.create_time) == (2, before.create_time)
        assert after.etag != before.etag

    async def test_keep_the_phase_of_an_interval(self, plane: ControlPlane) -> None:
        before = await plane.create("a", schedule=job_pb2.Schedule(every=[every(600)]))
        for period_s in (600, 300):
            after = await update(plane, "a", "schedule", schedule=job_pb2.Schedule(every=[every(period_s)]))
            assert after.schedule.anchor == before.schedule.anchor
        moved = Timestamp(seconds=before.schedule.anchor.seconds - 13)
        after = await update(plane, "a", "schedule", schedule=job_pb2.Schedule(every=[every(300)], anchor=moved))
        assert after.schedule.anchor == moved

    async def test_can_take_the_schedule_away(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a", schedule=HOURLY)
        after = await update(plane, "a", "schedule")
        assert not after.HasField("schedule")
        assert not after.HasField("next_occurrence")
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version = 2") == 0

    async def test_of_a_fired_one_off_do_not_fire_it_again(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        past = job_pb2.Schedule(at=[Timestamp(seconds=1_000_000_000)])
        await plane.create("a", schedule=past)
        await update(plane, "a", "description", "schedule", schedule=past, description="new")
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version = 2") == 0
        await update(plane, "a", "schedule", schedule=job_pb2.Schedule(at=[Timestamp(seconds=1_000_000_001)]))
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version = 3") == 1

    async def test_with_a_stale_etag_are_refused(self, plane: ControlPlane) -> None:
        first = await plane.create("a")
        second = await update(plane, "a", "handler", handler="x", etag=first.etag)
        refusal = await refused(update(plane, "a", "handler", handler="y", etag=first.etag))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "STALE_ETAG")
        assert await plane.get("a") == second

    async def test_at_once_with_one_etag_have_one_winner(self, plane: ControlPlane) -> None:
        job = await plane.create("a")
        calls = [update(plane, "a", "handler", handler=f"h{n}", etag=job.etag) for n in range(6)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert [error.code() for error in lost] == [grpc.StatusCode.ABORTED] * 5
        assert (await plane.get("a")).version == 2

    async def test_of_a_paused_job_leave_it_paused(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a", schedule=HOURLY)
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        after = await update(plane, "a", "schedule", schedule=job_pb2.Schedule(cron=["1 * * * *"]))
        assert after.state == job_pb2.JOB_STATE_PAUSED
        assert await eye.fetchval("SELECT count(*) FROM due WHERE job_version > 1") == 0


class TestSteering:
    async def test_pause_and_resume(self, plane: ControlPlane) -> None:
        await plane.create("a", schedule=HOURLY)
        paused = await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        assert (paused.state, paused.version) == (job_pb2.JOB_STATE_PAUSED, 2)
        assert not paused.HasField("next_occurrence")
        assert await plane.jobs.PauseJob(PauseJobRequest(name="a")) == paused
        resumed = await plane.jobs.ResumeJob(ResumeJobRequest(name="a"))
        assert (resumed.state, resumed.version) == (job_pb2.JOB_STATE_ACTIVE, 3)
        assert resumed.HasField("next_occurrence")
        assert (await plane.jobs.ResumeJob(ResumeJobRequest(name="a"))).version == 3

    @pytest.mark.parametrize("method", ["PauseJob", "ResumeJob", "DeleteJob"])
    async def test_with_a_stale_etag_is_refused(self, plane: ControlPlane, method: str) -> None:
        await plane.create("a")
        requests = {"PauseJob": PauseJobRequest, "ResumeJob": ResumeJobRequest, "DeleteJob": DeleteJobRequest}
        refusal = await refused(getattr(plane.jobs, method)(requests[method](name="a", etag="stale")))
        assert refusal.code is grpc.StatusCode.ABORTED
        assert (await plane.get("a")).version == 1

    async def test_a_deleted_name_is_free(self, plane: ControlPlane) -> None:
        old = await plane.create("a")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        assert (await refused(plane.jobs.DeleteJob(DeleteJobRequest(name="a")))).code is grpc.StatusCode.NOT_FOUND
        new = await plane.create("a")
        assert new.job_id != old.job_id


class TestRequestIds:
    async def test_a_repeat_gets_the_first_answer(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        first = await plane.create("a", "r-1", schedule=HOURLY)
        await update(plane, "a", "handler", handler="x")
        assert await plane.create("a", "r-1", schedule=HOURLY) == first
        assert await eye.fetchval("SELECT count(*) FROM jobs") == 1

    async def test_with_another_body_are_refused(self, plane: ControlPlane) -> None:
        await plane.create("a", "r-1")
        refusal = await refused(plane.create("b", "r-1"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_REUSED")
        assert (await refused(plane.get("b"))).code is grpc.StatusCode.NOT_FOUND

    async def test_at_the_same_time_have_one_effect(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        answers = await asyncio.gather(*(plane.create("a", "r-1", schedule=HOURLY) for _ in range(8)))
        assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
        assert await eye.fetchval("SELECT count(*) FROM jobs") == 1

    async def test_of_a_repeat_whose_job_was_deleted_get_the_first_answer_too(self, plane: ControlPlane) -> None:
        first = await plane.create("a", "r-1")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        assert await plane.create("a", "r-1") == first


async def test_b128_the_trace_of_the_request_is_kept_with_what_it_makes(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    from tidewheel.v1.job_service_pb2 import TriggerJobRequest

    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    metadata = (("traceparent", caller),)
    await plane.jobs.CreateJob(CreateJobRequest(job=job_pb2.Job(name="a", handler="h")), metadata=metadata)
    assert await eye.fetchval("SELECT trace FROM job_versions") == caller
    await plane.jobs.TriggerJob(TriggerJobRequest(name="a"), metadata=metadata)
    assert await eye.fetchval("SELECT trace FROM runs") == caller
    await plane.create("b")
    assert await eye.fetchval(
        "SELECT trace ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-01$' FROM job_versions v JOIN jobs j ON j.job_id = v.job_id"
        " WHERE j.name = 'b'"
    )


async def test_every_method_of_the_service_is_answered(plane: ControlPlane) -> None:
    """With nothing in it no request is sound, but none is unknown."""
    for method in job_service_pb2.DESCRIPTOR.services_by_name["JobService"].methods:
        request = getattr(job_service_pb2, method.input_type.name)()
        answer: Any = (await asyncio.gather(getattr(plane.jobs, method.name)(request), return_exceptions=True))[0]
        if isinstance(answer, grpc.aio.AioRpcError):
            assert answer.code() is grpc.StatusCode.INVALID_ARGUMENT, f"{method.name}: {answer}"
