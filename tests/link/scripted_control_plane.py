"""A control plane played by a test over real gRPC: records requests, and answers or refuses as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from tidewheel.v1 import discovery_service_pb2, job_pb2, job_service_pb2, run_pb2, run_service_pb2
from tidewheel.v1.discovery_service_pb2_grpc import DiscoveryServiceServicer, add_DiscoveryServiceServicer_to_server
from tidewheel.v1.job_service_pb2_grpc import JobServiceServicer, add_JobServiceServicer_to_server
from tidewheel.v1.run_service_pb2_grpc import RunServiceServicer, add_RunServiceServicer_to_server

Before = Callable[[str, Message, Any], Any]


async def nothing(method: str, request: Message, context: Any) -> None:
    """Answer at once."""


def violations(**rules: str) -> bytes:
    """What a control plane puts into `grpc-status-details-bin`."""
    bad = BadRequest(
        field_violations=[
            BadRequest.FieldViolation(field=name.replace("__", "."), description=rule) for name, rule in rules.items()
        ]
    )
    status = Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="refused")
    status.details.add().Pack(bad)
    return status.SerializeToString()


class ScriptedControlPlane(JobServiceServicer, RunServiceServicer, DiscoveryServiceServicer):
    """One control plane. `before` runs ahead of each answer: it may wait, or abort the call."""

    def __init__(self) -> None:
        self.before: Before = nothing
        self.requests: list[tuple[str, Any]] = []
        self.dispatchers: list[str] = []
        self.watchers = 0
        self.address = ""
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def start(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_JobServiceServicer_to_server(self, server)
        add_RunServiceServicer_to_server(self, server)
        add_DiscoveryServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port(self.address or '127.0.0.1:0')}"
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def names(self, *dispatchers: str) -> None:
        """The list of dispatchers from now on."""
        self.dispatchers = list(dispatchers)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _take(self, method: str, request: Any, context: Any) -> None:
        self.requests.append((method, type(request).FromString(request.SerializeToString())))
        await self.before(method, request, context)

    async def WatchDispatchers(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.watchers += 1
        try:
            while True:
                changed = self._changed
                yield discovery_service_pb2.DispatcherList(
                    dispatchers=[
                        discovery_service_pb2.DispatcherAddress(dispatcher_id=address, address=address)
                        for address in self.dispatchers
                    ]
                )
                await changed.wait()
        finally:
            self.watchers -= 1

    async def _job(self, method: str, request: Any, context: Any) -> job_pb2.Job:
        await self._take(method, request, context)
        name = request.job.name if hasattr(request, "job") else request.name
        return job_pb2.Job(namespace="default", name=name, state=job_pb2.JOB_STATE_ACTIVE, version=1, etag="e1")

    async def CreateJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("CreateJob", request, context)

    async def GetJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("GetJob", request, context)

    async def UpdateJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("UpdateJob", request, context)

    async def PauseJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("PauseJob", request, context)

    async def ResumeJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("ResumeJob", request, context)

    async def DeleteJob(self, request: Any, context: Any) -> job_pb2.Job:
        return await self._job("DeleteJob", request, context)

    async def ListJobs(self, request: Any, context: Any) -> job_service_pb2.ListJobsResponse:
        """Five jobs, in pages."""
        await self._take("ListJobs", request, context)
        first = int(request.page_token or 0)
        last = min(5, first + request.page_size)
        return job_service_pb2.ListJobsResponse(
            jobs=[job_pb2.Job(name=f"job-{number}") for number in range(first, last)],
            next_page_token=str(last) if last < 5 else "",
        )

    async def TriggerJob(self, request: Any, context: Any) -> run_pb2.Run:
        await self._take("TriggerJob", request, context)
        return run_pb2.Run(run_id="r1", job=request.name, cause=run_pb2.RUN_CAUSE_TRIGGER)

    async def GetRun(self, request: Any, context: Any) -> run_pb2.Run:
        await self._take("GetRun", request, context)
        run = run_pb2.Run(run_id=request.run_id, state=run_pb2.RUN_STATE_SUCCEEDED, result=b"[1]")
        run.scheduled_for.seconds = 1_893_456_000
        return run

    async def ListRuns(self, request: Any, context: Any) -> run_service_pb2.ListRunsResponse:
        await self._take("ListRuns", request, context)
        return run_service_pb2.ListRunsResponse(runs=[run_pb2.Run(run_id="r1")])

    async def ListAttempts(self, request: Any, context: Any) -> run_service_pb2.ListAttemptsResponse:
        await self._take("ListAttempts", request, context)
        lost = run_pb2.Attempt(attempt=1, outcome=run_pb2.ATTEMPT_OUTCOME_LOST)
        return run_service_pb2.ListAttemptsResponse(attempts=[lost])

    async def CancelRun(self, request: Any, context: Any) -> run_pb2.Run:
        await self._take("CancelRun", request, context)
        return run_pb2.Run(run_id=request.run_id, state=run_pb2.RUN_STATE_CANCELED)


@asynccontextmanager
async def control_planes(count: int = 1) -> AsyncIterator[list[ScriptedControlPlane]]:
    """So many control planes, serving."""
    made = [ScriptedControlPlane() for _ in range(count)]
    try:
        for one in made:
            await one.start()
        yield made
    finally:
        for one in made:
            await one.stop()
