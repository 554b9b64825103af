"""Maintenance windows: whether an instant lies in one, how far it reaches, and where a deferral ends. Pure.

Built from the windows of calendars (core/calendars.py) for core/occurrences.py. Windows that touch are one, whichever
calendars they come from: a deferral goes on until it is outside of all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

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
"""Windows that are looked at for the end of one deferral; one that does not end by then has no end."""
_MINUTE_S = 60


class RecurringWindow:
    """From each occurrence of a cron line, for a while."""

    def __init__(self, line: CronLine, zone_key: str, duration_us: int) -> None:
        self._zoned = Zoned(line, zone_table(zone_key), GapRule.END, RepeatRule.FIRST)
        self._duration_us = duration_us
        # Windows that begin minute by minute (or second by second) and are as long are seen as one at a glance.
        self._grain_s = _MINUTE_S if line.of_minutes else 1
        self._solid = None
        if duration_us >= self._grain_s * US_PER_S:
            self._solid = replace(line, seconds=SIXTY) if self._grain_s == _MINUTE_S else line

    def around(self, instant_us: int) -> Stretch | None:
        """The windows that hold the instant, and those that are seen to join on."""
        last_us = self._zoned.before(instant_us + 1)
        if last_us is None or last_us + self._duration_us <= instant_us:
            return None
        first_us = self._zoned.after(instant_us - self._duration_us)
        first_us = last_us if first_us is None else min(first_us, last_us)
        if self._solid is None:
            return Stretch(first_us, last_us + self._duration_us)
        part = self._zoned.part(last_us // US_PER_S)
        run = self._solid.seconds_around(last_us // US_PER_S + part.offset_s)
        if run is not None and part.opens_s <= last_us // US_PER_S < part.closes_s:
            first_us = min(first_us, max(run[0] - part.offset_s, part.opens_s) * US_PER_S)
            last_us = max(last_us, (min(run[1] - part.offset_s, part.closes_s) - self._grain_s) * US_PER_S)
        return Stretch(first_us, last_us + self._duration_us)


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

    def around(self, instant_us: int) -> Stretch | None:
        """The windows that hold the instant, with those that touch them as far as is seen; None outside of all."""
        found = [held for each in self._recurring if (held := each.around(instant_us)) is not None]
        index = bisect_right(self._starts, instant_us) - 1
        if index >= 0 and instant_us < self._ends[index]:
            found.append(Stretch(self._starts[index], self._ends[index]))
        if not found:
            return None
        return Stretch(min(held.from_us for held in found), max(held.until_us for held in found))

    def words(self, instant_us: int) -> str:
        """The calendar, and the window's name if it has one, for an instant that lies in a window."""
        for each, window in self._named:
            if each is None:
                inside = (window.from_us or 0) <= instant_us < (window.to_us or 0)
            else:
                inside = each.around(instant_us) is not None
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
            if (held := each.around(instant_us)) is not None:
                return held
        return None

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        return None

    def words(self, instant_us: int) -> str:
        return next((each.words(instant_us) for each in self._sets if each.around(instant_us)), "window")


class Deferral:
    """Puts off what lies in windows that say so, to the end of the last one that joins on."""

    def __init__(self, sets: Sequence[WindowSet]) -> None:
        self._sets = sets
        self.cost = sum(each.cost for each in sets)

    def end_of(self, instant_us: int) -> tuple[int | None, int]:
        """(the instant at which it is outside of all windows, or None where there is none; the steps that took)."""
        steps = 0
        while True:
            steps += self.cost
            held = [found.until_us for each in self._sets if (found := each.around(instant_us)) is not None]
            if not held:
                return instant_us, steps
            instant_us = max(held)
            if instant_us >= END_US or steps > MAX_STEPS + 2 * self.cost:
                return None, steps

    def start_of(self, instant_us: int) -> int:
        """The instant from which all up to `instant_us` is put off past it; the one after it where it is in no window.

        Where that is too far back to see, an instant before which nothing that is put off past it has an end.
        """
        steps = 0
        from_us = instant_us + 1
        while from_us > 0 and steps <= MAX_STEPS + 4 * self.cost:
            steps += self.cost
            held = [found.from_us for each in self._sets if (found := each.around(from_us - 1)) is not None]
            if not held:
                break
            from_us = min(held)
        return from_us

    def words(self, instant_us: int) -> str:
        """The window that the instant lies in."""
        return next((each.words(instant_us) for each in self._sets if each.around(instant_us)), "window")


class DeferredAway:
    """Takes away what is put off for good: into a window that skips, to the schedule's end or later, or without end."""

    def __init__(self, deferral: Deferral, skipping: InWindows | None, end_us: int) -> None:
        self._deferral = deferral
        self._skipping = skipping
        self._end_us = end_us
        self.cost = deferral.cost + (skipping.cost if skipping else 0)

    def stretch(self, instant_us: int) -> Stretch | None:
        end_us, steps = self._deferral.end_of(instant_us)
        if end_us == instant_us:
            return None
        if end_us is None:
            return Stretch(instant_us, instant_us + 1, steps)
        if end_us >= self._end_us or (self._skipping is not None and self._skipping.stretch(end_us) is not None):
            return Stretch(instant_us, end_us, steps)  # whatever lies between is put off to the same end
        return None

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        return None

    def words(self, instant_us: int) -> str:
        end_us, _ = self._deferral.end_of(instant_us)
        window = self._deferral.words(instant_us)
        if end_us is None:
            return f"{window}, which has no end"
        if end_us >= self._end_us:
            return f"{window}, which ends at the schedule's end or later"
        return f"{window}, which ends inside {self._skipping.words(end_us) if self._skipping else 'another'}"
