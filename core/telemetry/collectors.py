"""Collectors that cost the hot path next to nothing: a histogram that takes batches, and values read at scrape time.

prometheus_client's own Histogram takes a lock and walks its buckets at every observation; four stages a run would
cost more than the run's own bookkeeping. Here one thread (the event loop's) writes plain integers, and the scrape reads
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

US_PER_S = 1_000_000


class StageHistogram(Collector):
    """A histogram of seconds with one label of fixed values, observed in microseconds by one thread."""

    def __init__(
        self, name: str, documentation: str, label: str, values: Sequence[str], bounds_s: Sequence[float]
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds_us = [round(bound * US_PER_S) for bound in bounds_s]
        self._shown_bounds = [*(repr(float(bound)) for bound in bounds_s), "+Inf"]
        self._counts = {value: [0] * len(self._shown_bounds) for value in values}
        self._sums_us = dict.fromkeys(values, 0)

    def observe_us(self, value: str, observed_us: Iterable[int]) -> None:
        """Take a batch for one label value; what lies below zero counts as zero."""
        counts, bounds = self._counts[value], self._bounds_us
        total = 0
        for one in observed_us:
            kept = max(0, one)
            counts[bisect_left(bounds, kept)] += 1
            total += kept
        self._sums_us[value] += total

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, counts in self._counts.items():
            totals = accumulate(list(counts))
            buckets = list(zip(self._shown_bounds, totals, strict=True))
            family.add_metric([value], buckets, self._sums_us[value] / US_PER_S)
        yield family


class GaugeReading(Collector):
    """A gauge whose value is asked for at scrape time."""

    def __init__(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._name = name
        self._documentation = documentation
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self._name, self._documentation, value=self._read())


class CounterReading(Collector):
    """A counter that somebody else keeps as a plain number."""

    def __init__(self, name: str, documentation: str, read: Callable[[], int]) -> None:
        self._name = name
        self._documentation = documentation
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._documentation, value=self._read())
