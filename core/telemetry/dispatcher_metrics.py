"""What a dispatcher counts, and the sets that its labels are of. metrics.py has the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge

from core.ailments import AilmentKind
from core.clock import US_PER_S, Clock
from core.states import ENDED_RUN_STATES, AttemptOutcome, RunState, SkipReason
from core.telemetry.collectors import GaugeReading, StageHistogram
from core.telemetry.metrics import children

LATENESS_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


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

        self._ailments = children(
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
        self._refused = children(
            Counter("tidewheel_refused_writes", "Writes that the fence refused.", ["statement"], registry=registry),
            RefusedWrite,
        )
        self._runs = children(
            Counter("tidewheel_runs", "Runs that ended.", ["outcome"], registry=registry), sorted(ENDED_RUN_STATES)
        )
        self._attempts = children(
            Counter("tidewheel_attempts", "Attempts that ended.", ["outcome"], registry=registry), AttemptOutcome
        )
        self._skips = children(
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
