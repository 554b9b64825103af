"""The form of a benchmark's results: build/bench.json is a list of these. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Goal:
    """What a figure should stay below: `limit`, or with `added` so much more than the undisturbed figure."""

    limit: float
    added: bool = False

    def __str__(self) -> str:
        return f"+{self.limit:,.0f}" if self.added else f"{self.limit:,.0f}"


@dataclass(frozen=True)
class Figure:
    """One line of build/bench.json; `runs` are the single results, `value` their median.

    `undisturbed` is the same measure without the disturbance, in the same rounds (their median).
    """

    name: str
    value: float
    unit: str
    runs: list[float]
    detail: str
    undisturbed: float | None = None
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the undisturbed figure; None without one, or beside zero."""
        return self.value / self.undisturbed if self.undisturbed else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is kept; None where there is none."""
        if self.goal is None:
            return None
        base = (self.undisturbed or 0.0) if self.goal.added else 0.0
        return self.value <= base + self.goal.limit

    def to_json(self) -> dict[str, Any]:
        """The line in build/bench.json; what stands beside a goal only where there is one."""
        line: dict[str, Any] = {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "runs": self.runs,
            "detail": self.detail,
        }
        if self.undisturbed is not None:
            line["undisturbed"] = self.undisturbed
        if self.goal is not None:
            line |= {"goal": str(self.goal), "met": self.met}
        return line


def figure(
    name: str,
    unit: str,
    runs: Sequence[float],
    detail: str,
    *,
    undisturbed: Sequence[float] = (),
    goal: Goal | None = None,
) -> Figure:
    """A figure from its single results, and those of the undisturbed parts of the same rounds."""
    rounded = [round(run, 3) for run in runs]
    calm = round(median(undisturbed), 3) if undisturbed else None
    return Figure(name, round(median(rounded), 3), unit, rounded, detail, calm, goal)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
