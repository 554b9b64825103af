"""A deliberately naive oracle for whole schedules: unions, exclusions, days off and windows, minute by minute.

Built on the naive walk of one line (tests/support/naive_cron.py). Days off are a set of dates, windows a list of pairs,
and a deferral tries every window until none holds the instant.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.support.naive_cron import NaiveLine, NaiveWalk

Windows = list[tuple[int, int]]


@dataclass(frozen=True)
class NaiveEvery:
    """A calendar interval as a series of wall times: those after the anchor's."""

    anchor: datetime
    days: int | None
    months: int | None
    wildcard: bool = False

    def matches(self, wall: datetime) -> bool:
        """Whether the wall shows a later multiple of the period."""
        if wall.time() != self.anchor.time() or wall.date() <= self.anchor.date():
            return False
        if self.days is not None:
            return (wall.date() - self.anchor.date()).days % self.days == 0
        passed = (wall.year - self.anchor.year) * 12 + wall.month - self.anchor.month
        last = calendar.monthrange(wall.year, wall.month)[1]
        return passed > 0 and passed % (self.months or 1) == 0 and wall.day == min(self.anchor.day, last)


@dataclass
class NaiveSchedule:
    """What a schedule says, in seconds since the epoch; `off` says of a date whether nothing runs on it."""

    zone: ZoneInfo
    gap: str
    repeat: str
    lines: list[NaiveLine] = field(default_factory=list)
    elapsed: list[tuple[int, int]] = field(default_factory=list)  # (anchor, period)
    every: list[tuple[int, NaiveEvery]] = field(default_factory=list)  # (anchor, wall times)
    exclude: list[NaiveLine] = field(default_factory=list)
    off: Callable[[date], bool] = lambda _: False

    def nominal(self, walk: NaiveWalk) -> list[int]:
        """Every instant of the walk's stretch that is named and not excluded."""
        found: set[int] = set()
        for line in self.lines:
            found.update(walk.occurrences(line, gap=self.gap, repeat=self.repeat))
        for anchor, period in self.elapsed:
            found.update(at for at in walk.instants if at >= anchor and (at - anchor) % period == 0)
        for anchor, wall_times in self.every:
            found.update(at for at in walk.occurrences(wall_times, gap=self.gap, repeat=self.repeat) if at > anchor)
            found.add(anchor)
        for line in self.exclude:
            found.difference_update(walk.occurrences(line, gap=self.gap, repeat=self.repeat))
        return [at for at in sorted(found) if walk.from_s <= at < walk.instants.stop and not self.off(self._day(at))]

    def _day(self, instant: int) -> date:
        return datetime.fromtimestamp(instant, UTC).astimezone(self.zone).date()


def put_off(instant: int, windows: Windows) -> int:
    """The first instant from `instant` on that no window holds."""
    while ends := [end for start, end in windows if start <= instant < end]:
        instant = max(ends)
    return instant


def inside(instant: int, windows: Windows) -> bool:
    """Whether a window holds the instant."""
    return any(start <= instant < end for start, end in windows)


def anchor_wall(anchor_s: int, zone: ZoneInfo) -> datetime:
    """What the zone's wall shows at the anchor."""
    return (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=anchor_s)).astimezone(zone).replace(tzinfo=None, fold=0)
    )
