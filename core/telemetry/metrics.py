"""Every Prometheus metric of the servers, each declared once, with its help text (docs/metrics.md lists them).

One registry a process, made by its main function; never prometheus_client's global one. A label value is always one of
a set that the code fixes: no name, key or id that a user chose is ever a label, so the number of series does not grow
with jobs, runs or workers. Methods take batches, since the dispatcher's loops work in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from core.ailments import AilmentKind
from core.clock import US_PER_S, Clock, DatabaseClock
from core.findings import FindingKind
from core.states import ENDED_RUN_STATES, AttemptOutcome, MoveCause, MoveState, RunState, SkipReason
from core.telemetry.collectors import CounterReading, GaugeReading, StageHistogram

LATENESS_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CALL_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

Label = TypeVar("Label", bound=Enum)
Family = TypeVar("Family", Counter, Gauge)


class Stage(StrEnum):
    """Up to where a lateness is measured; each counts from due_at."""

    DISCOVER = "discover"  # the due row was read into memory
    FIRE = "fire"  # the transaction that made the run was committed
    MATCH = "match"  # a worker's credit was reserved
    START = "start"  # the handler's first line ran, by the worker's report


class RefusedWrite(StrEnum):
    """What kind of statement the fence refused."""

    FIRE = "fire"
    LEASE = "lease"
    RENEW = "renew"
    COMPLETE = "complete"
    ADOPT = "adopt"
    STAND = "stand"
    MARK = "mark"
    TERM = "term"
    CANCEL = "cancel"


class MissedFire(StrEnum):
    """Why something that was due long ago has not been fired."""

    NO_TERM = "no_term"  # its shard has no open term
    OWNER_SILENT = "owner_silent"  # the owner of its shard is not heard of
    SET_ASIDE = "set_aside"  # its job could not be read by the owner, who looks again from time to time
    UNREADABLE = "unreadable"  # the version that it names does not exist
    CATCH_UP = "catch_up"  # it waits for the catch-up pace of its namespace
    BEHIND = "behind"  # the owner fires what is late, and has not come to it yet
    STUCK = "stuck"  # the owner is alive and does not fire it
    LOST_CHAIN = "lost_chain"  # the job has occurrences to come, and no due row stands for them


def new_registry() -> CollectorRegistry:
    """The registry of one process, with the usual metrics of the process itself in it."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the page, nobody reads them
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class ProcessMetrics:
    """What every server says, whatever its role. All of it is read at scrape time from whoever keeps the number."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        clock: DatabaseClock,
        database_restarts: Callable[[], int],
        spans_dropped: Callable[[], int],
        spans_exported: Callable[[], int],
    ) -> None:
        registry.register(
            GaugeReading(
                "tidewheel_clock_offset_seconds",
                "The database's clock minus this machine's wall clock.",
                lambda: clock.wall_offset_us / US_PER_S,
            )
        )
        registry.register(
            CounterReading(
                "tidewheel_clock_jumps",
                "Jumps of the database's clock that were confirmed and followed.",
                lambda: clock.jumps,
            )
        )
        registry.register(
            CounterReading(
                "tidewheel_database_restarts",
                "Database transactions that were begun anew after a conflict or a lost connection.",
                database_restarts,
            )
        )
        registry.register(
            CounterReading(
                "tidewheel_spans_dropped",
                "Trace spans that were dropped: the queue was full, or the collector did not take them.",
                spans_dropped,
            )
        )
        registry.register(
            CounterReading("tidewheel_spans_exported", "Trace spans that the collector took.", spans_exported)
        )


class DispatcherMetrics:
    """What a dispatcher counts. Written by the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._oldest_due_us: int | None = None
        self._lateness = StageHistogram(
            "tidewheel_lateness_seconds",
            "Time from due_at until a run was discovered, fired, matched with a credit, started.",
            "stage",
            list(Stage),
            LATENESS_BOUNDS_S,
        )
        registry.register(self._lateness)
        registry.register(
            GaugeReading(
                "tidewheel_oldest_waiting_seconds",
                "How long the oldest due run has been waiting for a worker; 0 when none waits.",
                self._oldest_waiting_s,
            )
        )
        self._declare_state(registry)
        self._declare_counts(registry)

    def _declare_state(self, registry: CollectorRegistry) -> None:
        self._backlog = Gauge("tidewheel_backlog", "Due runs that wait for a worker's credit.", registry=registry)
        self._no_worker = Gauge(
            "tidewheel_no_worker_runs", "Due runs that no connected worker could take.", registry=registry
        )
        self._open_runs = Gauge(
            "tidewheel_open_runs", "Runs that are pending or leased and answered for here.", registry=registry
        )
        self._owned_shards = Gauge(
            "tidewheel_owned_shards", "Shards with an open term of this dispatcher.", registry=registry
        )
        self._workers = Gauge("tidewheel_connected_workers", "Worker streams that are open.", registry=registry)
        self._credits = Gauge(
            "tidewheel_free_credits", "Attempts that connected workers could take now.", registry=registry
        )

        self._ailments = _children(
            Gauge(
                "tidewheel_ailment_seconds",
                "For how long something has kept this dispatcher from its duties; 0 when it does not.",
                ["ailment"],
                registry=registry,
            ),
            AilmentKind,
        )

    def _declare_counts(self, registry: CollectorRegistry) -> None:
        self._fires = Counter("tidewheel_fires", "Due rows that were fired.", registry=registry)
        self._takeovers = Counter("tidewheel_takeovers", "Shards taken from an owner that was gone.", registry=registry)
        self._moves = Counter("tidewheel_moves", "Shards received by a planned move.", registry=registry)
        self._retries = Counter(
            "tidewheel_retries", "Attempts that ended with a further attempt to come.", registry=registry
        )
        self._dead = Counter("tidewheel_dead", "Runs that used up their attempts: dead letters.", registry=registry)
        self._refused = _children(
            Counter("tidewheel_refused_writes", "Writes that the fence refused.", ["statement"], registry=registry),
            RefusedWrite,
        )
        self._runs = _children(
            Counter("tidewheel_runs", "Runs that ended.", ["outcome"], registry=registry), sorted(ENDED_RUN_STATES)
        )
        self._attempts = _children(
            Counter("tidewheel_attempts", "Attempts that ended.", ["outcome"], registry=registry), AttemptOutcome
        )
        self._skips = _children(
            Counter(
                "tidewheel_skips",
                "Occurrences that got no run, recorded with the reason.",
                ["reason"],
                registry=registry,
            ),
            SkipReason,
        )

    def lateness(self, stage: Stage, late_us: Iterable[int]) -> None:
        """A batch of runs that reached `stage`, each so many microseconds after its due_at."""
        self._lateness.observe_us(stage, late_us)

    def set_waiting(self, runs: int, oldest_due_us: int | None, without_worker: int) -> None:
        """How many due runs wait, since when the oldest is due, and how many of them no connected worker could take."""
        self._backlog.set(runs)
        self._oldest_due_us = oldest_due_us
        self._no_worker.set(without_worker)

    def set_owned(self, shards: int, open_runs: int) -> None:
        self._owned_shards.set(shards)
        self._open_runs.set(open_runs)

    def set_workers(self, connected: int, free_credits: int) -> None:
        self._workers.set(connected)
        self._credits.set(free_credits)

    def set_ailments(self, ages_s: Mapping[AilmentKind, float]) -> None:
        """For how long each ailment has lasted; one that is missing is none."""
        for kind, gauge in self._ailments.items():
            gauge.set(ages_s.get(kind, 0.0))

    def fired(self, rows: int) -> None:
        self._fires.inc(rows)

    def skipped(self, reason: SkipReason, occurrences: int) -> None:
        self._skips[reason].inc(occurrences)

    def refused(self, statement: RefusedWrite, writes: int = 1) -> None:
        """Writes that came back without their row because the term is not held any more."""
        self._refused[statement].inc(writes)

    def taken_over(self, shards: int) -> None:
        self._takeovers.inc(shards)

    def moved_in(self, shards: int) -> None:
        self._moves.inc(shards)

    def attempts_ended(self, outcome: AttemptOutcome, attempts: int, *, to_retry: int = 0) -> None:
        """Attempts that ended alike; `to_retry` of their runs get a further attempt."""
        self._attempts[outcome].inc(attempts)
        self._retries.inc(to_retry)

    def runs_ended(self, state: RunState, runs: int) -> None:
        """Runs that reached an ended state."""
        self._runs[state].inc(runs)
        if state is RunState.DEAD:
            self._dead.inc(runs)

    def _oldest_waiting_s(self) -> float:
        due_us = self._oldest_due_us
        return 0.0 if due_us is None else max(0, self._clock.now_us() - due_us) / US_PER_S


