"""Maintenance windows: whether an instant lies in one, how far it reaches, and where a deferral ends. Pure.

Built from the windows of calendars (core/calendars.py) for core/occurrences.py. Windows that touch are one, whichever
calendars they come from: a deferral goes on until it is outside of all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from core.calendars import Window, Windows
from core.civil import END_US
from core.clock import US_PER_S
from core.cron import CronLine, EveryLine, parse_line
from core.cron.times import SIXTY
from core.errors import Invalid
from core.exclusions import Stretch
from core.firetimes import GapRule, RepeatRule, Source, Zoned
from core.zones import UTC_NAME, zone_table

MAX_STEPS = 500
"""Questions to windows for the end of one deferral; one that does not end by then has no end."""
_LEAST_HOPS = 4
_MINUTE_S = 60


class RecurringWindow:
    """From each occurrence of a cron line, for a while."""

    def __init__(self, line: CronLine, zone_key: str, duration_us: int) -> None:
        self._zoned = Zoned(line, zone_table(zone_key), GapRule.END, RepeatRule.FIRST)
        self._duration_us = duration_us
        # Windows that begin minute by minute (or second by second) and are as long are seen as one at a glance.
        self._grain_s = _MINUTE_S if line.of_minutes else 1
        begins = line.minutes if line.of_minutes else line.seconds
        joins = duration_us >= self._grain_s * US_PER_S and begins & begins >> 1
        self._solid = (replace(line, seconds=SIXTY) if line.of_minutes else line) if joins else None

    def until(self, instant_us: int) -> int | None:
        """The end of the windows that hold the instant, and of those that are seen to join on; None outside of all."""
        last_us = self._zoned.before(instant_us + 1)
        if last_us is None or last_us + self._duration_us <= instant_us:
            return None
        _, end_us = self._solid_around(last_us)
        return max(last_us, end_us - self._grain_s * US_PER_S) + self._duration_us

    def since(self, instant_us: int) -> int:
        """The beginning of the windows that hold the instant, which lies in one, and of those that join on."""
        first_us = self._zoned.after(instant_us - self._duration_us)
        if first_us is None or first_us > instant_us:
            return instant_us
        from_us, _ = self._solid_around(first_us)
        return min(first_us, from_us)

    def _solid_around(self, begin_us: int) -> tuple[int, int]:
        """[first, end) of the instants at which windows begin without a pause around one that begins at `begin_us`."""
        second = begin_us // US_PER_S
        if self._solid is not None:
            part = self._zoned.part(second)
            run = self._solid.seconds_around(second + part.offset_s)
            if run is not None and part.opens_s <= second < part.closes_s:
                first_s = max(run[0] - part.offset_s, part.opens_s)
                return first_s * US_PER_S, min(run[1] - part.offset_s, part.closes_s) * US_PER_S
        return begin_us, begin_us + self._grain_s * US_PER_S


class WindowSet:
    """The windows of one calendar. Never changes once built."""

    def __init__(self, name: str, content: Windows) -> None:
        self._name = name
        self.action = content.action
        self._named = [(recurring(window), window) for window in content.windows]
        self._recurring = [each for each, _ in self._named if each is not None]
        fixed = [(window.from_us or 0, window.to_us or 0) for each, window in self._named if each is None]
        self._starts: list[int] = []
        self._ends: list[int] = []
        for from_us, to_us in sorted(fixed):
            if self._ends and from_us <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], to_us)
            else:
                self._starts.append(from_us)
                self._ends.append(to_us)
        self.cost = 1 + 2 * len(self._recurring)

    def until(self, instant_us: int) -> int | None:
        """The end of the windows that hold the instant, as far as is seen of those that touch; None outside of all."""
        ends = [end_us for each in self._recurring if (end_us := each.until(instant_us)) is not None]
        index = bisect_right(self._starts, instant_us) - 1
        if index >= 0 and instant_us < self._ends[index]:
            ends.append(self._ends[index])
        return max(ends, default=None)

    def since(self, instant_us: int) -> int:
        """The beginning of the windows that hold the instant, as far as is seen; itself outside of all."""
        index = bisect_right(self._starts, instant_us) - 1
        begins = [instant_us]
        if index >= 0 and instant_us < self._ends[index]:
            begins.append(self._starts[index])
        begins += [each.since(instant_us) for each in self._recurring if each.until(instant_us) is not None]
        return min(begins)

    def words(self, instant_us: int) -> str:
        """The calendar, and the window's name if it has one, for an instant that lies in a window."""
        for each, window in self._named:
            if each is None:
                inside = (window.from_us or 0) <= instant_us < (window.to_us or 0)
            else:
                inside = each.until(instant_us) is not None
            if inside and window.name:
                return f"window {self._name} ({window.name})"
        return f"window {self._name}"


