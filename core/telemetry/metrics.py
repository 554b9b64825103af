"""Prometheus metrics: what every server says, and the rules for those of dispatcher_metrics.py and
control_plane_metrics.py. Each is declared once, with its help text (docs/metrics.md lists them).

One registry a process, made by its main function; never prometheus_client's global one. A label value is always one of
a set that the code fixes: no name, key or id that a user chose is ever a label, so the number of series does not grow
with jobs, runs or workers. Methods take batches, since the dispatcher's loops work in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from core.clock import US_PER_S, DatabaseClock
from core.telemetry.collectors import CounterReading, GaugeReading

Label = TypeVar("Label", bound=Enum)
Family = TypeVar("Family", Counter, Gauge)


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


def children(family: Family, values: Iterable[Label]) -> dict[Label, Family]:
    """Every series of `family` made beforehand, so that it reads 0 before it first counts."""
    return {value: family.labels(value.name.lower()) for value in values}
