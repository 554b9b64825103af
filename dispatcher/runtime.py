"""What every part of a dispatcher is handed: its surroundings, and its memory.

`Runtime` is the world (clock, randomness, scale, limits, metrics). `Memory` is what this process believes at this
moment; every piece of it can be lost, since SQL has it all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from uuid import UUID

from core.buckets import BucketScale
from core.clock import DatabaseClock
from core.config import DispatcherSettings
from core.enumerator import Enumerator
from core.failpoints import Failpoints
from core.handoff import Handoff
from core.rand import Rand
from core.store.cluster import Cluster
from core.tasks import Wake
from core.telemetry.dispatcher_metrics import DispatcherMetrics
from core.telemetry.tracing import Tracing
from dispatcher.agenda import Agenda
from dispatcher.attempts import Attempts, LiveAttempt
from dispatcher.fires import FireCounts
from dispatcher.gates import Gates
from dispatcher.holdings import HeldTerm, Holdings, Key
from dispatcher.jobs import Jobs
from dispatcher.readings import Readings
from dispatcher.routes import Routes, WaitingRun


@dataclass(frozen=True, slots=True)
class Runtime:
    """The surroundings of one dispatcher process. `dispatcher_id` is its incarnation: unique per process start."""

    dispatcher_id: str
    clock: DatabaseClock
    rand: Rand
    cluster: Cluster
    settings: DispatcherSettings
    enumerator: Enumerator
    metrics: DispatcherMetrics
    tracing: Tracing
    failpoints: Failpoints = field(default_factory=Failpoints)

    @property
    def scale(self) -> BucketScale:
        return self.cluster.scale

    @property
    def lease_us(self) -> int:
        return round(self.settings.attempt_lease_s * 1_000_000)

    async def pass_by(self, name: str) -> None:
        """A named place of a hand-off; nothing happens here unless a test says so."""
        wait_s = self.failpoints.pass_by(name)
        if wait_s:
            await self.clock.sleep(wait_s)


@dataclass(slots=True)
class RestingRun:
    """An open run that waits for its retry: its due row stands for it, and it is in no other memory.

    `attempt` is the number of its last attempt.
    """

    run_id: UUID
    shard: int
    term: int
    job_id: UUID
    scheduled_for_us: int
    stands_open: bool
    attempt: int = 0


# Longer than any lost write takes to turn up, the time until the database is back included.
_UNSENT_KEPT_S = 600.0

OpenInMemory = LiveAttempt | WaitingRun | RestingRun


Unassigned = WaitingRun | RestingRun
"""An open run that no worker holds."""


@dataclass(frozen=True, slots=True)
class Wakes:
    """The hints between the loops. Losing one costs a tick."""

    discover: Wake = field(default_factory=Wake)
    fire: Wake = field(default_factory=Wake)
    match: Wake = field(default_factory=Wake)
    gate: Wake = field(default_factory=Wake)
    own: Wake = field(default_factory=Wake)
    handoff: Wake = field(default_factory=Wake)
    progress: Wake = field(default_factory=Wake)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the dispatcher holds in memory."""

    holdings: Holdings
    agenda: Agenda
    jobs: Jobs
    routes: Routes
    attempts: Attempts
    gates: Gates
    wakes: Wakes = field(default_factory=Wakes)
    resting: dict[UUID, RestingRun] = field(default_factory=dict)
    # Shards in two hands, one of them or both ours, as ownership last read it.
    handoffs: dict[int, Handoff] = field(default_factory=dict)
    # Shards in which a due row landed: discovery reads them at its next pass, whoever's turn it is.
    landed: set[int] = field(default_factory=set)
    # Runs inside a statement that leases them: in no other memory meanwhile.
    matching: dict[UUID, WaitingRun] = field(default_factory=dict)
    # Hashes of secrets that no worker was ever sent although SQL may hold a lease under them, and since when (seconds).
    unsent: dict[bytes, float] = field(default_factory=dict)
    # Open runs whose job cannot be read: they wait for its repair.
    unreadable: dict[UUID, RestingRun] = field(default_factory=dict)
    # Runs whose lease was refused though their term holds: ownership reads their rows, and takes up what is open still.
    unsettled: dict[UUID, WaitingRun] = field(default_factory=dict)
    # Reads of open runs that are under way.
    readings: Readings = field(default_factory=Readings)
    # What was fired lately.
    fires: FireCounts = field(default_factory=FireCounts)

    def let_wait(self, run: WaitingRun, *, blocked: bool | None = None) -> None:
        """Let a run wait in memory, or in SQL alone when memory is full: for a credit, or behind its gate.

        `blocked`: whether another run of its job was seen in its way; None when nobody has looked.
        """
        if not run.is_behind_gate:
            self._let_wait_for_credit(run)
            return
        if not self.gates.add(run, blocked=blocked):
            self._overflow(run)
        self.open_gate(run.job_id)

    def open_gate(self, job_id: UUID) -> None:
        """Let the first in line of the job's waiting runs be tried, if it is worth it."""
        run = self.gates.next_of(job_id)
        if run is not None:
            self._let_wait_for_credit(run)
        self.wakes.gate.set()

    def run_ended(self, job_id: UUID) -> None:
        """A run of the job is no longer open: another one may have waited for that."""
        self.gates.stir(job_id)
        run = self.gates.next_of(job_id)
        if run is not None:
            self._let_wait_for_credit(run)

    def canceled(self, run_id: UUID) -> None:
        """A run was canceled, or is not ours any more: unless a worker holds it, it waits for nothing here."""
        still = [kept.pop(run_id, None) for kept in (self.resting, self.unreadable)]
        run = self.routes.drop_run(run_id) or self.gates.drop_run(run_id)
        if run is not None:
            self.gates.forget(run)
        for job_id in {gone.job_id for gone in (run, *still) if gone is not None}:
            self.readings.outdate(run_id)
            self.run_ended(job_id)

    def refused(self, run: WaitingRun) -> None:
        """Its lease was refused under a term that holds: it was canceled, or is not what it was taken for."""
        self.readings.outdate(run.run_id)
        self.gates.forget(run)
        self.run_ended(run.job_id)
        self.unsettled[run.run_id] = run
        self.wakes.own.set()

    def _let_wait_for_credit(self, run: WaitingRun) -> None:
        if not self.routes.wait(run):
            self.gates.forget(run)
            self._overflow(run)
        self.wakes.match.set()

    def _overflow(self, run: WaitingRun) -> None:
        held = self.holdings.get((run.shard, run.term))
        if held is not None:
            held.overflows += 1

    def doubt(self, keys: Iterable[Key], now_s: float) -> None:
        """A write under these terms may have happened, or may still happen: have their open runs read again."""
        for key in set(keys):
            held = self.holdings.get(key)
            if held is not None:
                held.doubts += 1
                held.doubted_s = now_s
        self.wakes.own.set()

    def remember_unsent(self, token_hash: bytes, now_s: float) -> None:
        """A lease under this secret may stand in SQL, and was never sent."""
        for old in [known for known, since_s in self.unsent.items() if since_s < now_s - _UNSENT_KEPT_S]:
            del self.unsent[old]
        self.unsent[token_hash] = now_s

    def open_runs(self) -> Iterator[OpenInMemory]:
        """Every open run in memory."""
        yield from self.attempts
        yield from self.routes.waiting_runs()
        yield from self.gates.waiting_runs()
        yield from self.matching.values()
        yield from self.unsettled.values()
        yield from self.resting.values()
        yield from self.unreadable.values()

    def waiting_by_term(self) -> dict[Key, list[Unassigned]]:
        """The open runs that no worker holds and that do not rest, by the term under which they are at home.

        A walk over all of them, so for several terms it is done once.
        """
        waiting: dict[Key, list[Unassigned]] = defaultdict(list)
        everything: Iterable[Unassigned] = chain(
            self.routes.waiting_runs(), self.gates.waiting_runs(), self.unreadable.values()
        )
        for run in everything:
            waiting[run.shard, run.term].append(run)
        return waiting

    def cut(self, held: HeldTerm, to_bucket: int) -> None:
        """The range of a held term was split: what is due from `to_bucket` on is another term's."""
        if to_bucket >= held.to_bucket:
            return
        self.agenda.drop_uncovered(held.shard, to_bucket, held.to_bucket)
        held.to_bucket = to_bucket
        self.landed.add(held.shard)
        for wake in (self.wakes.own, self.wakes.progress, self.wakes.discover):
            wake.set()

    def drop_term(self, shard: int, term: int) -> None:
        """Forget everything under a term that is no longer held."""
        held = self.holdings.drop((shard, term))
        if held is not None:
            self.agenda.drop_uncovered(shard, held.from_bucket, held.to_bucket)
        self.forget_runs(shard, term)

    def forget_runs(self, shard: int, term: int) -> None:
        """Forget every open run at home under a term."""
        self.routes.drop_term(shard, term)
        self.gates.drop_term(shard, term)
        self.attempts.drop_term(shard, term)
        for kept in (self.resting, self.unreadable, self.unsettled):
            for run_id in [r.run_id for r in kept.values() if (r.shard, r.term) == (shard, term)]:
                del kept[run_id]
