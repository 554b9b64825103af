"""RunService and TriggerJob over a real server and database."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import grpc
from google.protobuf.duration_pb2 import Duration
from tidewheel.v1 import run_pb2
from tidewheel.v1.job_service_pb2 import PauseJobRequest, TriggerJobRequest
from tidewheel.v1.run_service_pb2 import CancelRunRequest, GetRunRequest, ListAttemptsRequest

from core.ids import run_shard
from tests.support.control_plane import SHARDS, ControlPlane, refused


async def trigger(plane: ControlPlane, name: str = "a", **fields: object) -> run_pb2.Run:
    answer: run_pb2.Run = await plane.jobs.TriggerJob(TriggerJobRequest(name=name, **fields))  # type: ignore[arg-type]
    return answer


async def get(plane: ControlPlane, run_id: str) -> run_pb2.Run:
    answer: run_pb2.Run = await plane.runs.GetRun(GetRunRequest(run_id=run_id))
    return answer


class TestATrigger:
    async def test_is_a_run_that_waits_for_the_shards_owner(self, plane: ControlPlane) -> None:
        job = await plane.create("a", retry={"max_attempts": 7}, queue="q")
        run = await trigger(plane)
        assert (run.job, run.job_id, run.job_version, run.namespace) == ("a", job.job_id, 1, "default")
        assert (run.state, run.cause, run.attempt) == (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_CAUSE_TRIGGER, 0)
        assert (run.max_attempts, run.home_term, run.shard) == (7, 0, run_shard(UUID(run.run_id), SHARDS))
        assert run.scheduled_for == run.due_at == run.create_time
        assert "has not picked it up yet" in run.explanation
        assert await get(plane, run.run_id) == run

    async def test_can_be_put_off(self, plane: ControlPlane) -> None:
        await plane.create("a")
        run = await trigger(plane, delay=Duration(seconds=100))
        assert run.due_at.seconds - run.scheduled_for.seconds == 100
        assert run.explanation.startswith("Triggered with a delay: due at ")

    async def test_repeated_is_the_same_run(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a")
        runs = await asyncio.gather(*(trigger(plane, request_id="r-1") for _ in range(6)))
        assert len({run.run_id for run in runs}) == 1
        assert await eye.fetchval("SELECT count(*) FROM due") == 1
        refusal = await refused(trigger(plane, request_id="r-1", note="another body"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_REUSED")

    async def test_of_a_job_whose_run_is_open_is_refused_unless_allowed(self, plane: ControlPlane) -> None:
        await plane.create("a")
        run = await trigger(plane)
        refusal = await refused(trigger(plane))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert run.run_id in refusal.message
        assert (await trigger(plane, allow_overlap=True)).run_id != run.run_id

    async def test_works_while_paused_and_can_bring_its_own_payload(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a", payload=b"jobs")
        await plane.jobs.PauseJob(PauseJobRequest(name="a"))
        run = await trigger(plane, payload=b"")
        assert run.job_version == 2
        assert await eye.fetchval("SELECT payload FROM runs") == b"", "an empty payload is one, not the job's"


class TestCancel:
    async def test_of_a_pending_run_ends_it(self, plane: ControlPlane) -> None:
        await plane.create("a")
        run = await trigger(plane)
        canceled = await plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id, note="why"))
        assert canceled.state == run_pb2.RUN_STATE_CANCELED
        assert canceled.end_time == canceled.cancel_requested
        assert canceled.explanation.startswith("Canceled before it was started")
        assert await plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id)) == canceled

    async def test_of_a_leased_run_asks(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a")
        run = await trigger(plane)
        await _lease(eye)
        asked = await plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id))
        assert asked.state == run_pb2.RUN_STATE_LEASED
        assert asked.HasField("cancel_requested")
        assert not asked.HasField("end_time")
        assert "a cancel was asked for" in asked.explanation

    async def test_of_an_ended_run_is_refused(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.create("a")
        run = await trigger(plane)
        await eye.execute("UPDATE runs SET state = 5, ended_us = 5, attempt = 4, last_error = 'boom\nmore'")
        refusal = await refused(plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id)))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "DEAD" in refusal.message
        assert (await get(plane, run.run_id)).explanation.endswith("attempt 4 was the last one (boom).")

    async def test_in_another_namespace_finds_nothing(self, plane: ControlPlane) -> None:
        await plane.create("a")
        run = await trigger(plane)
        request = CancelRunRequest(namespace="other", run_id=run.run_id)
        assert (await refused(plane.runs.CancelRun(request))).code is grpc.StatusCode.NOT_FOUND
        assert (await get(plane, run.run_id)).state == run_pb2.RUN_STATE_PENDING


class TestAttempts:
    async def test_are_listed_in_order_with_the_open_one_last(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("a")
        run = await trigger(plane)
        request = ListAttemptsRequest(run_id=run.run_id)
        assert not (await plane.runs.ListAttempts(request)).attempts
        for attempt, outcome in ((1, 2), (2, 4)):
            await eye.execute(
                "INSERT INTO attempts SELECT run_id, $1, 'w', $2, 1000000, 2000000, 3, 'boom' FROM runs",
                attempt,
                outcome,
            )
        await _lease(eye, attempt=3)
        attempts = (await plane.runs.ListAttempts(request)).attempts
        assert [(each.attempt, each.outcome, each.term) for each in attempts] == [
            (1, run_pb2.ATTEMPT_OUTCOME_FAILED, 3),
            (2, run_pb2.ATTEMPT_OUTCOME_LOST, 3),
            (3, run_pb2.ATTEMPT_OUTCOME_OPEN, 9),
        ]
        assert not attempts[2].HasField("end_time")
        assert attempts[0].error == "boom"


async def _lease(eye: asyncpg.Connection, attempt: int = 1) -> None:
    """What a dispatcher's lease leaves in the row."""
    await eye.execute(
        "UPDATE runs SET state = 2, attempt = $1, worker = 'w-1', home_term = 9, not_before_us = 0,"
        " started_us = 5000000, lease_until_us = 9000000",
        attempt,
    )
