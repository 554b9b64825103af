"""What a schedule comes to: its next occurrences, or those of a range, with all that shapes them. Pure.

The API (controlplane/api/schedules.py) and the command line without a server draw from here alike, and from the same
core/occurrences.py as dispatchers do: what is shown is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.schedule_words import words_of
from core.calendars import CalendarContent, DaysOff
from core.civil import END_US
from core.errors import Invalid
from core.marks import Entry
from core.occurrences import Occurrences, SearchLimit
from core.schedule import Schedule

MAX_COUNT = 1_000
DEFAULT_COUNT = 10


@dataclass(frozen=True, slots=True)
class Drawn:
    """A schedule with its occurrences.

    `left` bounds how many occurrences are drawn, None: without end. `remarks` are said after the words of the schedule.
    """

    schedule: Schedule
    occurrences: Occurrences
    left: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """Which occurrences: nominal instants in [from_us, to_us), at most `count`, with what is taken away if wished."""

    from_us: int
    to_us: int = END_US
    count: int = DEFAULT_COUNT
    include_excluded: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """Occurrences in order; `more` when the schedule goes on after the last one."""

    entries: tuple[Entry, ...]
    more: bool
    notes: tuple[str, ...]


def draft(schedule: Schedule, contents: Mapping[str, CalendarContent], *, offset_us: int = 0) -> Drawn:
    """The occurrences of a schedule that is no job's yet. `contents` holds the calendars that it names.

    Raises Invalid, with a path below `schedule`, for a calendar that is missing or of the other kind.
    """
    for path, names, wants_days in (
        ("exclude.calendars", schedule.exclude_calendars, True),
        ("windows", schedule.windows, False),
    ):
        for index, name in enumerate(names):
            content = contents.get(name)
            if content is None:
                raise Invalid(f"schedule.{path}[{index}]", f"no calendar is named {name!r}")
            if isinstance(content, DaysOff) is not wants_days:
                rule = "holds days off: name it in exclude.calendars" if not wants_days else "holds windows, not days"
                raise Invalid(f"schedule.{path}[{index}]", f"calendar {name!r} {rule}")
    remarks = []
    if schedule.hash_key:
        remarks.append("A job takes the slots of `H` from its own name: those shown here are an example.")
    if schedule.max_runs:
        remarks.append("Occurrences are counted from the first one that is shown.")
    occurrences = Occurrences(schedule, contents, offset_us=offset_us)
    return Drawn(schedule, occurrences, schedule.max_runs or None, tuple(remarks))


def preview(drawn: Drawn, wish: Wish) -> Preview:
    """What the wish asks for."""
    notes = [*words_of(drawn.schedule), *drawn.remarks]
    draw = _with_excluded if wish.include_excluded else _counting
    entries, more, given_up_us = draw(drawn, wish)
    if given_up_us is not None:
        notes.append("So much is taken away that the search was given up: ask again from a later instant.")
    return Preview(tuple(entries), more, tuple(notes))


def entry_at(drawn: Drawn, nominal_us: int) -> Entry | None:
    """The occurrence with this nominal instant, with what shapes it; what counts before what is taken away."""
    found = drawn.occurrences.entries(nominal_us, nominal_us + 1, 8)
    return next((entry for entry in found if not entry.excluded_by), next(iter(found), None))


_Found = tuple[list[Entry], bool, int | None]


def _counting(drawn: Drawn, wish: Wish) -> _Found:
    """Only what runs."""
    left = wish.count if drawn.left is None else min(wish.count, drawn.left)
    entries: list[Entry] = []
    at_us = wish.from_us - 1
    while len(entries) < left:
        try:
            found = drawn.occurrences.next_after(at_us)
        except SearchLimit as limit:
            return entries, True, limit.at_us
        if found is None or found.nominal_us >= wish.to_us:
            return entries, found is not None, None
        at_us = found.nominal_us
        entry = entry_at(drawn, at_us)
        assert entry is not None, "what counts is among the entries"
        entries.append(entry)
    return entries, drawn.left != left and _goes_on(drawn, at_us), None


def _with_excluded(drawn: Drawn, wish: Wish) -> _Found:
    """What runs, and what is taken away."""
    try:
        found = drawn.occurrences.entries(wish.from_us, wish.to_us, wish.count)
    except SearchLimit as limit:
        return [], True, limit.at_us
    entries: list[Entry] = []
    counted = 0
    for entry in found:
        if drawn.left is not None and counted == drawn.left:
            return entries, False, None
        counted += not entry.excluded_by
        entries.append(entry)
    at_us = entries[-1].nominal_us if len(entries) == wish.count else wish.to_us - 1
    return entries, drawn.left != counted and _goes_on(drawn, at_us), None


def _goes_on(drawn: Drawn, at_us: int) -> bool:
    """Whether there is an occurrence after an instant, as far as a search finds out."""
    try:
        return drawn.occurrences.next_after(at_us) is not None
    except SearchLimit:
        return True
