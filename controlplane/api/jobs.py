"""JobService: one servicer over handlers that have a duty each. Contract: proto/tidewheel/v1/job_service.proto.

Who answers what: job_reads.py, job_edits.py, job_versions.py, triggers.py; the accounts of occurrences and the
operations over many of them have modules of their own. Each hands over its methods by name (`handlers()`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from tidewheel.v1 import job_service_pb2, job_service_pb2_grpc

from controlplane.api.calls import Calls, Origin

Handler = Callable[[Any, Origin], Awaitable[Any]]
Handlers = Mapping[str, Handler]

SERVICE = "tidewheel.v1.JobService"
METHODS = frozenset(method.name for method in job_service_pb2.DESCRIPTOR.services_by_name["JobService"].methods)


def job_servicer(calls: Calls, *parts: Handlers) -> job_service_pb2_grpc.JobServiceServicer:
    """A servicer that answers each method with the handler of its name; what no part answers is UNIMPLEMENTED."""
    methods = {name: _answering(calls, name, handle) for part in parts for name, handle in part.items()}
    unknown = methods.keys() - METHODS
    if unknown:
        raise ValueError(f"{SERVICE} has no method {min(unknown)}")
    servicer: job_service_pb2_grpc.JobServiceServicer = type(
        "JobServicer", (job_service_pb2_grpc.JobServiceServicer,), methods
    )()
    return servicer


def _answering(calls: Calls, method: str, handle: Handler) -> Callable[..., Awaitable[Any]]:
    async def answer(servicer: object, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await calls.answer(f"/{SERVICE}/{method}", request, context, handle)

    return answer
