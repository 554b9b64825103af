"""One job's ledger over the real API, with the rows it is made of: what a dispatcher would have written is planted.

Used by the component tests of GetJobLedger and ExplainJob.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, job_service_pb2

from core.ids import job_hash, occurrence_run_id
from core.states import RunCause, RunState, SkipReason
from tests.support.control_plane import ControlPlane
from tests.support.instants import clear_of_the_next

US = 1_000_000

HOUR, DAY = 3600 * US, 86_400 * US
HOURLY = job_pb2.Schedule(cron=["0 * * * *"])


def micros(stamp: Timestamp) -> int:
    return stamp.ToMicroseconds()


def stamp(at_us: int) -> Timestamp:
    made = Timestamp()
    made.FromMicroseconds(at_us)
    return made


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * US)


def now_us() -> int:
    return round(datetime.now(UTC).timestamp() * US)


def kind(entry: Any) -> str:
    return job_service_pb2.LedgerKind.Name(entry.kind).removeprefix("LEDGER_KIND_")


def kinds(entries: Iterable[Any]) -> list[str]:
    return [kind(entry) for entry in entries]


class Ledger:
    """One job's ledger, and the rows that it is made of."""

    def __init__(self, plane: ControlPlane, eye: asyncpg.Connection, job: job_pb2.Job) -> None:
        self.plane = plane
        self.eye = eye
        self.job_id = UUID(job.job_id)
        self.name = job.name

    async def grow_older(self, age_us: int) -> int:
        """Let the job have been registered so long ago; returns when. Its chain stays where it stands."""
        await self.eye.execute("UPDATE job_versions SET cutover_us = cutover_us - $1, from_us = from_us - $1", age_us)
        await self.eye.execute("UPDATE jobs SET cutover_us = cutover_us - $1, created_us = created_us - $1", age_us)
        made: int = await self.eye.fetchval("SELECT created_us FROM jobs WHERE job_id = $1", self.job_id)
        return made

    async def grow_as_old_as(self, text: str) -> int:
        """Let the job have been registered at this instant of the past, whatever day it is today."""
        return await self.grow_older(now_us() - instant(text))

    async def ran(
        self,
        *instants: int,
        cause: RunCause = RunCause.SCHEDULE,
        state: RunState = RunState.SUCCEEDED,
        ids: Sequence[UUID] = (),
    ) -> list[UUID]:
        """Plant the runs of these instants."""
        made = list(ids) or [occurrence_run_id(self.job_id, job_hash(self.job_id), at_us) for at_us in instants]
        await self.eye.executemany(
            """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us,
                                 state, home_term, ended_us, operation_id)
               VALUES ($1, $2, 1, 0, $3, $4, $4, $4, $5, 1, $4, $6)""",
            [
                (run_id, self.job_id, cause, at_us, state, UUID(int=1) if cause is RunCause.BACKFILL else None)
                for run_id, at_us in zip(made, instants, strict=True)
            ],
        )
        return made

    async def skipped(self, first_us: int, last_us: int, reason: SkipReason = SkipReason.CATCH_UP) -> None:
        """Plant a recorded range."""
        await self.eye.execute(
            "INSERT INTO skips VALUES ($1, $2, $3, $4, 1, 0, 1, $3)", self.job_id, first_us, last_us, reason
        )

    async def page(self, from_us: int, to_us: int, size: int = 1000, token: str = "") -> Any:
        bounds = {"from": stamp(from_us), "to": stamp(to_us)}
        return await self.plane.jobs.GetJobLedger(
            job_service_pb2.GetJobLedgerRequest(name=self.name, page_size=size, page_token=token, **bounds)
        )

    async def whole(self, from_us: int, to_us: int, size: int = 1000) -> list[Any]:
        """The entries of all pages."""
        entries, token = [], ""
        while True:
            page = await self.page(from_us, to_us, size, token)
            assert len(page.entries) <= size
            entries += page.entries
            token = page.next_page_token
            if not token:
                return entries

    async def explain(self, at_us: int) -> Any:
        return await self.plane.jobs.ExplainJob(job_service_pb2.ExplainJobRequest(name=self.name, at=stamp(at_us)))


async def ledger_of(
    plane: ControlPlane, eye: asyncpg.Connection, schedule: job_pb2.Schedule | None, name: str = "a"
) -> Ledger:
    """A new job, of whose next full or half hour the test will see nothing."""
    await clear_of_the_next(1800)
    return Ledger(plane, eye, await plane.create(name, schedule=schedule))


def hours(from_us: int, to_us: int) -> list[int]:
    return list(range(-(-from_us // HOUR) * HOUR, to_us, HOUR))
