"""The form of a benchmark's results: build/bench.json is a list of these. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One line of build/bench.json; `runs` are the single results, `value` their median."""

    name: str
    value: float
    unit: str
    runs: list[float]
    detail: str


def figure(name: str, unit: str, runs: Sequence[float], detail: str) -> Figure:
    """A figure from its single results."""
    rounded = [round(run, 3) for run in runs]
    return Figure(name, round(median(rounded), 3), unit, rounded, detail)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
