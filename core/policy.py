"""Policies of a job, as values and as decisions over plain numbers. Pure.

The defaults here are part of the API (design: 4 attempts, 10 s doubling to 10 min, +-10 %; catch-up latest with 60 s
grace; overlap skip; start-to-close 1 h).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from core.clock import US_PER_S
from core.errors import Invalid

MAX_ATTEMPTS = 100
WEEK_US = 7 * 24 * 3600 * US_PER_S
MAX_CATCH_UP_RUNS = 1000
MAX_WINDOW_US = 366 * 24 * 3600 * US_PER_S
MAX_BUFFERED = 1000


class Overlap(IntEnum):
    """What happens to an occurrence that is due while a run of the job is open."""

    SKIP = 1
    ALLOW = 2
    BUFFER_ONE = 3
    BUFFER_ALL = 4
    CANCEL_OTHER = 5

    @property
    def buffers(self) -> bool:
        """Whether a run may have to wait for another one of its job to end: it is then made with a gate."""
        return self in (Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER)


class CatchUpMode(IntEnum):
    """What happens to occurrences that are older than the grace when they are found."""

    LATEST = 1
    SKIP = 2
    ALL = 3


class CatchUpOrder(IntEnum):
    """In which order CatchUpMode.ALL runs them."""

    OLDEST_FIRST = 1
    NEWEST_FIRST = 2


@dataclass(frozen=True, slots=True)
class Retry:
    """Attempts and the delays between them. Delays in microseconds, jitter as a share of the delay."""

    max_attempts: int = 4
    first_delay_us: int = 10 * US_PER_S
    factor: float = 2.0
    max_delay_us: int = 600 * US_PER_S
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _check(1 <= self.max_attempts <= MAX_ATTEMPTS, "retry.max_attempts", "must lie within 1 and 100")
        _check(0 <= self.first_delay_us <= WEEK_US, "retry.first_delay", "must lie within 0 s and 7 days")
        _check(1.0 <= self.factor <= 10.0, "retry.factor", "must lie within 1 and 10")
        _check(0 <= self.max_delay_us <= WEEK_US, "retry.max_delay", "must lie within 0 s and 7 days")
        _check(
            self.first_delay_us <= self.max_delay_us,
            "retry.first_delay",
            "must not exceed max_delay; a longer first delay is never cut silently",
        )
        _check(0.0 <= self.jitter <= 0.5, "retry.jitter", "must lie within 0 and 0.5")

    def delay_us(self, ended_attempt: int, spread: float) -> int:
        """Wait after attempt `ended_attempt` (from 1) ended; `spread` in [-1, 1] places it inside the jitter."""
        # No run has more counted attempts than MAX_ATTEMPTS; the bound keeps the power inside a float.
        grown = self.first_delay_us * self.factor ** min(ended_attempt - 1, MAX_ATTEMPTS)
        capped = min(grown, self.max_delay_us)
        return max(0, round(capped * (1.0 + self.jitter * spread)))


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What is made up of what was missed. `max_runs` and `order` are for ALL, `window_us` for LATEST and ALL."""

    mode: CatchUpMode = CatchUpMode.LATEST
    grace_us: int = 60 * US_PER_S
    max_runs: int = 6
    window_us: int = MAX_WINDOW_US
    order: CatchUpOrder = CatchUpOrder.OLDEST_FIRST

    def __post_init__(self) -> None:
        _check(0 <= self.grace_us <= WEEK_US, "catch_up.grace", "must lie within 0 s and 7 days")
        _check(1 <= self.max_runs <= MAX_CATCH_UP_RUNS, "catch_up.max_runs", "must lie within 1 and 1000")
        _check(0 <= self.window_us <= MAX_WINDOW_US, "catch_up.window", "must lie within 0 s and 366 days")


class Occurrences(Protocol):
    """The part of a schedule that the decisions here need; instants in microseconds, bounds exclusive."""

    def next_after(self, instant_us: int) -> int | None: ...

    def prev_before(self, instant_us: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class CatchUpDecision:
    """What to do with the occurrence at the head of a job's chain.

    `run_us` is run now, unless None. Occurrences in [skip_from_us, skip_to_us] (both inclusive, both None when there
    are none) are recorded as skipped. `next_us` is where the chain stands afterwards, None when it has ended.
    """

    run_us: int | None
    skip_from_us: int | None
    skip_to_us: int | None
    next_us: int | None


def decide_catch_up(policy: CatchUp, schedule: Occurrences, head_us: int, now_us: int) -> CatchUpDecision:
    """Decide about a due chain whose next occurrence is `head_us` <= `now_us`.

    Within the grace every occurrence fires, one after the other. Of older ones LATEST runs the last, and only if no
    later occurrence is due by now (field bug B50: one run, of the newest missed slot).
    """
    oldest_in_grace_us = now_us - policy.grace_us
    if head_us >= oldest_in_grace_us:
        return CatchUpDecision(head_us, None, None, schedule.next_after(head_us))
    fresh_us = schedule.next_after(oldest_in_grace_us - 1)
    last_missed_us = _last_before(schedule, head_us, oldest_in_grace_us)
    superseded = fresh_us is not None and fresh_us <= now_us
    if policy.mode is CatchUpMode.SKIP or superseded:
        return CatchUpDecision(None, head_us, last_missed_us, fresh_us)
    if last_missed_us == head_us:
        return CatchUpDecision(head_us, None, None, fresh_us)
    before_us = schedule.prev_before(last_missed_us)
    return CatchUpDecision(last_missed_us, head_us, head_us if before_us is None else before_us, fresh_us)


def _last_before(schedule: Occurrences, head_us: int, bound_us: int) -> int:
    last_us = schedule.prev_before(bound_us)
    return head_us if last_us is None or last_us < head_us else last_us


def _check(holds: bool, field: str, rule: str) -> None:
    if not holds:
        raise Invalid(field, rule)
