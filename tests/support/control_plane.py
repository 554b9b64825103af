"""Control planes in the test's own event loop, over a real database and etcd, with their real ports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from tidewheel.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    calendar_service_pb2_grpc,
    discovery_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    operation_service_pb2_grpc,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
)

from controlplane.process import run
from core.config import (
    ClusterSettings,
    ControlPlaneSettings,
    DatabaseSettings,
    EtcdSettings,
    Settings,
)
from tests.support.polling import eventually
from tools.servers.free_port import free_port

SHARDS = 8


def settings_for(url: str, isolation: str, etcd: str, cluster: str, **controlplane: Any) -> Settings:
    """One replica's settings, on a free port."""
    return Settings(
        cluster=ClusterSettings(name=cluster, shard_count=SHARDS),
        database=DatabaseSettings(url=url, isolation=isolation),
        etcd=EtcdSettings(endpoints=(etcd,)),
        controlplane=ControlPlaneSettings(listen=f"127.0.0.1:{free_port()}", **controlplane),
    )


@dataclass
class Refusal:
    """A failed call: its code, its line, and the fields at fault with their rules."""

    code: grpc.StatusCode
    message: str
    fields: dict[str, str]
    reason: str = ""


class ControlPlane:
    """One replica and stubs of everything it serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = settings.controlplane.listen
        self.stop = asyncio.Event()
        self.task = asyncio.ensure_future(run(settings, self.stop))
        self.channel = grpc.aio.insecure_channel(self.address, options=[("grpc.enable_retries", 0)])
        self.jobs: Any = job_service_pb2_grpc.JobServiceStub(self.channel)
        self.runs: Any = run_service_pb2_grpc.RunServiceStub(self.channel)
        self.admin: Any = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        self.discovery: Any = discovery_service_pb2_grpc.DiscoveryServiceStub(self.channel)
        self.calendars: Any = calendar_service_pb2_grpc.CalendarServiceStub(self.channel)
        self.operations: Any = operation_service_pb2_grpc.OperationServiceStub(self.channel)
        self.schedules: Any = schedule_service_pb2_grpc.ScheduleServiceStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)

    async def serving(self) -> ControlPlane:
        """Wait until it says that it can work."""

        async def says_so() -> bool:
            assert not self.task.done(), f"the replica ended: {self.task}"
            return await self.status_of("tidewheel.v1.JobService") == "SERVING"

        await eventually(says_so, within_s=60)
        return self

    async def status_of(self, service: str) -> str:
        """The standard health service's word."""
        try:
            answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def close(self) -> None:
        """End the replica in order."""
        await self.channel.close()
        self.stop.set()
        await self.task

    async def create(self, name: str, request_id: str = "", **fields: Any) -> job_pb2.Job:
        """Create a job; the handler is "h" unless given."""
        job = job_pb2.Job(**{"name": name, "handler": "h", **fields})
        answer: job_pb2.Job = await self.jobs.CreateJob(
            job_service_pb2.CreateJobRequest(job=job, request_id=request_id)
        )
        return answer

    async def status(self) -> admin_service_pb2.ClusterStatus:
        """What it says of the cluster."""
        answer: admin_service_pb2.ClusterStatus = await self.admin.GetClusterStatus(
            admin_service_pb2.GetClusterStatusRequest()
        )
        return answer

    async def get(self, name: str) -> job_pb2.Job:
        answer: job_pb2.Job = await self.jobs.GetJob(job_service_pb2.GetJobRequest(name=name))
        return answer


async def refused(call: Awaitable[Any]) -> Refusal:
    """What a call that must fail failed with."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return _refusal(error)
    raise AssertionError(f"the call was answered: {answer!r}")


def _refusal(error: grpc.aio.AioRpcError) -> Refusal:
    refusal = Refusal(error.code(), error.details() or "", {})
    status: Any = rpc_status.from_call(error)  # type: ignore[arg-type]
    for detail in () if status is None else status.details:
        bad, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
        if detail.Unpack(bad):
            refusal.fields = {violation.field: violation.description for violation in bad.field_violations}
        if detail.Unpack(info):
            refusal.reason = info.reason
    return refusal
