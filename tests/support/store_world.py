"""A founded cluster in one database, rows planted by hand, and a look at what stands there: for tests of core/store.

Planting and looking use a connection of their own, so that nothing under test helps to judge itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy.engine import make_url

from core.buckets import NO_END, BucketScale
from core.clock import US_PER_S, SystemClock
from core.fence import TermRow
from core.ids import chain_id, occurrence_run_id
from core.policy import Overlap
from core.rand import SeededRand
from core.states import DueKind, JobState, RunState
from core.store.cluster import found_cluster
from core.store.completion import Completion
from core.store.database import Database, DatabaseConfig, Transaction
from core.store.decisions import DueKey, FireChain, FireRun, LeaseGrant, NewRun, NextOccurrence, SkippedRange
from core.store.discovery import DueRow
from core.store.firing import Firing
from core.store.gates import GateKeeper
from core.store.leases import Leases
from core.store.marks import MarkKeeper
from core.store.open_runs import OpenRuns
from core.store.statement import STATEMENTS
from core.store.terms import Claim, Terms
from core.store.transact import RetryLimits
from tests.support.clock import NEW_YEAR_2026_US

SHARDS = 4
WIDTH_MS = 5000
NOW_US = NEW_YEAR_2026_US
LEASE_US = 15 * US_PER_S
OWNER = "dispatcher-a"
OTHER = "dispatcher-b"


def asyncpg_url(url: str) -> str:
    """The URL as asyncpg takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@dataclass
class Job:
    """A planted job; its shard is planted too, whatever its hash."""

    job_id: UUID
    shard: int
    version: int = 1
    hash16: int = 1

    @property
    def chain_id(self) -> UUID:
        return chain_id(self.job_id, self.version)

    def run_id(self, scheduled_for_us: int) -> UUID:
        return occurrence_run_id(self.job_id, self.hash16, scheduled_for_us)


