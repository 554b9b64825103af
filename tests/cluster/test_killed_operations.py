"""An operation outlives the replica that began it: kill -9 in the middle of a step, and another one finishes."""

from __future__ import annotations

import asyncio

import asyncpg
import grpc
from tidewheel.v1 import (
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    operation_pb2,
    operation_service_pb2,
    operation_service_pb2_grpc,
)

from tests.support.live_system import LiveSystem
from tests.support.polling import eventually

JOBS = 350
HELD = "job-0150"


async def test_a_pause_of_many_jobs_goes_on_at_another_replica(system: LiveSystem) -> None:
    """Somebody holds a job in the middle, so that the operation stands still there when its replica is killed."""
    dying, surviving = (member.address for member in system.control_planes)
    eye = await asyncpg.connect(system.backing.database_url.replace("+asyncpg", ""))
    async with grpc.aio.insecure_channel(dying) as channel:
        jobs = job_service_pb2_grpc.JobServiceStub(channel)
        schedule = job_pb2.Schedule(cron=["0 3 * * *"])
        for start in range(0, JOBS, 50):
            wanted = [
                job_pb2.Job(name=f"job-{n:04}", handler="record", schedule=schedule) for n in range(start, start + 50)
            ]
            await asyncio.gather(*(jobs.CreateJob(job_service_pb2.CreateJobRequest(job=job)) for job in wanted))
        held = eye.transaction()
        await held.start()
        await eye.execute("SELECT version FROM jobs WHERE name = $1 FOR UPDATE", HELD)
        begun = await jobs.PauseJobs(job_service_pb2.PauseJobsRequest(expected_count=JOBS, note="storm"))
    assert (begun.operation.state, begun.operation.done) == (operation_pb2.OPERATION_STATE_RUNNING, 100)
    system.fleet.kill(system.control_planes[0])
    await held.rollback()
    async with grpc.aio.insecure_channel(surviving) as channel:
        operations = operation_service_pb2_grpc.OperationServiceStub(channel)
        wish = operation_service_pb2.GetOperationRequest(operation_id=begun.operation.operation_id)

        async def has_ended() -> bool:
            return bool((await operations.GetOperation(wish)).HasField("end_time"))

        await eventually(has_ended, within_s=60, what="the operation ends")
        ended = await operations.GetOperation(wish)
    assert (ended.state, ended.done, ended.unchanged, ended.error) == (
        operation_pb2.OPERATION_STATE_SUCCEEDED,
        JOBS,
        0,
        "",
    )
    rows = await eye.fetch("SELECT state, version, count(*) AS jobs FROM jobs GROUP BY state, version")
    assert [tuple(row) for row in rows] == [(2, 2, JOBS)]
    await eye.close()
