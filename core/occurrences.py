"""The occurrences of one version of a job: nominal instants, and when each is due. Pure.

Built from the version's schedule and pins (core/jobspec.py) by dispatchers, the API and the command line alike, so that
all of them answer the same. Never looks at a clock, and never at what has been run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

from core.calendars import CalendarContent, CalendarPin
from core.civil import END_US
from core.counting import DayCounter
from core.entries import Entries
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec
from core.marks import Entry
from core.mismatches import mismatches_of
from core.schedule import Schedule
from core.search import SearchLimit
from core.shaping import Compiled, Shaping, compiled

__all__ = ["Occurrence", "Occurrences", "SearchLimit", "occurrences_of"]

_MAX_TOO_EARLY = 1_000


class Occurrence(NamedTuple):
    """One occurrence: its identity, and the instant from which its run may start."""

    nominal_us: int
    due_us: int


class Occurrences:
    """The occurrences of a schedule up to `last_us` (inclusive; None: without such a bound).

    `contents` holds what each calendar that the schedule names says; one that is missing there has no effect.
    `offset_us` is the job's share of the jitter. Nominal instants strictly increase, due instants never decrease.
    """

    def __init__(
        self,
        schedule: Schedule,
        contents: Mapping[str, CalendarContent | Compiled] | None = None,
        *,
        offset_us: int = 0,
        last_us: int | None = None,
        enumerator: Enumerator | None = None,
    ) -> None:
        self._schedule = schedule
        calendars = {name: _ready(name, content) for name, content in (contents or {}).items()}
        self._shaping = Shaping(schedule, calendars) if calendars else None
        self._offset_us = offset_us
        self._last_us = END_US if last_us is None else last_us
        self._enumerator = enumerator
        self._series_key: str | None = None
        self._end_us = END_US if schedule.end_us is None else schedule.end_us

    def until(self, last_us: int | None) -> Occurrences:
        """The same occurrences up to `last_us` (inclusive), if that is the tighter bound."""
        if last_us is None or self._last_us <= last_us:
            return self
        narrowed = copy(self)
        narrowed._last_us = last_us
        return narrowed

    def next_after(self, nominal_us: int) -> Occurrence | None:
        """The first occurrence whose nominal instant is later, or None. Raises SearchLimit."""
        try:
            found_us = self._next_us(nominal_us)
        except SearchLimit as limit:
            if limit.at_us >= self._last_us:
                return None
            raise
        if found_us is None or found_us > self._last_us:
            return None
        return self._occurrence(found_us)

    def prev_before(self, nominal_us: int) -> Occurrence | None:
        """The last occurrence whose nominal instant is earlier, or None. Raises SearchLimit."""
        bound_us = min(nominal_us, self._last_us + 1)
        walk = self._schedule if self._shaping is None else self._shaping.search
        found_us = walk.prev_before(bound_us)
        return None if found_us is None else self._occurrence(found_us)

    def at(self, nominal_us: int) -> Occurrence | None:
        """The occurrence with this nominal instant, or None where there is none."""
        there = self._schedule.matches if self._shaping is None else self._shaping.search.has
        return self._occurrence(nominal_us) if nominal_us <= self._last_us and there(nominal_us) else None

    def first_due_from(self, due_us: int) -> Occurrence | None:
        """The first occurrence that is due at `due_us` or later. Raises SearchLimit."""
        if due_us >= self._end_us:
            return None
        found = self.next_after(self._put_off_past(due_us) - 1)
        for _ in range(_MAX_TOO_EARLY):
            if found is None or found.due_us >= due_us:
                return found
            found = self.next_after(found.nominal_us)
        raise SearchLimit(due_us - self._offset_us if found is None else found.nominal_us)

    def last_due_before(self, due_us: int) -> Occurrence | None:
        """The last occurrence that is due earlier than `due_us`. Raises SearchLimit."""
        return self.prev_before(self._end_us if due_us >= self._end_us else self._put_off_past(due_us))

    def between(self, from_us: int, to_us: int, limit: int) -> tuple[Occurrence, ...]:
        """The occurrences whose nominal instants are in [from_us, to_us), at most `limit`. Raises SearchLimit."""
        return tuple(islice(self._walk(from_us, to_us), limit))

    def nth_after(self, nominal_us: int, n: int) -> Occurrence | None:
        """The n-th (from 1) occurrence after `nominal_us`; None where there are fewer. Raises SearchLimit."""
        removers = self._schedule.exclusions if self._shaping is None else self._shaping.removers
        counter = DayCounter.of(self._schedule.sources, removers)
        if counter is None:
            return next(islice(self._walk(nominal_us + 1, END_US), n - 1, None), None)
        from_us = max(nominal_us, (self._schedule.start_us or 0) - 1)
        end_us = min(self._end_us, self._last_us + 1)
        found_us = counter.nth_after(from_us, n, end_us, self._next_us)
        return None if found_us is None or found_us >= end_us else self._occurrence(found_us)

    def entries(self, from_us: int, to_us: int, limit: int) -> list[Entry]:
        """Every nominal instant in [from_us, to_us) with what shapes it, also what is taken away; at most `limit`."""
        from_us = max(from_us, self._schedule.start_us or 0)
        to_us = min(to_us, self._end_us, self._last_us + 1)
        return list(islice(self._entries.walk(from_us, to_us, limit), limit))

    def mismatches(self, instant_us: int) -> list[str]:
        """For each part of the schedule that does not name the instant, in words, why it does not."""
        return mismatches_of(self._schedule, instant_us, self._last_us)

    @cached_property
    def _entries(self) -> Entries:
        removers = self._schedule.exclusions if self._shaping is None else self._shaping.removers
        deferral = None if self._shaping is None else self._shaping.deferral
        return Entries(self._schedule, removers, deferral, self._offset_us, self._end_us)

    def _walk(self, from_us: int, to_us: int) -> Iterator[Occurrence]:
        bounded = self.until(to_us - 1)
        found = bounded.next_after(from_us - 1)
        while found is not None:
            yield found
            found = bounded.next_after(found.nominal_us)

    def _next_us(self, nominal_us: int) -> int | None:
        if self._shaping is None:
            if self._enumerator is None:
                return self._schedule.next_after(nominal_us)
            return self._enumerator.next_after(self._schedule, nominal_us)
        if self._enumerator is None or self._series_key is None:
            return self._shaping.search.next_after(nominal_us)
        return self._enumerator.shared(self._series_key, nominal_us, self._shaping.search.next_after)

    def _occurrence(self, nominal_us: int) -> Occurrence:
        due_us: int | None = nominal_us
        if self._shaping is not None and self._shaping.deferral is not None:
            due_us = self._shaping.deferral.end_of(nominal_us)
        return Occurrence(nominal_us, min((due_us or nominal_us) + self._offset_us, self._end_us - 1))

    def _put_off_past(self, due_us: int) -> int:
        """The instant such that whatever is nominal from there on is due at `due_us` or later, and nothing before."""
        free_us = due_us - self._offset_us
        if self._shaping is None or self._shaping.deferral is None:
            return free_us
        return self._shaping.deferral.start_of(free_us - 1)


def occurrences_of(
    spec: JobSpec, contents: Mapping[CalendarPin, CalendarContent | Invalid], enumerator: Enumerator | None
) -> Occurrences | None:
    """The occurrences of a version; None where it has no schedule.

    Raises Invalid when a calendar that the version is pinned to is missing in `contents`, or not readable.
    """
    schedule = spec.schedule
    if schedule is None:
        return None
    named: dict[str, CalendarContent | Compiled] = {}
    for name in (*schedule.exclude_calendars, *schedule.windows):
        pin = spec.pins.calendars.get(name)
        content = None if pin is None else contents.get(pin)
        if content is None:
            raise Invalid("schedule", f"the calendar {name} that it names is missing")
        if isinstance(content, Invalid):
            raise content
        ready = partial(compiled, name, content)
        named[name] = ready() if enumerator is None else enumerator.compiled((pin, name), ready)
    found = Occurrences(
        schedule, named, offset_us=spec.pins.jitter_offset_us, last_us=spec.pins.last_us, enumerator=enumerator
    )
    if named and schedule.series_key is not None:
        pinned = [
            (name, spec.pins.calendars[name].to_json()) for name in (*schedule.exclude_calendars, *schedule.windows)
        ]
        found._series_key = f"{schedule.series_key}|{pinned}"
    return found


def _ready(name: str, content: CalendarContent | Compiled) -> Compiled:
    return content if isinstance(content, Compiled) else compiled(name, content)
