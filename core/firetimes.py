"""From wall times to instants: the walk of one series of wall times over a zone's offsets, and instants as they are.

A zone is a row of runs of constant offset (core/zones.py). Inside a run a wall time is an instant; only where one run
meets the next do the rules apply, so next and previous are the same walk in two directions and cannot disagree:

* gap (a run starts later on the wall than the one before it ended): `end` makes one occurrence at the run's start if
  any missing wall time matches, `shift` keeps each one's distance from the gap's start, `skip` makes none;
* repeat (a run starts earlier on the wall): `first` passes over the repeated wall times in the later run, `second` in
  the earlier one, `both` in none;
* wildcard lines follow elapsed time: they are `skip` and `both`, whatever the schedule says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, Protocol

from core.civil import END_S, END_US
from core.clock import US_PER_S
from core.cron.times import TimesOfDay
from core.zones import ZoneTable


class GapRule(StrEnum):
    """What becomes of a wall time that does not exist."""

    END = "end"
    SHIFT = "shift"
    SKIP = "skip"


class RepeatRule(StrEnum):
    """Which of the two instants counts when a wall time exists twice."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Source(Protocol):
    """A strictly increasing series of instants, in whole microseconds since the epoch, from both sides."""

    @property
    def times_of_day(self) -> TimesOfDay | None:
        """The times that the wall can show at its instants, where it is a series of wall times."""
        ...

    def after(self, instant_us: int) -> int | None:
        """The first instant later than `instant_us`."""
        ...

    def before(self, instant_us: int) -> int | None:
        """The last instant earlier than `instant_us`."""
        ...


class WallSeries(Protocol):
    """A strictly increasing series of wall times, in whole seconds since 1970-01-01T00:00 on the wall."""

    @property
    def wildcard(self) -> bool:
        """Whether the series follows elapsed time rather than the clock on the wall."""
        ...

    @property
    def times_of_day(self) -> TimesOfDay:
        """The times of day that it can name."""
        ...

    def wall_from(self, wall_s: int, until_s: int) -> int | None:
        """The first wall time in [wall_s, until_s)."""
        ...

    def wall_upto(self, wall_s: int, since_s: int) -> int | None:
        """The last wall time in [since_s, wall_s]."""
        ...


@dataclass(frozen=True, slots=True)
class Once:
    """Single instants, in ascending order."""

    at_us: tuple[int, ...]
    times_of_day: ClassVar[TimesOfDay | None] = None

    def after(self, instant_us: int) -> int | None:
        index = bisect_right(self.at_us, instant_us)
        return self.at_us[index] if index < len(self.at_us) else None

    def before(self, instant_us: int) -> int | None:
        index = bisect_left(self.at_us, instant_us)
        return self.at_us[index - 1] if index else None