def recurring(window: Window, path: str = "window") -> RecurringWindow | None:
    """The window as one that recurs; None where it has fixed ends. Raises Invalid for a line or a zone that is none."""
    if not window.cron:
        return None
    line = parse_line(window.cron, f"{path}.cron")
    if isinstance(line, EveryLine):
        raise Invalid(f"{path}.cron", "must be a line of fields, without @every: a window recurs on the calendar")
    return RecurringWindow(line, window.zone or UTC_NAME, window.duration_us or 0)


class InWindows:
    """Takes away what lies in windows that say so."""

    def __init__(self, sets: Sequence[WindowSet]) -> None:
        self._sets = sets
        self.cost = sum(each.cost for each in sets)

    def stretch(self, instant_us: int) -> Stretch | None:
        for each in self._sets:
            if (until_us := each.until(instant_us)) is not None:
                return Stretch(each.since(instant_us), until_us)
        return None

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        return None

    def words(self, instant_us: int) -> str:
        return next((each.words(instant_us) for each in self._sets if each.until(instant_us)), "window")


class WayOut(NamedTuple):
    """Where a deferral ends. Where `end_us` is None, nothing from the instant to `endless_until_us` has an end."""

    end_us: int | None
    endless_until_us: int
    steps: int


class Deferral:
    """Puts off what lies in windows that say so, to the end of the last one that joins on.

    Goes from window to window a bounded number of times: what does not come out by then has no end.
    """

    def __init__(self, sets: Sequence[WindowSet]) -> None:
        self._sets = sets
        self.cost = sum(each.cost for each in sets)
        self._most = max(_LEAST_HOPS, MAX_STEPS // self.cost)

    def end_of(self, instant_us: int) -> int | None:
        """The instant at which it is outside of all windows: itself, or a later one. None where there is none."""
        reached, out = self._reached(instant_us, self._most)
        return reached[-1] if out else None

    def way_out(self, instant_us: int) -> WayOut:
        """`end_of`, and what is known where it is None."""
        reached, out = self._reached(instant_us, 2 * self._most)
        hops = len(reached) - 1
        if out and hops <= self._most:
            return WayOut(reached[-1], instant_us, self.cost * hops)
        if reached[-1] >= END_US:
            return WayOut(None, END_US, self.cost * hops)
        # Whatever lies before the j-th end that was reached needs at most j windows less to come out.
        return WayOut(None, max(reached[hops - self._most - 1], instant_us + 1), self.cost * hops)

    def since(self, instant_us: int) -> int:
        """The beginning of the windows that hold the instant, as far as is seen; itself outside of all."""
        return min(each.since(instant_us) for each in self._sets)

    def start_of(self, instant_us: int) -> int:
        """The instant from which all up to `instant_us` is put off past it; the one after it where it is in no window.

        Where that is too far back to see, an instant before which nothing that is put off past it has an end.
        """
        from_us = instant_us + 1
        for _ in range(self._most + 2):  # a way back may take one window more than the way there
            if self._until(from_us - 1) is None:
                break
            from_us = self.since(from_us - 1)
        return from_us

    def _reached(self, instant_us: int, most: int) -> tuple[list[int], bool]:
        """(the instant and the ends of at most `most` windows on the way out, one more if it goes on; came out)."""
        reached = [instant_us]
        while len(reached) <= most + 1 and reached[-1] < END_US:
            until_us = self._until(reached[-1])
            if until_us is None:
                return reached, True
            reached.append(until_us)
        return reached, False

    def _until(self, instant_us: int) -> int | None:
        return max((end_us for each in self._sets if (end_us := each.until(instant_us)) is not None), default=None)

    def words(self, instant_us: int) -> str:
        """The window that the instant lies in."""
        return next((each.words(instant_us) for each in self._sets if each.until(instant_us)), "window")


class DeferredAway:
    """Takes away what is put off for good: into a window that skips, to the schedule's end or later, or without end."""

    def __init__(self, deferral: Deferral, skipping: InWindows | None, end_us: int) -> None:
        self._deferral = deferral
        self._skipping = skipping
        self._end_us = end_us
        self.cost = deferral.cost + (skipping.cost if skipping else 0)

    def stretch(self, instant_us: int) -> Stretch | None:
        way = self._deferral.way_out(instant_us)
        end_us = way.end_us
        if end_us == instant_us:
            return None
        if end_us is None:
            return Stretch(self._deferral.since(instant_us), way.endless_until_us, way.steps)
        if end_us >= self._end_us or (self._skipping is not None and self._skipping.stretch(end_us) is not None):
            # Whatever lies between is put off to the same end.
            return Stretch(self._deferral.since(instant_us), end_us, way.steps)
        return None

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        return None

    def words(self, instant_us: int) -> str:
        end_us = self._deferral.end_of(instant_us)
        window = self._deferral.words(instant_us)
        if end_us is None:
            return f"{window}, which has no end"
        if end_us >= self._end_us:
            return f"{window}, which ends at the schedule's end or later"
        return f"{window}, which ends inside {self._skipping.words(end_us) if self._skipping else 'another'}"
