"""The demo's last words: what fired, how late, what the crash cost, who owns what, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.v1 import run_pb2

from tools.demo.judge import CrashCost, Occurrence, Verdict
from tools.demo.observer import Ownership
from tools.demo.screen import milliseconds
from tools.fleet import Member

SHOWN_FAULTS = 10


@dataclass(frozen=True, slots=True)
class Crash:
    """A dispatcher killed on purpose. `taken_over_s` is None while some of its shards have no new owner."""

    name: str
    shards: int
    taken_over_s: float | None
    cost: CrashCost


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the summary tells. `states` counts the window's runs by the system's own record."""

    verdict: Verdict
    states: Counter[int]
    seconds: float
    jobs: int
    crash: Crash | None
    ownership: Ownership
    dispatchers: Sequence[Member]

    @property
    def good(self) -> bool:
        """Nothing lost, doubled, early or invented, and every run ended well."""
        return self.verdict.good and set(self.states) <= {run_pb2.RUN_STATE_SUCCEEDED}


def summary_lines(outcome: Outcome) -> list[str]:
    """The summary, line by line."""
    verdict = outcome.verdict
    late = f"{cost.late_runs} of the {cost.runs} runs due there were late" if cost.late_runs else "no run was late"
    worst = f", by at most {milliseconds(cost.worst_us)}" if cost.late_runs else ""
    return f"kill -9 of {crash.name}: its {crash.shards} shards {taken}; {late}{worst}"


def _fault_lines(name: str, occurrences: Sequence[Occurrence]) -> list[str]:
    from tools.cli.instants import write_instant
    from tools.demo.oracle import instant

    shown = [f"  {name}: {job} of {write_instant(instant(at))}" for job, at in occurrences[:SHOWN_FAULTS]]
    return shown + ([f"  {name}: {len(occurrences) - SHOWN_FAULTS} more"] if len(occurrences) > SHOWN_FAULTS else [])
