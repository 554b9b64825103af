"""Intervals: an anchor, and a period of elapsed time, of days or of months. Values and their occurrences. Pure.

A period of days or months keeps the anchor's wall time in the schedule's zone, so it is a series of wall times like a
cron line and is mapped to instants by the same walk (core/firetimes.py). The anchor itself is always the first
occurrence, whichever pass of a repeated hour it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from core.civil import DAY_S, END_S, FIRST_DAY, MONTH_COUNT, month_of_day
from core.clock import US_PER_S
from core.cron.times import TimesOfDay
from core.errors import Invalid
from core.firetimes import GapRule, Interval, RepeatRule, Source, Zoned
from core.wording import span_text
from core.zones import ZoneTable

MAX_ELAPSED_US = 366 * DAY_S * US_PER_S
MAX_DAYS = 7 * 3660  # so many weeks may be asked for
MAX_MONTHS = 1200


@dataclass(frozen=True, slots=True)
class Every:
    """anchor, anchor + period, anchor + 2 periods, ...; exactly one of the three periods is given.

    elapsed_us  elapsed time, whatever clocks on walls do; from 1 s to 366 days.
    days        the anchor's wall time every so many days, up to 3660 weeks.
    months      the anchor's wall time on its day of the month; the last day of a month that is too short. 1 to 1200.
    anchor_us   None: the schedule's anchor.
    """

    elapsed_us: int | None = None
    days: int | None = None
    months: int | None = None
    anchor_us: int | None = None

    def check(self, path: str) -> None:
        """Raise Invalid with a field below `path` unless the value is sound."""
        limits = {"elapsed_us": (US_PER_S, MAX_ELAPSED_US), "days": (1, MAX_DAYS), "months": (1, MAX_MONTHS)}
        given = [name for name in limits if getattr(self, name) is not None]
        for name in (*given, "anchor_us"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise Invalid(f"{path}.{name}", "must be a whole number")
        if len(given) != 1:
            raise Invalid(path, "must have exactly one of elapsed_us, days and months")
        low, high = limits[given[0]]
        if not low <= getattr(self, given[0]) <= high:
            rule = "must be from 1 second to 366 days" if given[0] == "elapsed_us" else f"must be {low} to {high}"
            raise Invalid(f"{path}.{given[0]}", rule)
        if self.anchor_us is not None and not 0 <= self.anchor_us < END_S * US_PER_S:
            raise Invalid(f"{path}.anchor_us", "must lie between 1970-01-01 and 2199-12-31")

    def to_json(self) -> dict[str, int]:
        """The stored form, without what is not given."""
        return {part.name: value for part in fields(self) if (value := getattr(self, part.name)) is not None}

    @classmethod
    def from_json(cls, stored: Any, path: str) -> Every:
        """Read the stored form back; `check` is still to be called. Raises Invalid."""
        known = {part.name for part in fields(cls)}
        if not isinstance(stored, dict) or not stored.keys() <= known:
            raise Invalid(path, f"must be an object with keys of {', '.join(sorted(known))}")
        return cls(**stored)

    def words(self) -> str:
        """The period: every 1 h 30 min, every day, every 3 months."""
        if self.elapsed_us is not None:
            return f"every {span_text(self.elapsed_us)}"
        count, unit = (self.days, "day") if self.days is not None else (self.months, "month")
        return f"every {unit}" if count == 1 else f"every {count} {unit}s"

    def source(self, anchor_us: int, table: ZoneTable, gap: GapRule, repeat: RepeatRule) -> Source:
        """The occurrences, counted from `anchor_us`."""
        if self.elapsed_us is not None:
            return Interval(self.elapsed_us, anchor_us)
        anchor_s, fraction_us = divmod(anchor_us, US_PER_S)
        wall_s = anchor_s + table.offsets_s[table.index(anchor_s)]
        series = EveryDays(wall_s, self.days) if self.days is not None else EveryMonths.of(wall_s, self.months or 1)
        return FromAnchor(anchor_us, Zoned(series, table, gap, repeat, fraction_us))


@dataclass(frozen=True, slots=True)
class FromAnchor:
    """The anchor, and what follows it."""

    anchor_us: int
    following: Zoned

    @property
    def times_of_day(self) -> TimesOfDay:
        return self.following.times_of_day

    def after(self, instant_us: int) -> int | None:
        return self.anchor_us if instant_us < self.anchor_us else self.following.after(instant_us)

    def before(self, instant_us: int) -> int | None:
        if instant_us <= self.anchor_us:
            return None
        found_us = self.following.before(instant_us)
        return self.anchor_us if found_us is None else max(found_us, self.anchor_us)


@dataclass(frozen=True, slots=True)
class EveryDays:
    """The wall times that follow `first_s` by whole numbers of periods, without `first_s` itself."""

    first_s: int
    days: int
    wildcard: ClassVar[bool] = False

    @property
    def times_of_day(self) -> TimesOfDay:
        return TimesOfDay.single(self.first_s % DAY_S)

    def wall_from(self, wall_s: int, until_s: int) -> int | None:
        period_s = self.days * DAY_S
        found_s = self.first_s + max(1, -((self.first_s - wall_s) // period_s)) * period_s
        return found_s if found_s < min(until_s, END_S) else None

    def wall_upto(self, wall_s: int, since_s: int) -> int | None:
        period_s = self.days * DAY_S
        count = (min(wall_s, END_S - 1) - self.first_s) // period_s
        found_s = self.first_s + count * period_s
        return found_s if count >= 1 and found_s >= since_s else None


@dataclass(frozen=True, slots=True)
class EveryMonths:
    """The wall times on `day` (from 1) of every `months`-th month after `month`; on the last day of a shorter one."""

    month: int
    day: int
    time_s: int
    months: int
    wildcard: ClassVar[bool] = False

    @property
    def times_of_day(self) -> TimesOfDay:
        return TimesOfDay.single(self.time_s)

    @classmethod
    def of(cls, wall_s: int, months: int) -> EveryMonths:
        """The series that follows the wall time `wall_s`."""
        day, time_s = divmod(wall_s, DAY_S)
        if day < 0:  # the last day of 1969 on a wall west of Greenwich
            return cls(-1, 31, time_s, months)
        month = month_of_day(min(day, FIRST_DAY[MONTH_COUNT] - 1))
        return cls(month, day - FIRST_DAY[month] + 1, time_s, months)

    def wall_from(self, wall_s: int, until_s: int) -> int | None:
        if wall_s >= END_S:
            return None
        count = max(1, -((self.month - month_of_day(max(0, wall_s // DAY_S))) // self.months))
        found_s = self._wall(count)
        if found_s is not None and found_s < wall_s:
            found_s = self._wall(count + 1)
        return found_s if found_s is not None and found_s < until_s else None

    def wall_upto(self, wall_s: int, since_s: int) -> int | None:
        if wall_s < 0:
            return None
        wall_s = min(wall_s, END_S - 1)
        count = (month_of_day(wall_s // DAY_S) - self.month) // self.months
        for tried in (count, count - 1):
            found_s = self._wall(tried) if tried >= 1 else None
            if found_s is not None and found_s <= wall_s:
                return found_s if found_s >= since_s else None
        return None

    def _wall(self, count: int) -> int | None:
        month = self.month + count * self.months
        if month >= MONTH_COUNT:
            return None
        first = FIRST_DAY[month]
        return (first + min(self.day, FIRST_DAY[month + 1] - first) - 1) * DAY_S + self.time_s
