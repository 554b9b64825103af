"""The occurrences of one version of a job: nominal instants, and when each is due. Pure.

Built from the version's schedule and pins (core/jobspec.py) by dispatchers, the API and the command line alike, so that
all of them answer the same. Never looks at a clock, and never at what has been run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from core.calendars import CalendarContent, CalendarPin
from core.civil import END_US
from core.enumerator import Enumerator
from core.errors import Invalid, TidewheelError
from core.jobspec import JobSpec
from core.schedule import Schedule


class Occurrence(NamedTuple):
    """One occurrence: its identity, and the instant from which its run may start."""

    nominal_us: int
    due_us: int


class SearchLimit(TidewheelError):
    """A search walked too far over what is taken away: there is nothing up to `at_us`, and it can be taken up there."""

    def __init__(self, at_us: int) -> None:
        super().__init__(f"nothing was found up to {at_us} us")
        self.at_us = at_us


class Occurrences:
    """The occurrences of a schedule up to `last_us` (inclusive; None: without such a bound).

    `contents` holds what each calendar that the schedule names says. `offset_us` is the job's share of the jitter.
    """

    def __init__(
        self,
        schedule: Schedule,
        contents: Mapping[str, CalendarContent] | None = None,
        *,
        offset_us: int = 0,
        last_us: int | None = None,
        enumerator: Enumerator | None = None,
    ) -> None:
        self._schedule = schedule
        self._contents = contents or {}
        self._offset_us = offset_us
        self._last_us = last_us
        self._enumerator = enumerator
        self._end_us = END_US if schedule.end_us is None else schedule.end_us

    def until(self, last_us: int | None) -> Occurrences:
        """The same occurrences up to `last_us` (inclusive), if that is the tighter bound."""
        if last_us is None or (self._last_us is not None and self._last_us <= last_us):
            return self
        return Occurrences(
            self._schedule, self._contents, offset_us=self._offset_us, last_us=last_us, enumerator=self._enumerator
        )

    def next_after(self, nominal_us: int) -> Occurrence | None:
        """The first occurrence whose nominal instant is later, or None. Raises SearchLimit."""
        if self._enumerator is None:
            found_us = self._schedule.next_after(nominal_us)
        else:
            found_us = self._enumerator.next_after(self._schedule, nominal_us)
        if found_us is None or (self._last_us is not None and found_us > self._last_us):
            return None
        return Occurrence(found_us, self._due_us(found_us))

    def prev_before(self, nominal_us: int) -> Occurrence | None:
        """The last occurrence whose nominal instant is earlier, or None. Raises SearchLimit."""
        bound_us = nominal_us if self._last_us is None else min(nominal_us, self._last_us + 1)
        found_us = self._schedule.prev_before(bound_us)
        return None if found_us is None else Occurrence(found_us, self._due_us(found_us))

    def at(self, nominal_us: int) -> Occurrence | None:
        """The occurrence with this nominal instant, or None."""
        found = self.next_after(nominal_us - 1)
        return found if found is not None and found.nominal_us == nominal_us else None

    def first_due_from(self, due_us: int) -> Occurrence | None:
        """The first occurrence that is due at `due_us` or later. Raises SearchLimit."""
        if due_us >= self._end_us:
            return None
        return self.next_after(due_us - self._offset_us - 1)

    def last_due_before(self, due_us: int) -> Occurrence | None:
        """The last occurrence that is due earlier than `due_us`. Raises SearchLimit."""
        return self.prev_before(self._end_us if due_us >= self._end_us else due_us - self._offset_us)

    def between(self, from_us: int, to_us: int, limit: int) -> tuple[Occurrence, ...]:
        """The occurrences whose nominal instants are in [from_us, to_us), at most `limit`. Raises SearchLimit."""
        found: list[Occurrence] = []
        following = self.next_after(from_us - 1)
        while following is not None and following.nominal_us < to_us and len(found) < limit:
            found.append(following)
            following = self.next_after(following.nominal_us)
        return tuple(found)

    def nth_after(self, nominal_us: int, n: int) -> Occurrence | None:
        """The n-th (from 1) occurrence after `nominal_us`; None where there are fewer. Raises SearchLimit."""
        found = None
        for _ in range(n):
            found = self.next_after(nominal_us)
            if found is None:
                return None
            nominal_us = found.nominal_us
        return found

    def _due_us(self, nominal_us: int) -> int:
        return min(nominal_us + self._offset_us, self._end_us - 1)


def occurrences_of(
    spec: JobSpec, contents: Mapping[CalendarPin, CalendarContent | Invalid], enumerator: Enumerator | None
) -> Occurrences | None:
    """The occurrences of a version; None where it has no schedule.

    Raises Invalid when a calendar that the version is pinned to is missing in `contents`, or not readable.
    """
    schedule = spec.schedule
    if schedule is None:
        return None
    named: dict[str, CalendarContent] = {}
    for name in (*schedule.exclude_calendars, *schedule.windows):
        pin = spec.pins.calendars.get(name)
        content = None if pin is None else contents.get(pin)
        if content is None:
            raise Invalid("schedule", f"the calendar {name} that it names is missing")
        if isinstance(content, Invalid):
            raise content
        named[name] = content
    return Occurrences(
        schedule, named, offset_us=spec.pins.jitter_offset_us, last_us=spec.pins.last_us, enumerator=enumerator
    )
