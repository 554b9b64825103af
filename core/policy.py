"""Policies of a job, as values. Pure. What a catch-up policy makes of a chain that is due: core/catch_up.py.

The defaults here are part of the API (design: 4 attempts, 10 s doubling to 10 min, +-10 %; catch-up latest with 60 s
grace; overlap skip; start-to-close 1 h).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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


def _check(holds: bool, field: str, rule: str) -> None:
    if not holds:
        raise Invalid(field, rule)
