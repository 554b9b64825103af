"""From wall times to instants: the walk of one cron line, one interval or one instant over a zone's offsets.

A zone is a row of runs of constant offset (core/zones.py). Inside a run a wall time is an instant; only where one run
meets the next do the rules apply, so next and previous are the same walk in two directions and cannot disagree:

* gap (a run starts later on the wall than the one before it ended): `end` makes one occurrence at the run's start if
  any missing wall time matches, `shift` keeps each one's distance from the gap's start, `skip` makes none;
* repeat (a run starts earlier on the wall): `first` passes over the repeated wall times in the later run, `second` in
  the earlier one, `both` in none;
* wildcard lines follow elapsed time: they are `skip` and `both`, whatever the schedule says.

Instants are whole seconds here; core/schedule.py turns them to microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from core.civil import END_S
from core.clock import US_PER_S
from core.cron import CronLine
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

    def after(self, instant_us: int) -> int | None:
        """The first instant later than `instant_us`."""
        ...

    def before(self, instant_us: int) -> int | None:
        """The last instant earlier than `instant_us`."""
        ...


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at_us: int

    def after(self, instant_us: int) -> int | None:
        return self.at_us if self.at_us > instant_us else None

    def before(self, instant_us: int) -> int | None:
        return self.at_us if self.at_us < instant_us else None


@dataclass(frozen=True, slots=True)
class Interval:
    """anchor_us, anchor_us + every_us, anchor_us + 2 every_us, ...: elapsed time, whatever clocks on walls do."""

    every_us: int
    anchor_us: int

    def after(self, instant_us: int) -> int | None:
        if instant_us < self.anchor_us:
            return self.anchor_us
        return self.anchor_us + ((instant_us - self.anchor_us) // self.every_us + 1) * self.every_us

    def before(self, instant_us: int) -> int | None:
        if instant_us <= self.anchor_us:
            return None
        return self.anchor_us + (instant_us - self.anchor_us - 1) // self.every_us * self.every_us


class ZonedLine:
    """One cron line in one zone under one pair of rules. Never changes once built."""

    __slots__ = ("_gap", "_line", "_offsets", "_repeat", "_starts", "_table")

    def __init__(self, line: CronLine, table: ZoneTable, gap: GapRule, repeat: RepeatRule) -> None:
        self._line = line
        self._table = table
        self._starts = table.starts_s
        self._offsets = table.offsets_s
        self._gap = GapRule.SKIP if line.wildcard else gap
        self._repeat = RepeatRule.BOTH if line.wildcard else repeat

    def after(self, instant_us: int) -> int | None:
        """The first occurrence later than `instant_us`."""
        earliest = max(0, instant_us // US_PER_S + 1)
        if earliest >= END_S:
            return None
        for run in range(self._table.index(earliest), len(self._offsets)):
            found = self._first_in_run(run, earliest)
            if found is not None:
                return found * US_PER_S if found < END_S else None
        return None

    def before(self, instant_us: int) -> int | None:
        """The last occurrence earlier than `instant_us`."""
        latest = min(END_S - 1, (instant_us - 1) // US_PER_S)
        if latest < 0:
            return None
        for run in range(self._table.index(latest), -1, -1):
            found = self._last_in_run(run, latest)
            if found is not None:
                return found * US_PER_S if found >= 0 else None
        return None

    def _first_in_run(self, run: int, earliest: int) -> int | None:
        offset = self._offsets[run]
        opens, closes = self._wall_bounds(run)
        wall = self._line.wall_from(max(opens, earliest + offset), closes)
        found = None if wall is None else wall - offset
        if run == 0 or self._gap is GapRule.SKIP or offset <= self._offsets[run - 1]:
            return found
        start, before = self._starts[run], self._offsets[run - 1]
        made_up: int | None = None
        if self._gap is GapRule.END:
            if earliest <= start and self._line.wall_from(start + before, start + offset) is not None:
                made_up = start
        else:
            missing = self._line.wall_from(max(start, earliest) + before, start + offset)
            made_up = None if missing is None else missing - before
        return found if made_up is None else made_up if found is None else min(found, made_up)

    def _last_in_run(self, run: int, latest: int) -> int | None:
        offset = self._offsets[run]
        opens, closes = self._wall_bounds(run)
        wall = self._line.wall_upto(min(closes - 1, latest + offset), opens)
        found = None if wall is None else wall - offset
        if run == 0 or self._gap is GapRule.SKIP or offset <= self._offsets[run - 1]:
            return found
        start, before = self._starts[run], self._offsets[run - 1]
        made_up: int | None = None
        if self._gap is GapRule.END:
            if self._line.wall_from(start + before, start + offset) is not None:
                made_up = start
        else:
            missing = self._line.wall_upto(min(latest + before, start + offset - 1), start + before)
            made_up = None if missing is None else missing - before
        return found if made_up is None else made_up if found is None else max(found, made_up)

    def _wall_bounds(self, run: int) -> tuple[int, int]:
        """The wall times of the run that count, as [opens, closes)."""
        offset = self._offsets[run]
        opens = self._starts[run] + offset
        closes = self._starts[run + 1] + offset
        if self._repeat is RepeatRule.FIRST and run > 0:
            opens = max(opens, self._starts[run] + self._offsets[run - 1])
        elif self._repeat is RepeatRule.SECOND and run + 1 < len(self._offsets):
            closes = min(closes, self._starts[run + 1] + self._offsets[run + 1])
        return opens, closes
