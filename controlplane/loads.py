"""What each shard costs, by the reports of its owners: smoothed, with its age. One tenure's; in memory alone.

Reports come about once a second. A figure is kept while a shard changes its owner, so that a new owner that has not
measured yet does not look idle; one that nobody has confirmed for long is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from core.clock import Clock
from core.wire import internal_pb2 as pb

# A change shows by two thirds after so long: slower than a burst, faster than a round of rebalancing.
_SMOOTHING_S = 15.0
# A figure that was not reported for so long says nothing any more.
_FORGET_S = 60.0
# Unit of cost: one run fired a second. An open run costs its share of heartbeats and renewals; a shard its ticks,
# whether or not anything is due. Estimates of the order; docs/placement.md says what they have to be good for.
COST_OF_A_SHARD = 1.0
COST_OF_AN_OPEN_RUN = 0.02


@dataclass(frozen=True, slots=True)
class ShardLoad:
    """One shard, smoothed but for the last three, which are the newest figures. `hottest`: (job id, fires a second)."""

    shard: int
    term: int
    fires_per_second: float
    open_runs: float
    waiting_runs: int
    watermark_lag_ms: int
    hottest: tuple[tuple[str, float], ...]

    @property
    def cost(self) -> float:
        """What the shard costs its owner, in runs fired a second."""
        return COST_OF_A_SHARD + self.fires_per_second + COST_OF_AN_OPEN_RUN * self.open_runs


@dataclass(frozen=True, slots=True)
class LoadView:
    """The loads at one moment, by shard, and the share of a processor that each dispatcher used."""

    shards: Mapping[int, ShardLoad] = field(default_factory=lambda: MappingProxyType({}))
    cpus: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def known(self) -> bool:
        """Whether anything was measured at all."""
        return bool(self.shards)

    def costs(self, shards: Iterable[int]) -> dict[int, float]:
        """The cost of each shard; one that was not measured is taken for an average one, so that without any loads
        counts decide.
        """
        known = [load.cost for load in self.shards.values()]
        average = sum(known) / len(known) if known else COST_OF_A_SHARD
        return {shard: self.shards[shard].cost if shard in self.shards else average for shard in shards}


NO_LOADS = LoadView()


@dataclass(slots=True)
class _Figure:
    load: ShardLoad
    at_s: float


class Loads:
    """Takes reports in, gives the smoothed picture out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._figures: dict[int, _Figure] = {}
        self._cpus: dict[str, tuple[float, float]] = {}

    def report(self, report: pb.DispatcherReport) -> None:
        """Take in what a report says of loads; one without any changes nothing. Nonsense is passed over."""
        now_s = self._clock.monotonic_s()
        for each in report.loads:
            if _is_sound(each.fires_per_second) and each.open_runs >= 0:
                self._take(each, now_s)
        if _is_sound(report.cpu) and (report.loads or report.cpu > 0):
            self._cpus[report.dispatcher_id] = (self._smooth_cpu(report, now_s), now_s)

    def view(self) -> LoadView:
        """What is known now."""
        oldest_s = self._clock.monotonic_s() - _FORGET_S
        self._figures = {shard: each for shard, each in self._figures.items() if each.at_s >= oldest_s}
        self._cpus = {name: each for name, each in self._cpus.items() if each[1] >= oldest_s}
        return LoadView(
            MappingProxyType({shard: each.load for shard, each in self._figures.items()}),
            MappingProxyType({name: cpu for name, (cpu, _) in self._cpus.items()}),
        )

    def _take(self, each: pb.ShardLoad, now_s: float) -> None:
        known = self._figures.get(each.shard)
        if known is not None and each.term < known.load.term:
            return  # the owner before, which drains
        fires, open_runs = each.fires_per_second, float(each.open_runs)
        if known is not None:
            share = _share(now_s - known.at_s)
            fires = known.load.fires_per_second + share * (fires - known.load.fires_per_second)
            open_runs = known.load.open_runs + share * (open_runs - known.load.open_runs)
        hottest = tuple((job.job_id, job.fires_per_second) for job in each.hottest)
        load = ShardLoad(each.shard, each.term, fires, open_runs, each.waiting_runs, each.watermark_lag_ms, hottest)
        self._figures[each.shard] = _Figure(load, now_s)

    def _smooth_cpu(self, report: pb.DispatcherReport, now_s: float) -> float:
        known = self._cpus.get(report.dispatcher_id)
        if known is None:
            return report.cpu
        return known[0] + _share(now_s - known[1]) * (report.cpu - known[0])


def _share(passed_s: float) -> float:
    """How much of the way to a new figure an average goes, when the one before is so old."""
    return 1.0 - math.exp(-max(0.0, passed_s) / _SMOOTHING_S)


def _is_sound(value: float) -> bool:
    return math.isfinite(value) and value >= 0