@dataclass
class StoreWorld:
    """Everything that a test of the store needs at hand."""

    database: Database
    eye: asyncpg.Connection
    rand: SeededRand = field(default_factory=lambda: SeededRand(1))
    scale: BucketScale = field(default_factory=lambda: BucketScale(WIDTH_MS))

    @property
    def bucket(self) -> int:
        """The bucket of NOW_US: floor and watermark of every shard stand there at first."""
        return self.scale.bucket_of(NOW_US)

    @property
    def terms(self) -> Terms:
        return Terms(self.database)

    def firing(self, owner: str = OWNER) -> Firing:
        return Firing(self.database, owner)

    def completion(self, owner: str = OWNER) -> Completion:
        return Completion(self.database, owner)

    def leases(self, owner: str = OWNER) -> Leases:
        return Leases(self.database, owner)

    def gates(self, owner: str = OWNER) -> GateKeeper:
        return GateKeeper(self.database, owner)

    def open_runs(self, owner: str = OWNER) -> OpenRuns:
        return OpenRuns(self.database, owner)

    def marks(self, owner: str = OWNER) -> MarkKeeper:
        return MarkKeeper(self.database, owner)

    async def own(self, shard: int, owner: str = OWNER) -> TermRow:
        """Make `owner` the first owner of the shard."""
        return await self._claim(Claim(shard, None), owner)

    async def take_over(self, term: TermRow, owner: str = OTHER) -> TermRow:
        return await self._claim(Claim(term.shard, term), owner)

    async def _claim(self, claim: Claim, owner: str) -> TermRow:
        (term,) = await self.terms.claim([claim], owner=owner, op_id=self.rand.uuid(), now_us=NOW_US, reason="test")
        return term

    async def split(self, term: TermRow, at_bucket: int, owner: str = OTHER) -> TermRow:
        """End the term at a bucket and let another owner begin there, as a planned move leaves it."""
        await self.eye.execute(
            "UPDATE shard_terms SET to_bucket = $3 WHERE shard = $1 AND term = $2", term.shard, term.term, at_bucket
        )
        row = (term.shard, term.term + 1, at_bucket, term.to_bucket, owner, self.rand.uuid(), 1, NOW_US, "split")
        await self.eye.execute("INSERT INTO shard_terms VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *row)
        return (await self.terms.history(term.shard))[-1]

    async def plant_job(self, shard: int = 0, *, version: int = 1, state: JobState = JobState.ACTIVE) -> Job:
        job = Job(self.rand.uuid(), shard, version)
        await self.eye.execute(
            """INSERT INTO jobs
                 (job_id, namespace, name, hash, shard, version, state, cutover_us, created_us, updated_us, deleted_us)
               VALUES ($1, 'default', $2, $3, $4, $5, $6, 0, 0, 0, $7)""",
            *(job.job_id, str(job.job_id), job.hash16, shard, version, int(state), int(state is JobState.DELETED)),
        )
        return job

    async def bump_version(self, job: Job) -> None:
        """An edit committed meanwhile."""
        await self.eye.execute("UPDATE jobs SET version = version + 1 WHERE job_id = $1", job.job_id)

    async def plant_occurrence(self, job: Job, due_at_us: int = NOW_US) -> DueRow:
        """The due row of the job's chain, in the bucket of its due time."""
        kind = DueKind.OCCURRENCE
        return await self._plant_due(job, due_at_us, job.chain_id, kind, due_at_us)

    async def plant_retry(self, job: Job, run_id: UUID, due_at_us: int = NOW_US) -> DueRow:
        """The due row of a run's next attempt."""
        return await self._plant_due(job, due_at_us, run_id, DueKind.RUN, NOW_US)

    async def _plant_due(self, job: Job, due_at_us: int, due_id: UUID, kind: DueKind, scheduled_for_us: int) -> DueRow:
        bucket = self.scale.bucket_of(due_at_us)
        row = (job.shard, bucket, due_at_us, due_id, int(kind), job.job_id, job.version, scheduled_for_us)
        await self.eye.execute("INSERT INTO due VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row)
        return DueRow(job.shard, bucket, due_at_us, due_id, kind, job.job_id, job.version, scheduled_for_us)

    async def plant_run(
        self,
        job: Job,
        *,
        state: RunState = RunState.LEASED,
        attempt: int = 1,
        home_term: int = 1,
        scheduled_for_us: int = NOW_US,
        **columns: Any,
    ) -> UUID:
        """A run as it would stand; LEASED until NOW + the lease, with token hash b"token"."""
        run_id = job.run_id(scheduled_for_us)
        leased = state is RunState.LEASED
        values: dict[str, Any] = {
            "run_id": run_id,
            "job_id": job.job_id,
            "job_version": job.version,
            "shard": job.shard,
            "cause": 1,
            "scheduled_for_us": scheduled_for_us,
            "due_at_us": scheduled_for_us,
            "created_us": scheduled_for_us,
            "state": int(state),
            "attempt": attempt,
            "home_term": home_term,
            "token_hash": b"token" if leased else None,
            "lease_until_us": NOW_US + LEASE_US if leased else 0,
            "started_us": NOW_US if leased else 0,
            "ended_us": 0 if state in (RunState.PENDING, RunState.LEASED) else NOW_US,
            "worker": "worker-1" if leased else "",
            **columns,
        }
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        await self.eye.execute(f"INSERT INTO runs ({', '.join(values)}) VALUES ({places})", *values.values())
        return run_id

    async def due(self, shard: int = 0) -> list[DueRow]:
        """Every due row of the shard, wherever it stands, in the order of its key."""
        rows = await self.eye.fetch("SELECT * FROM due WHERE shard = $1 ORDER BY bucket, due_at_us, id", shard)
        return [DueRow(r[0], r[1], r[2], r[3], DueKind(r[4]), r[5], r[6], r[7], r[8], r[9]) for r in rows]

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table, in the order of its first columns."""
        return [dict(row) for row in await self.eye.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]

    async def run(self, run_id: UUID) -> dict[str, Any]:
        row = await self.eye.fetchrow("SELECT * FROM runs WHERE run_id = $1", run_id)
        assert row is not None, f"no run {run_id}"
        return dict(row)


async def open_world(config: DatabaseConfig, limits: RetryLimits | None = None, *, eye_url: str = "") -> StoreWorld:
    """A founded cluster of SHARDS shards, owned by nobody yet. `eye_url` leads the test's own eye another way."""
    database = Database(config, SystemClock(), SeededRand(2), limits)
    await found_cluster(
        database, cluster_id=SeededRand(3).uuid(), shard_count=SHARDS, bucket_width_ms=WIDTH_MS, now_us=NOW_US
    )
    return StoreWorld(database, await asyncpg.connect(asyncpg_url(eye_url or config.url)))


async def close_world(world: StoreWorld) -> None:
    await world.eye.close()
    await world.database.close()


async def record_number(tx: Transaction) -> None:
    """A write that nothing else looks at: number 777 among the migrations."""
    await tx.run(STATEMENTS["record_migration"], {"number": 777, "name": "probe"})


def grant(worker: str = "worker-1", until_us: int = NOW_US + LEASE_US) -> LeaseGrant:
    return LeaseGrant(worker, b"token", until_us)


def key_of(row: DueRow, term: TermRow) -> DueKey:
    return DueKey(row.shard, term.term, row.bucket, row.due_at_us, row.id)


def fire_chain(
    world: StoreWorld,
    job: Job,
    row: DueRow,
    term: TermRow,
    *,
    lease: LeaseGrant | None = None,
    next_us: int | None = None,
    overlap: Overlap = Overlap.ALLOW,
    max_buffered: int = 1,
    skipped: SkippedRange | None = None,
    makes_run: bool = True,
    expect_version: int | None = None,
    open_from_us: int = 0,
    back_us: int | None = None,
    back_to_us: int | None = None,
) -> FireChain:
    """The decision to fire `row`; with `next_us` the chain moves on, without it ends."""
    run = None
    if makes_run:
        run_id = job.run_id(row.scheduled_for_us)
        run = NewRun(run_id, row.scheduled_for_us, row.due_at_us, lease, overlap, max_buffered)
    following = None
    if next_us is not None:
        following = NextOccurrence(world.scale.bucket_of(next_us), next_us, next_us, back_us, back_to_us)
    version = job.version if expect_version is None else expect_version
    return FireChain(key_of(row, term), job.job_id, job.version, version, run, skipped, following, open_from_us)


def fire_run(row: DueRow, term: TermRow, lease: LeaseGrant | None = None) -> FireRun:
    return FireRun(key_of(row, term), lease)


def tiles(history: Sequence[TermRow]) -> bool:
    """Whether the rows that are not void follow each other without gap or overlap, from bucket 0 to no end."""
    spans = sorted((t.from_bucket, t.to_bucket) for t in history if t.state.name != "VOID")
    edges = [0, *(end for _, end in spans)]
    return [begin for begin, _ in spans] == edges[:-1] and edges[-1] == NO_END
