"""The metrics: declared once, explained, and without a label that a user could choose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from core.ailments import AilmentKind
from core.clock import US_PER_S, ClockReading, DatabaseClock
from core.findings import FindingKind
from core.states import AttemptOutcome, MoveCause, MoveState, RunState, SkipReason
from core.telemetry.control_plane_metrics import ControlPlaneMetrics, MissedFire
from core.telemetry.dispatcher_metrics import DispatcherMetrics, RefusedWrite, Stage
from core.telemetry.health import Health
from core.telemetry.metrics import ProcessMetrics, new_registry
from tests.support.clock import ManualClock

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
# Each label and what may stand in it: never a text that came from outside.
LABELS: dict[str, set[str]] = {
    "stage": set(Stage),
    "statement": set(RefusedWrite),
    "outcome": {member.name.lower() for member in (*RunState, *AttemptOutcome)},
    "reason": {member.name.lower() for member in (*SkipReason, *MissedFire)},
    "loop": {"due", "lead"},
    "ailment": {kind.name.lower() for kind in AilmentKind},
    "kind": {kind.name.lower() for kind in FindingKind},
    "cause": {cause.name.lower() for cause in MoveCause},
    "end": {MoveState.COMPLETED.name.lower(), MoveState.ROLLED_BACK.name.lower()},
    "method": {"/tidewheel.v1.JobService/GetJob"},
    "code": {"OK"},
}


class Everything:
    """All metrics of all roles in one registry."""

    def __init__(self, clock: ManualClock) -> None:
        self.registry = new_registry()
        self.database_clock = DatabaseClock(clock)
        self.health = Health(clock)
        self.health.pulse("due", 0.25)
        self.health.pulse("lead", 1.0)
        self.registry.register(self.health)
        self.process = ProcessMetrics(
            self.registry,
            clock=self.database_clock,
            database_restarts=lambda: 7,
            spans_dropped=lambda: 8,
            spans_exported=lambda: 9,
        )
        self.dispatcher = DispatcherMetrics(self.registry, clock)
        self.controlplane = ControlPlaneMetrics(self.registry)
        self.controlplane.call_ended("/tidewheel.v1.JobService/GetJob", "OK", 0.004)

    def ours(self) -> Iterator[Metric]:
        return (metric for metric in self.registry.collect() if metric.name.startswith("tidewheel_"))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def series(self) -> int:
        return sum(len(metric.samples) for metric in self.registry.collect())


@pytest.fixture
def everything(clock: ManualClock) -> Everything:
    return Everything(clock)


def test_no_label_holds_what_a_user_chose(everything: Everything) -> None:
    for metric in everything.ours():
        for sample in metric.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    assert value in LABELS[label], f"{sample.name} has {label}={value!r}"


def test_every_metric_says_what_it_means(everything: Everything) -> None:
    for metric in everything.ours():
        assert re.fullmatch(r"[A-Z0-9].+\.", metric.documentation), f"{metric.name}: {metric.documentation!r}"


def test_every_metric_is_there_before_it_first_counts(everything: Everything) -> None:
    for metric in everything.ours():
        assert metric.samples, f"{metric.name} has no series"


def test_a_second_declaration_is_refused(everything: Everything, clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        DispatcherMetrics(everything.registry, clock)


def test_nothing_is_declared_in_the_global_registry(everything: Everything) -> None:
    assert everything.registry is not prometheus_client.REGISTRY
    assert not [metric for metric in prometheus_client.REGISTRY.collect() if metric.name.startswith("tidewheel_")]


def test_b129_a_hundred_thousand_runs_add_no_series(everything: Everything) -> None:
    before = everything.series()
    for batch in range(1_000):
        everything.dispatcher.lateness(Stage.START, range(batch, batch + 100))
        everything.dispatcher.fired(100)
        everything.dispatcher.runs_ended(RunState.SUCCEEDED, 100)
        everything.dispatcher.attempts_ended(AttemptOutcome.SUCCEEDED, 100)
    assert everything.series() == before
    assert before < 500
    assert everything.value("tidewheel_lateness_seconds_count", stage="start") == 100_000


def test_lateness_falls_into_the_bucket_whose_bound_it_does_not_exceed(everything: Everything) -> None:
    everything.dispatcher.lateness(Stage.FIRE, [-5, 0, 1_000, 1_001, 20_000, 61 * US_PER_S])

    def upto(bound: str) -> float | None:
        return everything.value("tidewheel_lateness_seconds_bucket", stage="fire", le=bound)

    assert [upto("0.001"), upto("0.002"), upto("0.02"), upto("60.0"), upto("+Inf")] == [3, 4, 5, 5, 6]
    assert everything.value("tidewheel_lateness_seconds_sum", stage="fire") == pytest.approx(61.022001)
    assert everything.value("tidewheel_lateness_seconds_count", stage="match") == 0


def test_lateness_reaches_prometheus_in_the_form_of_its_own_histograms(everything: Everything) -> None:
    own = CollectorRegistry()
    histogram = prometheus_client.Histogram("h", "H.", ["stage"], buckets=(0.001, 60), registry=own)
    histogram.labels("fire").observe(0.5)
    everything.dispatcher.lateness(Stage.FIRE, [500_000])
    assert _shape(own, "h", "fire") == _shape(everything.registry, "tidewheel_lateness_seconds", "fire")


def _shape(registry: CollectorRegistry, name: str, stage: str) -> set[tuple[str, tuple[str, ...]]]:
    [metric] = [metric for metric in registry.collect() if metric.name == name]
    assert metric.type == "histogram"
    return {
        (sample.name.removeprefix(name), tuple(sorted(sample.labels)))
        for sample in metric.samples
        if sample.labels["stage"] == stage
    }


async def test_the_oldest_waiting_run_grows_older_between_two_reports(
    everything: Everything, clock: ManualClock
) -> None:
    everything.dispatcher.set_waiting(3, clock.now_us() - 2 * US_PER_S, 1)
    await clock.advance(5)
    assert everything.value("tidewheel_oldest_waiting_seconds") == 7
    assert everything.value("tidewheel_backlog") == 3
    assert everything.value("tidewheel_no_worker_runs") == 1
    everything.dispatcher.set_waiting(0, None, 0)
    assert everything.value("tidewheel_oldest_waiting_seconds") == 0


def test_ended_runs_and_attempts_are_counted_by_outcome(everything: Everything) -> None:
    dispatcher = everything.dispatcher
    dispatcher.attempts_ended(AttemptOutcome.TIMED_OUT, 5, to_retry=3)
    dispatcher.runs_ended(RunState.DEAD, 2)
    dispatcher.runs_ended(RunState.SUCCEEDED, 4)
    assert everything.value("tidewheel_attempts_total", outcome="timed_out") == 5
    assert everything.value("tidewheel_retries_total") == 3
    assert everything.value("tidewheel_runs_total", outcome="dead") == 2
    assert everything.value("tidewheel_runs_total", outcome="succeeded") == 4
    assert everything.value("tidewheel_dead_total") == 2


def test_what_a_dispatcher_did_with_shards_and_due_rows_is_counted(everything: Everything) -> None:
    dispatcher = everything.dispatcher
    dispatcher.fired(10)
    dispatcher.skipped(SkipReason.CATCH_UP, 40)
    dispatcher.refused(RefusedWrite.COMPLETE, 2)
    dispatcher.taken_over(4)
    dispatcher.moved_in(3)
    dispatcher.set_owned(32, 120)
    dispatcher.set_workers(2, 15)
    shown = {
        "tidewheel_fires_total": 10,
        "tidewheel_takeovers_total": 4,
        "tidewheel_moves_total": 3,
        "tidewheel_owned_shards": 32,
        "tidewheel_open_runs": 120,
        "tidewheel_connected_workers": 2,
        "tidewheel_free_credits": 15,
    }
    assert {name: everything.value(name) for name in shown} == shown
    assert everything.value("tidewheel_skips_total", reason="catch_up") == 40
    assert everything.value("tidewheel_refused_writes_total", statement="complete") == 2
    assert everything.value("tidewheel_refused_writes_total", statement="fire") == 0


def test_a_control_plane_shows_its_view_and_its_calls(everything: Everything) -> None:
    controlplane = everything.controlplane
    controlplane.set_leading(True)
    controlplane.set_members(2, 5)
    controlplane.suspected()
    controlplane.planned_moves(6)
    controlplane.move_ended(MoveCause.DRAIN, MoveState.COMPLETED)
    controlplane.plan_refused()
    controlplane.set_imbalance(0.25)
    shown = {
        "tidewheel_leader": 1,
        "tidewheel_dispatchers": 2,
        "tidewheel_unowned_shards": 5,
        "tidewheel_suspicions_total": 1,
        "tidewheel_planned_moves_total": 6,
        "tidewheel_refused_plans_total": 1,
        "tidewheel_load_imbalance": 0.25,
    }
    assert {name: everything.value(name) for name in shown} == shown
    call = {"method": "/tidewheel.v1.JobService/GetJob"}
    assert everything.value("tidewheel_api_requests_total", code="OK", **call) == 1
    assert everything.value("tidewheel_api_request_seconds_bucket", le="0.005", **call) == 1


def test_a_process_shows_its_clock_its_database_and_its_spans(everything: Everything, clock: ManualClock) -> None:
    ahead_us = clock.now_us() + 3 * US_PER_S
    everything.database_clock.observe(ClockReading(ahead_us, clock.monotonic_s(), clock.monotonic_s()))
    shown = {
        "tidewheel_clock_offset_seconds": 3,
        "tidewheel_clock_jumps_total": 0,
        "tidewheel_database_restarts_total": 7,
        "tidewheel_spans_dropped_total": 8,
        "tidewheel_spans_exported_total": 9,
    }
    assert {name: everything.value(name) for name in shown} == shown


def test_the_page_of_metrics_lists_exactly_those_that_exist(everything: Everything) -> None:
    rows = re.findall(
        r"^\| `(tidewheel_\w+)`(?: \{([\w, ]+)\})? \|", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {name: {label.strip() for label in labels.split(",")} - {""} for name, labels in rows}
    assert len(listed) == len(rows), "a metric is listed twice"
    assert listed == {_shown_name(metric): _labels(metric) for metric in everything.ours()}


def _shown_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> set[str]:
    return {label for sample in metric.samples for label in sample.labels} - {"le"}
