"""Loads jobs for a benchmark straight into the tables, in the rows that the API would write, and reads what became of
them. The API's own speed is another case's business.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from core.ids import chain_id, job_hash, occurrence_run_id, shard_of
from core.jobspec import JobSpec
from core.policy import Overlap
from core.schedule import Every, Schedule

US = 1_000_000


@dataclass(frozen=True)
class Expected:
    """What must have become of the loaded jobs: every run id, with its due instant in microseconds."""

    due_us: dict[str, int]
    # The shard of the job of each.
    shards: dict[str, int]

    def before(self, until_us: int) -> Expected:
        """Those that are due before an instant: the rest of a load that nobody waits for."""
        kept = {run: due_us for run, due_us in self.due_us.items() if due_us < until_us}
        return Expected(kept, {run: self.shards[run] for run in kept})


def one_offs(count: int, from_us: int, over_us: int) -> list[Schedule]:
    """`count` jobs that fire once, spread evenly over a span."""
    return [Schedule(at_us=(from_us + over_us * n // count,)) for n in range(count)]


def recurring(count: int, every_us: int, from_us: int, until_us: int) -> list[Schedule]:
    """`count` jobs that fire at every `every_us`, their phases spread evenly."""
    return [
        Schedule(every=(Every(elapsed_us=every_us, anchor_us=from_us + every_us * n // count),), end_us=until_us)
        for n in range(count)
    ]


class Loader:
    """Writes jobs into one database and judges the runs they made."""

    def __init__(self, url: str, *, shard_count: int = 64, bucket_width_us: int = 5 * US) -> None:
        self._url = url.replace("+asyncpg", "")
        self._shard_count = shard_count
        self._bucket_width_us = bucket_width_us

    async def load(self, schedules: Sequence[Schedule], *, now_us: int, prefix: str) -> Expected:
        """Register one job a schedule, handler `noop`; returns the runs they owe from now on."""
        jobs, versions, due = [], [], []
        owed: dict[str, int] = {}
        shards: dict[str, int] = {}
        for number, schedule in enumerate(schedules):
            job_id = uuid.uuid4()
            hash16 = job_hash(job_id)
            shard = shard_of(hash16, self._shard_count)
            spec = json.dumps(JobSpec("noop", schedule=schedule, overlap=Overlap.ALLOW).to_json())
            first_us = schedule.next_after(now_us)
            if first_us is None:
                raise ValueError(f"schedule {number} has no occurrence after the load")
            jobs.append((job_id, "default", f"{prefix}-{number}", hash16, shard, 1, 1, now_us, now_us, now_us, 0, ""))
            versions.append((job_id, 1, 1, spec, b"", now_us, now_us, "bench", "", "", ""))
            bucket = first_us // self._bucket_width_us
            due.append((shard, bucket, first_us, chain_id(job_id, 1), 1, job_id, 1, first_us))
            at_us: int | None = first_us
            while at_us is not None:
                run = str(occurrence_run_id(job_id, hash16, at_us))
                owed[run], shards[run] = at_us, shard
                at_us = schedule.next_after(at_us)
        connection = await asyncpg.connect(self._url)
        try:
            async with connection.transaction():
                await connection.copy_records_to_table("jobs", records=jobs, columns=_JOBS)
                await connection.copy_records_to_table("job_versions", records=versions, columns=_VERSIONS)
                await connection.copy_records_to_table("due", records=due, columns=_DUE)
            await connection.execute("ANALYZE")
        finally:
            await connection.close()
        return Expected(owed, shards)

    async def count_open(self, expected: Expected) -> int:
        """How many of the owed runs have not ended yet."""
        connection = await asyncpg.connect(self._url)
        try:
            ids = [uuid.UUID(run) for run in expected.due_us]
            ended = await connection.fetchval(
                "SELECT count(*) FROM runs WHERE run_id = ANY($1) AND state IN (3, 4, 5, 6)", ids
            )
            return len(ids) - int(ended)
        finally:
            await connection.close()

    async def ended_us(self, expected: Expected) -> dict[str, tuple[int, int]]:
        """State and end of every owed run that there is."""
        connection = await asyncpg.connect(self._url)
        try:
            ids = [uuid.UUID(run) for run in expected.due_us]
            rows = await connection.fetch("SELECT run_id, state, ended_us FROM runs WHERE run_id = ANY($1)", ids)
            return {str(row["run_id"]): (row["state"], row["ended_us"]) for row in rows}
        finally:
            await connection.close()

    async def check_rows(self, expected: Expected, prefix: str, until_us: int) -> str:
        """What is wrong with the rows of a load, as one line; empty when each owed run succeeded and there is no other.

        Only runs due before `until_us` are looked at.
        """
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch(
                "SELECT r.run_id, r.state FROM runs r JOIN jobs j ON j.job_id = r.job_id"
                " WHERE j.name LIKE $1 AND r.due_at_us < $2",
                f"{prefix}-%",
                until_us,
            )
        finally:
            await connection.close()
        states = {str(row["run_id"]): row["state"] for row in rows}
        owed = {run for run, due_us in expected.due_us.items() if due_us < until_us}
        missing, others = len(owed - states.keys()), len(states.keys() - owed)
        failed = sum(states.get(run, 3) != 3 for run in owed)
        if not (missing or others or failed):
            return ""
        return f"rows: {missing} runs missing, {others} that nobody owes, {failed} that did not succeed"

    async def opened_by_takeover(self, since_us: int) -> dict[int, int]:
        """When each shard that was taken over since then got its new owner, by the rows of its terms."""
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch(
                "SELECT shard, max(opened_us) AS at_us FROM shard_terms"
                " WHERE reason = 'takeover' AND opened_us >= $1 GROUP BY shard",
                since_us,
            )
        finally:
            await connection.close()
        return {row["shard"]: row["at_us"] for row in rows}

    async def settings(self) -> str:
        """The settings that make the figures worth something."""
        connection = await asyncpg.connect(self._url)
        try:
            shown = [
                f"{name}={await connection.fetchval(f'SHOW {name}')}"
                for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
            ]
            return ", ".join(shown)
        finally:
            await connection.close()


_JOBS = (
    "job_id", "namespace", "name", "hash", "shard", "version", "state", "cutover_us", "created_us", "updated_us",
    "deleted_us", "error",
)  # fmt: skip
_VERSIONS = (
    "job_id", "version", "state", "spec", "payload", "cutover_us", "from_us", "author", "request_id", "note", "trace",
)  # fmt: skip
_DUE = ("shard", "bucket", "due_at_us", "id", "kind", "job_id", "job_version", "scheduled_for_us")
