"""What a control-plane replica counts, and the sets that its labels are of. metrics.py has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from core.ailments import AilmentKind
from core.findings import FindingKind
from core.states import MoveCause, MoveState
from core.telemetry.metrics import children

CALL_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


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
        self._ailing = children(
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
        self._missed = children(
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
        self._findings = children(
            Gauge(
                "tidewheel_reconciler_findings",
                "What the reconciler's last pass found and left unrepaired, by kind.",
                ["kind"],
                registry=registry,
            ),
            FindingKind,
        )
        self._repairs = children(
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
