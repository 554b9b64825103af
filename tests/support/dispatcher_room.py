"""A founded cluster over a real database and etcd, for dispatchers that run in the test's event loop.

The test plays the leader (it writes the plan) and the API (it lands jobs and triggers through core/store). Looking is
done over a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID, uuid4

import asyncpg

from core.buckets import BucketScale
from core.clock import US_PER_S, Clock, SystemClock
from core.config import ClusterSettings, DatabaseSettings, DispatcherSettings, EtcdSettings, Settings
from core.coord.coord import EtcdCoord
from core.coord.layout import Assignment, LeaderInfo, Plan
from core.coord.ports import Leadership
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.ids import chain_id, job_hash, shard_of
from core.intervals import Every
from core.jobspec import JobSpec
from core.occurrences import occurrences_of
from core.policy import Overlap, Retry
from core.rand import SystemRand
from core.schedule import Schedule
from core.states import JobState, RunState
from core.store.audit import Call
from core.store.cluster import found_cluster
from core.store.database import Database, DatabaseConfig
from core.store.job_changes import JobChanges, NextVersion
from core.store.jobs import JobRecord
from core.store.requests import RequestKey
from core.store.run_changes import RunChanges, Trigger
from core.store.runs import RunRecord
from tests.support.api_store import changed, created, version_at
from tests.support.ledger_check import LedgerCheck
from tests.support.polling import eventually
from tests.support.running_dispatcher import Halt, RunningDispatcher, start_dispatcher
from tests.support.store_world import asyncpg_url

SHARDS = 4
WIDTH_MS = 500
QUICK = DispatcherSettings(
    tick_s=0.05,
    attempt_lease_s=9.0,
    heartbeat_interval_s=3.0,
    adoption_margin_s=0.5,
    term_check_s=0.2,
    stand_after_s=1.0,
)
# For attempts that last through much without a heartbeat. Where a dispatcher dies under load, what was being said to
# it is only done again once the lease has ended.
LASTING: dict[str, Any] = {"attempt_lease_s": 30.0, "heartbeat_interval_s": 10.0}
# A dispatcher with it acknowledges heartbeats although it has not seen its terms for a while, as after a stall.
STEADY: dict[str, Any] = {"adoption_margin_s": 10.0}
# A target with it knows of its split long before the boundary, and gives the owner before all the time it wants.
UNHURRIED: dict[str, Any] = {"handoff_lead_s": 2.0, "handoff_drain_s": 30.0}
AT_ONCE = Retry(max_attempts=4, first_delay_us=100_000, factor=1.0, max_delay_us=100_000, jitter=0.0)


def now_us() -> int:
    return SystemClock().now_us()


class Named(Protocol):
    """A dispatcher, as an order names it."""

    @property
    def name(self) -> str: ...


@dataclass
class Room:
    """Everything that a test of dispatchers needs at hand."""

    url: str
    isolation: str
    etcd_endpoint: str
    database: Database
    eye: asyncpg.Connection
    leader: EtcdCoord
    leadership: Leadership
    cluster: str
    stack: AsyncExitStack
    expected: dict[UUID, list[int]] = field(default_factory=dict)
    dispatchers: list[RunningDispatcher] = field(default_factory=list)
    starts: list[Sequence[Any]] = field(default_factory=list)
    plans: int = 0
    # A clock that the test moves: everything here lives by it, and it passes for the database's.
    lives_by: Clock | None = None

    # ---- dispatchers ----

    def settings(self, *, url: str = "", **dispatcher: Any) -> Settings:
        return Settings(
            cluster=ClusterSettings(self.cluster, SHARDS, WIDTH_MS),
            database=DatabaseSettings(url or self.url, self.isolation),
            etcd=EtcdSettings((self.etcd_endpoint,)),
            dispatcher=replace(QUICK, **dispatcher),
        )

    async def dispatcher(
        self, name: str = "", *, url: str = "", halt: Halt | None = None, **changes: Any
    ) -> RunningDispatcher:
        """Start one that owns nothing yet; it is ended with the test."""
        name = name or f"dispatcher-{uuid4().hex[:8]}"
        started = await start_dispatcher(self.settings(url=url, **changes), name, self.lives_by, halt)
        self.dispatchers.append(started)
        self.stack.push_async_callback(started.kill)
        await eventually(lambda: name in self.leader.members(), what="the leader sees the dispatcher")
        return started

    async def owner(self, name: str = "", *, url: str = "", **changes: Any) -> RunningDispatcher:
        """Start one and make it the owner of every shard."""
        started = await self.dispatcher(name, url=url, **changes)
        await self.give(started)
        return started

    async def order(self, wanted: Mapping[int, RunningDispatcher], *, seize: bool = False) -> None:
        """Write the plan that these dispatchers own these shards, each replacing the present term."""
        rows = await self.eye.fetch("SELECT shard, term, owner FROM shard_terms WHERE state = 1")
        present = {row["shard"]: (row["term"], row["owner"]) for row in rows}
        replacing = {shard: (to, *present.get(shard, (0, ""))) for shard, to in wanted.items()}
        await self.order_replacing(replacing, seize=seize)

    async def order_replacing(self, wanted: Mapping[int, tuple[Named, int, str]], *, seize: bool = False) -> None:
        """Write the plan with just these orders: to whom, and which term of which owner it replaces."""
        self.plans += 1
        orders = [Assignment(s, to.name, term, owner, seize) for s, (to, term, owner) in sorted(wanted.items())]
        await self.leader.write_plan(self.leadership, Plan(self.plans, tuple(orders)))

    async def give(self, to: RunningDispatcher, *, seize: bool = False) -> None:
        """Have it own every shard, and wait until it does."""
        await self.order(dict.fromkeys(range(SHARDS), to), seize=seize)
        await to.holds(set(range(SHARDS)))

    # ---- jobs and runs, as the API would land them ----

    def call(self) -> Call:
        key = RequestKey("default", uuid4().hex, "test", b"")
        return Call(key, uuid4(), "tester", "", "")

    @property
    def job_changes(self) -> JobChanges:
        return JobChanges(self.database, self.clock, self.scale, SHARDS)

    @property
    def run_changes(self) -> RunChanges:
        return RunChanges(self.database, self.clock, self.scale)

    @property
    def clock(self) -> Clock:
        return self.lives_by or SystemClock()

    @property
    def scale(self) -> BucketScale:
        return BucketScale(WIDTH_MS)

    async def job(self, schedule: Schedule | None = None, *, name: str = "", shard: int = -1, **spec: Any) -> UUID:
        """Register a job; without a schedule it runs when triggered. Its handler is `work`, retries come at once."""
        values: dict[str, Any] = {"handler": "work", "retry": AT_ONCE, "overlap": Overlap.ALLOW, "schedule": schedule}
        return await self.job_of(JobSpec(**(values | spec)), name=name, shard=shard)

    async def job_of(self, spec: JobSpec, *, name: str = "", shard: int = -1, payload: bytes = b"") -> UUID:
        job_id = _id_in(shard)
        await self._create(job_id, name, lambda at_us: version_at(spec, payload, JobState.ACTIVE, at_us))
        return job_id

    async def job_from(
        self, after_s: float, schedule: Callable[[int], Schedule], *, name: str = "", shard: int = -1, **spec: Any
    ) -> tuple[UUID, int]:
        """Register a job whose schedule follows from an instant `after_s` behind its cut-over; with that instant.

        However long the registration takes, nothing that is due from then on lies before it.
        """
        job_id, begins = _id_in(shard), [0]
        values: dict[str, Any] = {"handler": "work", "retry": AT_ONCE, "overlap": Overlap.ALLOW, **spec}

        def decide(at_us: int) -> NextVersion:
            begins[:] = [at_us + round(after_s * US_PER_S)]
            return version_at(JobSpec(**values, schedule=schedule(begins[0])), b"", JobState.ACTIVE, at_us)

        await self._create(job_id, name, decide)
        return job_id, begins[0]

    async def _create(self, job_id: UUID, name: str, decide: Callable[[int], NextVersion]) -> None:
        await self.job_changes.create(
            self.call(), job_id=job_id, name=name or str(job_id), decision=created(decide), render=lambda *_: b""
        )

    async def missed_job(self, spec: JobSpec, since_us: int) -> UUID:
        """A job as it would stand had it been registered before `since_us`, with no owner there ever since."""
        job_id = await self.job_of(replace(spec, schedule=None))
        occurrences = occurrences_of(spec, {}, Enumerator())
        assert occurrences is not None
        first = occurrences.next_after(since_us - 1)
        assert first is not None
        await self.eye.execute(
            "UPDATE job_versions SET spec = $2, cutover_us = $3, from_us = $3 WHERE job_id = $1",
            *(job_id, json.dumps(spec.to_json()), since_us - 1),
        )
        await self.eye.execute("UPDATE jobs SET cutover_us = $2 WHERE job_id = $1", job_id, since_us - 1)
        shard = await self.eye.fetchval("SELECT shard FROM jobs WHERE job_id = $1", job_id)
        floor = await self.eye.fetchval("SELECT floor FROM shard_floors WHERE shard = $1", shard)
        bucket = max(floor, self.scale.bucket_of(first.due_us))
        row = (shard, bucket, first.due_us, chain_id(job_id, 1), job_id, first.nominal_us)
        await self.eye.execute("INSERT INTO due VALUES ($1, $2, $3, $4, 1, $5, 1, $6)", *row)
        self.expected[job_id] = [each.nominal_us for each in occurrences.between(since_us, now_us(), 1000)]
        return job_id

    async def every_second(self, count: int, *, first_after_s: float = 1.0, **spec: Any) -> UUID:
        """A job that occurs so many times, once a second, and is expected to run each time."""

        def secondly(first_us: int) -> Schedule:
            end_us = first_us + count * US_PER_S
            return Schedule(every=(Every(elapsed_us=US_PER_S),), anchor_us=first_us, end_us=end_us)

        job_id, first_us = await self.job_from(first_after_s, secondly, **spec)
        self.expected[job_id] = [first_us + n * US_PER_S for n in range(count)]
        return job_id

    async def once(self, after_s: float = 0.3, **spec: Any) -> UUID:
        """A one-off job, expected to run."""
        job_id, at_us = await self.job_from(after_s, lambda at_us: Schedule(at_us=(at_us,)), **spec)
        self.expected[job_id] = [at_us]
        return job_id

    async def change(self, job_id: UUID, *, state: JobState | None = None, **spec: Any) -> int:
        """Edit, pause, resume or delete; returns the instant of the cut-over."""
        cutover: list[int] = []

        def decide(job: JobRecord, at_us: int) -> NextVersion:
            cutover[:] = [at_us]
            assert job.spec is not None
            return version_at(replace(job.spec, **spec), job.payload, state or job.state, at_us)

        name = await self.eye.fetchval("SELECT name FROM jobs WHERE job_id = $1", job_id)
        await self.job_changes.change(
            self.call(), action="job.update", name=name, decision=changed(decide), render=lambda *_: b""
        )
        return cutover[0]

    async def trigger(
        self, job_id: UUID, *, delay_s: float = 0.0, payload: bytes | None = None, allow_overlap: bool = True
    ) -> UUID:
        """Make one run: beside others that are open, or as the job's overlap policy has it. Raises Conflict."""
        made: list[RunRecord] = []
        name = await self.eye.fetchval("SELECT name FROM jobs WHERE job_id = $1", job_id)

        def keep(run: RunRecord) -> bytes:
            made[:] = [run]
            return b""

        wish = Trigger(name, payload, round(delay_s * US_PER_S), allow_overlap)
        await self.run_changes.trigger(self.call(), wish, keep)
        return made[0].run_id

    async def cancel(self, run_id: UUID) -> None:
        await self.run_changes.cancel(self.call(), run_id, lambda run: b"")

    # ---- looking ----

    async def run(self, run_id: UUID | str) -> dict[str, Any]:
        row = await self.eye.fetchrow("SELECT * FROM runs WHERE run_id = $1", UUID(str(run_id)))
        assert row is not None, f"no run {run_id}"
        return dict(row)

    async def runs(self, job_id: UUID | None = None) -> list[dict[str, Any]]:
        """Runs (of one job), in the order of their instants."""
        rows = await self.eye.fetch(
            "SELECT * FROM runs WHERE $1::uuid IS NULL OR job_id = $1 ORDER BY scheduled_for_us, run_id", job_id
        )
        return [dict(row) for row in rows]

    async def state(self, run_id: UUID | str) -> RunState:
        return RunState((await self.run(run_id))["state"])

    async def becomes(self, run_id: UUID | str, state: RunState, within_s: float = 15.0) -> dict[str, Any]:
        """The run, once it is in that state."""

        async def look() -> dict[str, Any]:
            run = await self.run(run_id)
            assert run["state"] == state, f"state {RunState(run['state']).name}, attempt {run['attempt']}"
            return run

        return await eventually(look, within_s, what=f"run {run_id} becomes {state.name}")

    async def all_become(self, job_id: UUID, states: list[RunState], within_s: float = 20.0) -> list[dict[str, Any]]:
        """The runs of a job, once there are so many and in those states."""

        async def look() -> list[dict[str, Any]]:
            runs = await self.runs(job_id)
            assert [run["state"] for run in runs] == states
            return runs

        return await eventually(look, within_s, what=f"the runs of the job become {[s.name for s in states]}")

    async def attempts(self, run_id: UUID | str) -> list[dict[str, Any]]:
        rows = await self.eye.fetch("SELECT * FROM attempts WHERE run_id = $1 ORDER BY attempt", UUID(str(run_id)))
        return [dict(row) for row in rows]

    async def skips(self, job_id: UUID) -> list[dict[str, Any]]:
        rows = await self.eye.fetch("SELECT * FROM skips WHERE job_id = $1 ORDER BY from_us", job_id)
        return [dict(row) for row in rows]

    async def look_again(self) -> None:
        """Connect anew: the server was started again."""
        self.eye = await asyncpg.connect(asyncpg_url(self.url))
        self.stack.push_async_callback(self.eye.close)

    async def check(self, *workers: Any) -> None:
        """Let the ledger be judged: by the rows, and by what the workers saw."""
        starts = [start for worker in workers for start in worker.starts]
        await LedgerCheck(self.eye, self.expected).hold(starts)