@dataclass(frozen=True, slots=True)
class Interval:
    """anchor_us, anchor_us + every_us, anchor_us + 2 every_us, ...: elapsed time, whatever clocks on walls do."""

    every_us: int
    anchor_us: int
    times_of_day: ClassVar[TimesOfDay | None] = None

    def after(self, instant_us: int) -> int | None:
        if instant_us < self.anchor_us:
            return self.anchor_us
        return self.anchor_us + ((instant_us - self.anchor_us) // self.every_us + 1) * self.every_us

    def before(self, instant_us: int) -> int | None:
        if instant_us <= self.anchor_us:
            return None
        return self.anchor_us + (instant_us - self.anchor_us - 1) // self.every_us * self.every_us


class Part(NamedTuple):
    """What holds at an instant: the offset, and the instants [opens_s, closes_s) at which wall times count under it.

    Before `made_up_until_s` instants may stand for wall times that do not exist.
    """

    offset_s: int
    opens_s: int
    closes_s: int
    made_up_until_s: int


class Zoned:
    """One series of wall times in one zone under one pair of rules. Never changes once built.

    `fraction_us` is added to every wall time: that part of a second which a series of whole seconds leaves out.
    """

    __slots__ = ("_offsets", "_starts", "fraction_us", "gap", "repeat", "series", "table", "wildcard")

    def __init__(
        self, series: WallSeries, table: ZoneTable, gap: GapRule, repeat: RepeatRule, fraction_us: int = 0
    ) -> None:
        self.series = series
        self.table = table
        self._starts = table.starts_s
        self._offsets = table.offsets_s
        self.wildcard = series.wildcard
        self.gap = GapRule.SKIP if series.wildcard else gap
        self.repeat = RepeatRule.BOTH if series.wildcard else repeat
        self.fraction_us = fraction_us

    @property
    def times_of_day(self) -> TimesOfDay:
        """The times of day of the series."""
        return self.series.times_of_day

    def after(self, instant_us: int) -> int | None:
        """The first occurrence later than `instant_us`."""
        whole = max(0, instant_us // US_PER_S + 1)
        if whole >= END_S:
            return None
        earliest = max(0, (instant_us - self.fraction_us) // US_PER_S + 1)
        for run in range(self.table.index(earliest), len(self._offsets)):
            found_us = self._first_in_run(run, earliest, whole)
            if found_us is not None:
                return found_us if found_us < END_US else None
        return None

    def before(self, instant_us: int) -> int | None:
        """The last occurrence earlier than `instant_us`."""
        instant_us = min(instant_us, END_US)
        whole = (instant_us - 1) // US_PER_S
        if whole < 0:
            return None
        latest = (instant_us - 1 - self.fraction_us) // US_PER_S
        for run in range(self.table.index(whole), -1, -1):
            found_us = self._last_in_run(run, latest)
            if found_us is not None:
                return found_us if found_us >= 0 else None
        return None

    def _first_in_run(self, run: int, earliest: int, whole: int) -> int | None:
        offset = self._offsets[run]
        opens, closes = self._wall_bounds(run)
        wall = self.series.wall_from(max(opens, earliest + offset), closes)
        found_us = None if wall is None else (wall - offset) * US_PER_S + self.fraction_us
        if run == 0 or self.gap is GapRule.SKIP or offset <= self._offsets[run - 1]:
            return found_us
        start, before = self._starts[run], self._offsets[run - 1]
        if self.gap is GapRule.END:
            if whole <= start and self.series.wall_from(start + before, start + offset) is not None:
                return start * US_PER_S
            return found_us
        missing = self.series.wall_from(max(start, earliest) + before, start + offset)
        if missing is None:
            return found_us
        made_up_us = (missing - before) * US_PER_S + self.fraction_us
        return made_up_us if found_us is None else min(found_us, made_up_us)

    def _last_in_run(self, run: int, latest: int) -> int | None:
        offset = self._offsets[run]
        opens, closes = self._wall_bounds(run)
        wall = self.series.wall_upto(min(closes - 1, latest + offset), opens)
        found_us = None if wall is None else (wall - offset) * US_PER_S + self.fraction_us
        if run == 0 or self.gap is GapRule.SKIP or offset <= self._offsets[run - 1]:
            return found_us
        start, before = self._starts[run], self._offsets[run - 1]
        if self.gap is GapRule.END:
            if found_us is None and self.series.wall_from(start + before, start + offset) is not None:
                return start * US_PER_S
            return found_us
        missing = self.series.wall_upto(min(latest + before, start + offset - 1), start + before)
        if missing is None:
            return found_us
        made_up_us = (missing - before) * US_PER_S + self.fraction_us
        return made_up_us if found_us is None else max(found_us, made_up_us)

    def _wall_bounds(self, run: int) -> tuple[int, int]:
        """The wall times of the run that count, as [opens, closes)."""
        offset = self._offsets[run]
        opens = self._starts[run] + offset
        closes = self._starts[run + 1] + offset
        if self.repeat is RepeatRule.FIRST and run > 0:
            opens = max(opens, self._starts[run] + self._offsets[run - 1])
        elif self.repeat is RepeatRule.SECOND and run + 1 < len(self._offsets):
            closes = min(closes, self._starts[run + 1] + self._offsets[run + 1])
        return opens, closes

    # --- around one instant, for what is taken away and for what is told of it ----------------------------------------

    def part(self, second: int) -> Part:
        """What holds at the instant `second`."""
        run = self.table.index(second)
        offset, start = self._offsets[run], self._starts[run]
        opens, closes = self._wall_bounds(run)
        gap_s = max(0, offset - self._offsets[run - 1]) if run else 0
        return Part(offset, opens - offset, closes - offset, start + gap_s)

    def makes_up(self, second: int) -> bool:
        """Whether the instant `second` stands for a wall time that does not exist."""
        run = self.table.index(second)
        if run == 0 or self.gap is GapRule.SKIP:
            return False
        start, before, offset = self._starts[run], self._offsets[run - 1], self._offsets[run]
        if self.gap is GapRule.END:
            return second == start and self.series.wall_from(start + before, start + offset) is not None
        wall = second + before
        return wall < start + offset and self.series.wall_from(wall, wall + 1) is not None
