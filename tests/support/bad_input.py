"""Creations that must be refused: each with the field at fault named, and nothing changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg
import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1.job_pb2 import Exclusions, Interval, Job, Schedule
from tidewheel.v1.job_service_pb2 import (
    CreateJobRequest,
)

from tests.support.control_plane import ControlPlane, refused
from tests.support.instants import us

US = 1_000_000
INVALID = grpc.StatusCode.INVALID_ARGUMENT
TABLES = ("jobs", "job_versions", "due", "runs", "skips", "calendar_jobs", "audit", "requests")


def cron(*lines: str, **fields: Any) -> Schedule:
    return Schedule(cron=lines, **fields)


def every(**interval: Any) -> Schedule:
    return Schedule(every=[Interval(**interval)])


def excluding(**exclusions: Any) -> Schedule:
    return cron("* * * * *", exclude=Exclusions(**exclusions))


def stamp(text: str) -> Timestamp:
    return Timestamp(seconds=us(text) // US)


def creation(**fields: Any) -> CreateJobRequest:
    return CreateJobRequest(job=Job(**{"name": "new", "handler": "h", **fields}), request_id="r-bad")


async def rows(eye: asyncpg.Connection) -> dict[str, int]:
    return {table: await eye.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}


async def all_refused(
    plane: ControlPlane, eye: asyncpg.Connection, cases: Iterable[tuple[str, dict[str, Any]]]
) -> None:
    """Each creation is refused with exactly its field named, and no row changes."""
    before = await rows(eye)
    for field, fields in cases:
        refusal = await refused(plane.jobs.CreateJob(creation(**fields)))
        assert (refusal.code, list(refusal.fields)) == (INVALID, [field]), f"{str(fields)[:200]}: {refusal}"
        assert refusal.fields[field], "the rule is told"
        assert "Traceback" not in refusal.message
        assert len(refusal.message) <= 500
    assert await rows(eye) == before
    assert not plane.task.done(), "the same process goes on"
