"""The connection of the command line: messages in, messages out, over every control plane that it was told of.

It speaks in messages, not in the SDK's plain values: what is printed as JSON is the answer itself, and a job in a file
is the request itself. Each change carries a request id, kept over repetitions. Called by commands.py.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidewheel.addresses import control_plane_addresses
from tidewheel.clock import SystemClock
from tidewheel.failover import Failover
from tidewheel.v1 import (
    admin_service_pb2_grpc,
    calendar_service_pb2_grpc,
    job_service_pb2_grpc,
    operation_service_pb2_grpc,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
)

from tools.cli.exits import usage
from tools.cli.settings import control_plane_address

LARGEST_PAGE = 1_000


class Api:
    """The services that a command calls."""

    def __init__(self, planes: Failover, timeout_s: float) -> None:
        self._planes = planes
        self._timeout_s = timeout_s

    async def jobs(self, method: str, request: Any) -> Any:
        """Answer of a JobService call."""
        return await self._call(job_service_pb2_grpc.JobServiceStub, method, request)

    async def runs(self, method: str, request: Any) -> Any:
        """Answer of a RunService call."""
        return await self._call(run_service_pb2_grpc.RunServiceStub, method, request)

    async def schedules(self, method: str, request: Any) -> Any:
        """Answer of a ScheduleService call."""
        return await self._call(schedule_service_pb2_grpc.ScheduleServiceStub, method, request)

    async def calendars(self, method: str, request: Any) -> Any:
        """Answer of a CalendarService call."""
        return await self._call(calendar_service_pb2_grpc.CalendarServiceStub, method, request)

    async def operations(self, method: str, request: Any) -> Any:
        """Answer of an OperationService call."""
        return await self._call(operation_service_pb2_grpc.OperationServiceStub, method, request)

    async def admin(self, method: str, request: Any) -> Any:
        """Answer of an AdminService call."""
        return await self._call(admin_service_pb2_grpc.AdminServiceStub, method, request)

    async def _call(self, stub: Any, method: str, request: Any) -> Any:
        return await self._planes.call(stub, method, request, timeout_s=self._timeout_s)


@asynccontextmanager
async def open_api(address: str | None, timeout_s: float) -> AsyncIterator[Api]:
    """The API at `address`, else where the environment or the configuration says. Raises Failure(USAGE)."""
    try:
        addresses = control_plane_addresses(control_plane_address(address))
    except ValueError as error:
        raise usage(str(error), "an address is host:port; several stand with commas between them") from error
    planes = Failover(addresses, SystemClock())
    try:
        yield Api(planes, timeout_s)
    finally:
        await planes.close()


def request_id(given: str | None) -> str:
    """The caller's, or a new one."""
    return given or str(uuid.uuid4())


async def all_pages(call: Any, method: str, request: Any, field: str, limit: int) -> Any:
    """One answer with the items of every page up to `limit` (0: all), as if it had been one page.

    Its next_page_token is that of the last page read: empty when nothing is left.
    """
    whole: Any = None
    while True:
        left = limit - len(getattr(whole, field)) if whole is not None and limit else limit
        request.page_size = min(left or LARGEST_PAGE, LARGEST_PAGE)
        page = await call(method, request)
        if whole is None:
            whole = page
        else:
            getattr(whole, field).extend(getattr(page, field))
            whole.next_page_token = page.next_page_token
        if not page.next_page_token or (limit and len(getattr(whole, field)) >= limit):
            return whole
        request.page_token = page.next_page_token
