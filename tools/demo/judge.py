"""The verdict: what was to happen against what did. Pure.

Each occurrence before the end of the window must have exactly one start, not before its time, and nothing may start
that was no occurrence. An occurrence in the very moment of a job's registration may go either way: which instant came
first is not ours to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidewheel.v1 import job_pb2

from tools.demo.run_log import Start

REGISTRATION_TOLERANCE_US = 50_000
# Starts after the window's end are looked at too, but for being lost; nothing is expected later than this after it.
AFTERWARDS_US = 300 * 1_000_000

Occurrence = tuple[str, int]
Oracle = Callable[[job_pb2.Schedule, int, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one job owes: `due_us` must happen, `possible_us` may."""

    job: str
    due_us: tuple[int, ...]
    possible_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Empty lists are good. Each names occurrences as (job, scheduled_us)."""

    expected: int
    started: int
    lost: tuple[Occurrence, ...]
    doubled: tuple[Occurrence, ...]
    early: tuple[Occurrence, ...]
    invented: tuple[Occurrence, ...]
    lateness_us: tuple[int, ...]

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.early or self.invented)


def expectation(job: job_pb2.Job, end_us: int, oracle: Oracle) -> Expectation:
    """What `job` owes from its registration until `end_us`."""
    registered_us = job.create_time.ToMicroseconds()
    all_us = oracle(job.schedule, registered_us - REGISTRATION_TOLERANCE_US, end_us + AFTERWARDS_US)
    due_us = tuple(at for at in all_us if registered_us + REGISTRATION_TOLERANCE_US < at < end_us)
    return Expectation(job.name, due_us, all_us)


def judge(expectations: Sequence[Expectation], starts: Sequence[Start]) -> Verdict:
    """Compare them."""
    seen = Counter((start.job, start.scheduled_us) for start in starts)
    due = [(one.job, at) for one in expectations for at in one.due_us]
    possible = {(one.job, at) for one in expectations for at in one.possible_us}
    return Verdict(
        expected=len(due),
        started=len(starts),
        lost=tuple(occurrence for occurrence in due if not seen[occurrence]),
        doubled=tuple(occurrence for occurrence, times in seen.items() if times > 1),
        early=tuple((start.job, start.scheduled_us) for start in starts if start.late_us < 0),
        invented=tuple(occurrence for occurrence in seen if occurrence not in possible),
        lateness_us=tuple(sorted(start.late_us for start in starts)),
    )


def outstanding(expectations: Sequence[Expectation], starts: Sequence[Start], before_us: int) -> list[Occurrence]:
    """What is due before an instant and has not started yet."""
    seen = {(start.job, start.scheduled_us) for start in starts}
    due = ((one.job, at) for one in expectations for at in one.due_us if at < before_us)
    return [occurrence for occurrence in due if occurrence not in seen]


def quantile_us(sorted_us: Sequence[int], share: float) -> int:
    """The value that `share` of the values do not exceed; 0 of none."""
    if not sorted_us:
        return 0
    return sorted_us[min(len(sorted_us) - 1, max(0, -(-len(sorted_us) * round(share * 1000) // 1000) - 1))]


@dataclass(frozen=True, slots=True)
class CrashCost:
    """What a crash of one dispatcher cost, seen from the starts of the jobs whose shards it owned."""

    runs: int
    late_runs: int
    worst_us: int


def crash_cost(
    starts: Sequence[Start],
    owned: Callable[[Start], bool],
    crashed_us: int,
    *,
    span_us: int,
    late_us: int,
) -> CrashCost:
    """Of the runs that fell due within `span_us` around and after the crash on shards of the victim: how late."""
    touched = [
        start for start in starts if owned(start) and crashed_us - late_us <= start.scheduled_us < crashed_us + span_us
    ]
    late = [start for start in touched if start.late_us > late_us]
    return CrashCost(len(touched), len(late), max((start.late_us for start in touched), default=0))


def by_job(starts: Sequence[Start]) -> Mapping[str, int]:
    """How often each job started."""
    return Counter(start.job for start in starts)
