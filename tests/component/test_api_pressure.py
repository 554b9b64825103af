"""Callers that give up, callers that come in crowds: what they leave behind is nothing."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import grpc
from tidewheel.v1 import job_pb2, run_pb2
from tidewheel.v1.calendar_service_pb2 import GetCalendarRequest
from tidewheel.v1.job_service_pb2 import CreateJobRequest, GetJobRequest, TriggerJobRequest

from tests.support.control_plane import ControlPlane, refused, settings_for
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer

MINUTELY = job_pb2.Schedule(cron=["* * * * *"])


async def test_b106_calls_that_are_given_up_leave_no_session_in_a_transaction(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    """300 calls with deadlines of 1 to 20 ms against a pool of 8, while a lock holds half of them up."""
    await plane.create("held")
    holding = eye.transaction()
    await holding.start()
    await eye.execute("SELECT version FROM jobs WHERE name = 'held' FOR UPDATE")

    codes: set[grpc.StatusCode] = set()

    async def give_up(number: int) -> None:
        deadline_s = 0.001 * (1 + number % 20)
        try:
            if number % 2:
                await plane.jobs.TriggerJob(TriggerJobRequest(name="held"), timeout=deadline_s)
            else:
                job = job_pb2.Job(name=f"job-{number}", handler="h", schedule=MINUTELY)
                await plane.jobs.CreateJob(CreateJobRequest(job=job, request_id=str(number)), timeout=deadline_s)
        except grpc.aio.AioRpcError as error:
            codes.add(error.code())

    await asyncio.gather(*(give_up(number) for number in range(300)))
    await holding.rollback()
    assert codes <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}

    async def all_idle() -> bool:
        states = await eye.fetch(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {row["state"] for row in states} <= {"idle"}

    await eventually(all_idle)
    assert (await plane.jobs.GetJob(GetJobRequest(name="held"), timeout=30)).name == "held"
    # Whatever came through came through whole, and a repeat finds it.
    orphans = await eye.fetchval(
        "SELECT count(*) FROM jobs j WHERE j.name <> 'held'"
        " AND NOT EXISTS (SELECT 1 FROM due d WHERE d.job_id = j.job_id)"
    )
    assert orphans == 0
    job = job_pb2.Job(name="job-2", handler="h", schedule=MINUTELY)
    assert (await plane.jobs.CreateJob(CreateJobRequest(job=job, request_id="2"))).version == 1


async def test_calls_beyond_the_limit_are_refused_at_once(
    database_url: str, isolation: str, etcd: EtcdServer, eye: asyncpg.Connection
) -> None:
    plane = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, max_concurrent_calls=4))
    try:
        await plane.serving()
        await plane.create("held")
        holding = eye.transaction()
        await holding.start()
        await eye.execute("SELECT version FROM jobs WHERE name = 'held' FOR UPDATE")
        calls = [
            asyncio.ensure_future(plane.jobs.TriggerJob(TriggerJobRequest(name="held", request_id="one")))
            for _ in range(6)
        ]
        await eventually(lambda: sum(call.done() for call in calls) == 2)
        await holding.rollback()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refusals = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert [error.code() for error in refusals] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
        assert len({answer.run_id for answer in answers if isinstance(answer, run_pb2.Run)}) == 1
        assert (await plane.get("held")).name == "held"
    finally:
        await plane.close()


async def test_a_defect_is_told_without_its_trace(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    # A table that no loop of the replica reads: a defect in one of those ends the process.
    await eye.execute("ALTER TABLE calendars RENAME TO hidden")
    refusal = await refused(plane.calendars.GetCalendar(GetCalendarRequest(name="a")))
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "hidden" not in refusal.message
    assert "SELECT" not in refusal.message
