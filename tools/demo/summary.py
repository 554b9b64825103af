"""The demo's last words: what fired, how late, what the crash cost, who owns what, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.v1 import run_pb2

from tools.demo.judge import CrashCost, Occurrence, Verdict, quantile_us
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
    # Ended by Ctrl-C: some runs are still under way, and nobody waits for them.
    cut_short: bool = False

    @property
    def good(self) -> bool:
        """Nothing lost, doubled, early or invented, and every run ended well."""
        fine = {run_pb2.RUN_STATE_SUCCEEDED}
        if self.cut_short:
            fine |= {run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_LEASED}
        return self.verdict.good and set(self.states) <= fine


def summary_lines(outcome: Outcome) -> list[str]:
    """The summary, line by line."""
    verdict = outcome.verdict
    late = verdict.lateness_us
    lines = [
        f"{outcome.jobs} jobs for {outcome.seconds:.0f} s: {verdict.started} runs fired, "
        f"{outcome.states[run_pb2.RUN_STATE_SUCCEEDED]} succeeded{_others(outcome.states)}",
        f"lateness of the commands' own starts: p50 {milliseconds(quantile_us(late, 0.5))}, "
        f"p99 {milliseconds(quantile_us(late, 0.99))}, max {milliseconds(late[-1] if late else 0)}",
    ]
    if outcome.crash is not None:
        lines.append(_crash_line(outcome.crash))
    for member in outcome.dispatchers:
        shards = outcome.ownership.shards_of(member.address)
        terms = outcome.ownership.terms_of(member.address)
        lines.append(f"{member.name}: {len(shards)} shards" + (f", terms {terms}" if terms else ""))
    faults = [("lost", verdict.lost), ("doubled", verdict.doubled), ("early", verdict.early)]
    faults.append(("not expected at all", verdict.invented))
    for name, occurrences in faults:
        lines += _fault_lines(name, occurrences)
    counts = f"{len(verdict.lost)} lost, {len(verdict.doubled)} doubled, {len(verdict.early)} early"
    judged = f"{verdict.expected} occurrences expected by cronsim and arithmetic: {counts}"
    lines.append(f"{judged} - {'all is well' if outcome.good else 'NOT WELL'}")
    return lines


def _others(states: Counter[int]) -> str:
    names = {
        run_pb2.RunState.Name(state).removeprefix("RUN_STATE_").lower(): count
        for state, count in states.items()
        if state != run_pb2.RUN_STATE_SUCCEEDED
    }
    return "".join(f", {count} {name}" for name, count in sorted(names.items()))


def _crash_line(crash: Crash) -> str:
    taken = "not all taken over" if crash.taken_over_s is None else f"taken over within {crash.taken_over_s:.1f} s"
    cost = crash.cost
    late = (
        f"{cost.late_runs} of {cost.runs} runs due there meanwhile were late" if cost.late_runs else "no run was late"
    )
    worst = f", by at most {milliseconds(cost.worst_us)}" if cost.late_runs else ""
    return f"kill -9 of {crash.name}: its {crash.shards} shards {taken}; {late}{worst}"


def _fault_lines(name: str, occurrences: Sequence[Occurrence]) -> list[str]:
    from tools.cli.instants import write_instant
    from tools.demo.oracle import instant

    shown = [f"  {name}: {job} of {write_instant(instant(at))}" for job, at in occurrences[:SHOWN_FAULTS]]
    return shown + ([f"  {name}: {len(occurrences) - SHOWN_FAULTS} more"] if len(occurrences) > SHOWN_FAULTS else [])
