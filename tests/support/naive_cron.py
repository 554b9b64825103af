"""A deliberately naive oracle for schedules: walk every real second or minute and look at the wall clock.

It shares nothing with the product: the fields are plain sets of numbers that the caller gives, the zone is zoneinfo's
own, and the gap and repeat rules are applied to what the walk sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

ALL_YEARS = frozenset(range(1970, 2200))


@dataclass(frozen=True)
class NaiveLine:
    """The values of each field (Sunday is 0), and whether the texts of the fields start with `*`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    wildcard: bool
    day_starred: bool
    seconds: frozenset[int] = frozenset({0})
    years: frozenset[int] = field(default=ALL_YEARS)

    def matches(self, wall: datetime) -> bool:
        """Whether the wall clock shows a matching time."""
        by_month_day = wall.day in self.month_days
        by_weekday = wall.isoweekday() % 7 in self.weekdays
        day = by_month_day and by_weekday if self.day_starred else by_month_day or by_weekday
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and day
            and wall.second in self.seconds
            and wall.month in self.months
            and wall.year in self.years
        )


class NaiveSeries(Protocol):
    """Anything that can say of a wall time whether it matches."""

    @property
    def wildcard(self) -> bool: ...

    def matches(self, wall: datetime) -> bool: ...


class NaiveWalk:
    """Every `step_s` seconds of [from_s, to_s) as a zone's wall shows them.

    It begins `lead_s` before, which must be longer than the longest gap: `shift` carries times over it.
    """

    def __init__(self, zone: ZoneInfo, from_s: int, to_s: int, *, step_s: int = 60, lead_s: int = 25 * 3600) -> None:
        self.zone = zone
        self.from_s = from_s
        self.step_s = step_s
        self.instants = range(from_s - lead_s, to_s, step_s)
        self.walls = [datetime.fromtimestamp(instant, UTC).astimezone(zone) for instant in self.instants]

    def occurrences(self, series: NaiveSeries, *, gap: str = "end", repeat: str = "first") -> list[int]:
        """The occurrences in [from_s, to_s)."""
        if series.wildcard:
            gap, repeat = "skip", "both"
        found = set()
        before: datetime | None = None
        for instant, wall in zip(self.instants, self.walls, strict=True):
            shown = wall.replace(tzinfo=None, fold=0)
            if series.matches(shown) and (repeat == "both" or _pass(wall, self.zone) in (None, repeat)):
                found.add(instant)
            for distance, missing in enumerate(_missing(before, shown, self.step_s)):
                if gap != "skip" and series.matches(missing):
                    found.add(instant + distance * self.step_s if gap == "shift" else instant)
            before = shown
        return sorted(instant for instant in found if self.from_s <= instant <= self.instants[-1])


def _pass(wall: datetime, zone: ZoneInfo) -> str | None:
    """Which of two passes this is; None where the wall time comes once."""
    shown = wall.replace(tzinfo=None)
    first, second = (shown.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    if first == second:
        return None
    return "second" if wall.fold else "first"


def _missing(before: datetime | None, shown: datetime, step_s: int) -> Iterator[datetime]:
    """The wall times that the clock jumped over."""
    if before is None:
        return
    missing = before + timedelta(seconds=step_s)
    while missing < shown:
        yield missing
        missing += timedelta(seconds=step_s)