class ControlPlaneMetrics:
    """What a control-plane replica counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leader = Gauge("tidewheel_leader", "1 while this replica leads, else 0.", registry=registry)
        self._dispatchers = Gauge(
            "tidewheel_dispatchers", "Live dispatchers, as this replica sees them.", registry=registry
        )
        self._unowned = Gauge("tidewheel_unowned_shards", "Shards that no live dispatcher owns.", registry=registry)
        self._suspicions = Counter(
            "tidewheel_suspicions", "Dispatchers that this leader took for dead.", registry=registry
        )
        self._ailing = _children(
            Gauge(
                "tidewheel_ailing_dispatchers",
                "Dispatchers that this leader gives no shards, since something ails them that does not ail all.",
                ["ailment"],
                registry=registry,
            ),
            AilmentKind,
        )
        self._planned = Counter(
            "tidewheel_planned_moves", "Shards that this leader's plans gave to another dispatcher.", registry=registry
        )
        ended = Counter(
            "tidewheel_moves_ended",
            "Planned moves of shards that ended, by who wanted them and how they ended.",
            ["cause", "end"],
            registry=registry,
        )
        ends = (MoveState.COMPLETED, MoveState.ROLLED_BACK)
        self._moves_ended = {
            (cause, end): ended.labels(cause.name.lower(), end.name.lower()) for cause in MoveCause for end in ends
        }
        self._refused_plans = Counter(
            "tidewheel_refused_plans",
            "Plans that were not written: another replica leads, or etcd did not take them.",
            registry=registry,
        )
        self._imbalance = Gauge(
            "tidewheel_load_imbalance",
            "Largest difference of a dispatcher's load from its fair one, as a part of the fair one.",
            registry=registry,
        )
        self._missed = _children(
            Gauge(
                "tidewheel_missed_fires",
                "What was due longer ago than controlplane.missed_fire_after_s, by why it was not fired.",
                ["reason"],
                registry=registry,
            ),
            MissedFire,
        )
        self._count_reconciling(registry)
        self._calls = Counter(
            "tidewheel_api_requests", "Calls of the API that ended.", ["method", "code"], registry=registry
        )
        self._call_s = Histogram(
            "tidewheel_api_request_seconds",
            "How long calls of the API took.",
            ["method"],
            registry=registry,
            buckets=CALL_BOUNDS_S,
        )

    def _count_reconciling(self, registry: CollectorRegistry) -> None:
        self._findings = _children(
            Gauge(
                "tidewheel_reconciler_findings",
                "What the reconciler's last pass found and left unrepaired, by kind.",
                ["kind"],
                registry=registry,
            ),
            FindingKind,
        )
        self._repairs = _children(
            Counter(
                "tidewheel_reconciler_repairs", "What the reconciler repaired, by kind.", ["kind"], registry=registry
            ),
            FindingKind,
        )
        self._reconciled = Gauge(
            "tidewheel_reconciler_pass_timestamp_seconds",
            "When the reconciler's last pass ended, in seconds since the epoch; 0 before the first.",
            registry=registry,
        )

    def set_leading(self, leading: bool) -> None:
        self._leader.set(leading)

    def set_members(self, dispatchers: int, unowned_shards: int) -> None:
        self._dispatchers.set(dispatchers)
        self._unowned.set(unowned_shards)

    def suspected(self, dispatchers: int = 1) -> None:
        self._suspicions.inc(dispatchers)

    def set_ailing(self, dispatchers: Mapping[AilmentKind, int]) -> None:
        """How many dispatchers are kept from shards by each ailment now."""
        for kind, gauge in self._ailing.items():
            gauge.set(dispatchers.get(kind, 0))

    def planned_moves(self, shards: int) -> None:
        self._planned.inc(shards)

    def move_ended(self, cause: MoveCause, end: MoveState) -> None:
        """A planned move reached COMPLETED or ROLLED_BACK."""
        self._moves_ended[cause, end].inc()

    def plan_refused(self) -> None:
        self._refused_plans.inc()

    def set_imbalance(self, part: float) -> None:
        self._imbalance.set(part)

    def set_missed(self, counts: Mapping[MissedFire, int]) -> None:
        """What is overdue now, by reason; a reason that is missing has none."""
        for reason, gauge in self._missed.items():
            gauge.set(counts.get(reason, 0))

    def set_findings(self, counts: Mapping[FindingKind, int], at_us: int) -> None:
        """What a pass of the reconciler that ended at `at_us` left unrepaired."""
        for kind, gauge in self._findings.items():
            gauge.set(counts.get(kind, 0))
        self._reconciled.set(at_us / 1_000_000)

    def repaired(self, counts: Mapping[FindingKind, int]) -> None:
        """What a pass of the reconciler repaired."""
        for kind, count in counts.items():
            self._repairs[kind].inc(count)

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """One unary call: `method` as registered (/package.Service/Method), `code` the name of a gRPC status."""
        self._calls.labels(method, code).inc()
        self._call_s.labels(method).observe(seconds)


def _children(family: Family, values: Iterable[Label]) -> dict[Label, Family]:
    """Every series of `family` made beforehand, so that it reads 0 before it first counts."""
    return {value: family.labels(value.name.lower()) for value in values}
