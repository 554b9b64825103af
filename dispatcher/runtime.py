"""What every part of a dispatcher is handed: its surroundings, and its memory.

`Runtime` is the world (clock, randomness, scale, limits, metrics). `Memory` is what this process believes at this
moment; every piece of it can be lost, since SQL has it all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from core.buckets import BucketScale
from core.clock import DatabaseClock
from core.config import DispatcherSettings
from core.enumerator import Enumerator
from core.rand import Rand
from core.store.cluster import Cluster
from core.tasks import Wake
from core.telemetry.metrics import DispatcherMetrics
from core.telemetry.tracing import Tracing
from dispatcher.agenda import Agenda
from dispatcher.attempts import Attempts
from dispatcher.holdings import Holdings, Key
from dispatcher.jobs import Jobs
from dispatcher.routes import Routes


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

    @property
    def scale(self) -> BucketScale:
        return self.cluster.scale

    @property
    def lease_us(self) -> int:
        return round(self.settings.attempt_lease_s * 1_000_000)


@dataclass(slots=True)
class RestingRun:
    """An open run that waits for its retry: its due row stands for it, and it is in no other memory."""

    run_id: UUID
    shard: int
    term: int
    job_id: UUID
    scheduled_for_us: int
    stands_open: bool


@dataclass(frozen=True, slots=True)
class Wakes:
    """The hints between the loops. Losing one costs a tick."""

    discover: Wake = field(default_factory=Wake)
    fire: Wake = field(default_factory=Wake)
    match: Wake = field(default_factory=Wake)
    own: Wake = field(default_factory=Wake)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the dispatcher holds in memory."""

    holdings: Holdings
    agenda: Agenda
    jobs: Jobs
    routes: Routes
    attempts: Attempts
    wakes: Wakes = field(default_factory=Wakes)
    resting: dict[UUID, RestingRun] = field(default_factory=dict)
    # Terms whose open runs are to be read again: a write whose answer was lost may have made some.
    reload: set[Key] = field(default_factory=set)
    # Shards whose due rows are to be read at the next pass although nothing else asks for it.
    landed: set[int] = field(default_factory=set)

    def drop_term(self, shard: int, term: int) -> None:
        """Forget everything under a term that is no longer held."""
        held = self.holdings.drop((shard, term))
        if held is not None:
            self.agenda.drop_uncovered(shard, held.from_bucket, held.to_bucket)
        self.routes.drop_term(shard, term)
        self.attempts.drop_term(shard, term)
        for run_id in [r.run_id for r in self.resting.values() if (r.shard, r.term) == (shard, term)]:
            del self.resting[run_id]
