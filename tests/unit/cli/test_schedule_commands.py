"""What `schedule compare` asks: the draft is what an update with the same options would make of the job."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from tidewheel.v1 import job_pb2, schedule_service_pb2

from tools.cli import schedules
from tools.cli.commands import Call, Output
from tools.cli.printing import Printer

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)
PRESENT = job_pb2.Schedule(cron=["0 3 * * *"], zone="Europe/Berlin", windows=["nights"])


class ScriptedServer:
    """Has one job; answers every comparison with nothing, and keeps it."""

    def __init__(self) -> None:
        self.compared: list[schedule_service_pb2.CompareSchedulesRequest] = []

    async def jobs(self, method: str, request: Any) -> Message:
        assert method == "GetJob"
        return job_pb2.Job(name=request.name, schedule=PRESENT)

    async def schedules(self, method: str, request: Any) -> Message:
        assert method == "CompareSchedules"
        self.compared.append(request)
        return schedule_service_pb2.CompareSchedulesResponse()


async def compared(given: dict[str, Any], **more: Any) -> schedule_service_pb2.CompareSchedulesRequest:
    server = ScriptedServer()
    call = Call(server, "shop", Output.TABLE, Printer(io.StringIO(), terminal=False), NOW)  # type: ignore[arg-type]
    await schedules.compare(call, name="report", **({"limit": 100, "version": 0} | more), **given)
    (request,) = server.compared
    return request


async def test_what_is_not_given_is_compared_as_it_stands() -> None:
    request = await compared({"jitter": "5m"})
    expected = job_pb2.Schedule(
        cron=["0 3 * * *"], zone="Europe/Berlin", windows=["nights"], jitter=Duration(seconds=300)
    )
    assert request.after.draft == expected
    assert (request.before.job, request.before.version) == ("report", 0)


async def test_new_times_replace_those_of_the_job() -> None:
    request = await compared({"every": ["2h"], "window": [""]}, since="now", span="90d")
    assert request.after.draft == job_pb2.Schedule(
        every=[job_pb2.Interval(elapsed=Duration(seconds=7200))], zone="Europe/Berlin"
    )
    assert (getattr(request, "from").seconds, request.span.seconds) == (int(NOW.timestamp()), 90 * 86_400)


async def test_another_version_is_compared_as_it_is() -> None:
    request = await compared({}, version=2, to_version=0)
    assert (request.before.version, request.after.job, request.after.version) == (2, "report", 0)
    assert not request.after.HasField("draft")