def _id_in(shard: int) -> UUID:
    """A new job's id, of that shard; -1 means any."""
    job_id = uuid4()
    while shard not in (-1, shard_of(job_hash(job_id), SHARDS)):
        job_id = uuid4()
    return job_id


async def open_room(
    url: str, isolation: str, etcd_endpoint: str, stack: AsyncExitStack, lives_by: Clock | None = None
) -> Room:
    """Found a cluster in the database and become its leader; everything ends with the stack."""
    clock, rand, cluster = SystemClock(), SystemRand(), f"room-{uuid4().hex[:12]}"
    database = Database(DatabaseConfig(url, isolation), clock, rand)
    stack.push_async_callback(database.close)
    await found_cluster(
        database,
        cluster_id=uuid4(),
        shard_count=SHARDS,
        bucket_width_ms=WIDTH_MS,
        now_us=(lives_by or clock).now_us(),
    )
    etcd = EtcdSettings((etcd_endpoint,))
    leader = EtcdCoord(etcd_config(etcd), session_config(etcd), cluster, clock, rand)
    leader.start()
    stack.push_async_callback(leader.close)
    async with asyncio.timeout(60):
        leadership = await leader.campaign(LeaderInfo("test", "127.0.0.1:1"))
    eye = await asyncpg.connect(asyncpg_url(url))
    stack.push_async_callback(eye.close)
    return Room(url, isolation, etcd_endpoint, database, eye, leader, leadership, cluster, stack, lives_by=lives_by)
