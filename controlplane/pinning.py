"""What is fixed when a version of a job is made: which calendars, how much jitter, which last occurrence. Pure.

Called by controlplane/next_version.py. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from uuid import UUID

from controlplane.api.violations import Violations
from core.calendars import CalendarPin, DaysOff
from core.enumerator import Enumerator
from core.errors import Conflict, Invalid
from core.jobspec import JobSpec
from core.occurrences import Occurrence, Occurrences, SearchLimit, occurrences_of
from core.schedule import Schedule
from core.store.surroundings import MINUTE_US, Surroundings

_JITTER_CANDIDATES = 4
# Searches for the last allowed occurrence that may end without one.
_MOST_SEARCHES = 20


def named_calendars(schedule: Schedule | None) -> frozenset[str]:
    """The names of every calendar that the schedule refers to."""
    return frozenset() if schedule is None else frozenset((*schedule.exclude_calendars, *schedule.windows))


def pinned_calendars(schedule: Schedule | None, around: Surroundings) -> dict[str, CalendarPin]:
    """The present version of each calendar that the schedule names.

    Raises BadRequest, with paths below `job.schedule`, for names that are no calendars of the namespace, or of the
    other kind.
    """
    if schedule is None:
        return {}
    pins, faults = {}, Violations()
    for at, names, wants_days in (
        ("exclude.calendars", schedule.exclude_calendars, True),
        ("windows", schedule.windows, False),
    ):
        for index, name in enumerate(names):
            with faults.noted():
                pins[name] = _pin(name, f"job.schedule.{at}[{index}]", around, wants_days=wants_days)
    faults.refuse()
    return pins


def _pin(name: str, path: str, around: Surroundings, *, wants_days: bool) -> CalendarPin:
    pin = around.calendars.get(name)
    content = None if pin is None else around.contents.get(pin)
    if pin is None or content is None:
        raise Invalid(path, f"no calendar of the namespace is named {name!r}")
    if isinstance(content, Invalid):
        raise Invalid(path, f"calendar {name!r} cannot be read: {content.rule}")
    if isinstance(content, DaysOff) is not wants_days:
        rule = "holds windows: name it in windows" if wants_days else "holds days off: name it in exclude.calendars"
        raise Invalid(path, f"calendar {name!r} {rule}")
    return pin


def occurrences_in(spec: JobSpec, around: Surroundings, enumerator: Enumerator) -> Occurrences | None:
    """The occurrences of a version, None without a schedule. Raises Conflict where one of its calendars is missing."""
    try:
        return occurrences_of(spec, around.contents, enumerator)
    except Invalid as fault:
        raise Conflict(f"its occurrences cannot be computed: {fault.rule}", field="name") from None


def first_after(occurrences: Occurrences | None, instant_us: int) -> Occurrence | None:
    """The first occurrence after an instant. Where a search was given up its end stands for it: a chain that stands at
    an instant that is no occurrence makes no run there, and goes on searching."""
    if occurrences is None:
        return None
    try:
        return occurrences.next_after(instant_us)
    except SearchLimit as limit:
        return Occurrence(limit.at_us, limit.at_us)


def jitter_candidates(job_id: UUID, jitter_us: int) -> tuple[int, ...]:
    """The few offsets in [0, jitter_us] that a job may get: the same for the same job."""
    return tuple(
        int.from_bytes(blake2b(job_id.bytes + bytes([n]), digest_size=8, person=b"tw-jitter").digest(), "big")
        % (jitter_us + 1)
        for n in range(_JITTER_CANDIDATES)
    )


def jitter_minutes(first: Occurrence | None, candidates: Iterable[int]) -> frozenset[int]:
    """The minutes in which the first occurrence would be due with each of the candidates."""
    if first is None:
        return frozenset()
    return frozenset((first.due_us + offset_us) // MINUTE_US for offset_us in candidates)


def emptiest(first: Occurrence | None, candidates: tuple[int, ...], load: Mapping[int, int]) -> int:
    """Of the candidates the one whose minute holds the fewest due rows; the earlier candidate where they are equal."""
    if first is None:
        return candidates[0]
    return min(candidates, key=lambda offset_us: load.get((first.due_us + offset_us) // MINUTE_US, 0))


def with_last(spec: JobSpec, last_us: int | None) -> JobSpec:
    """The version with this last occurrence."""
    return replace(spec, pins=replace(spec.pins, last_us=last_us))


def last_allowed(occurrences: Occurrences, from_us: int, left: int) -> int | None:
    """The last nominal instant of `left` occurrences after `from_us`; None where there are fewer anyway."""
    if left <= 0:
        return max(0, from_us)
    try:
        last = occurrences.nth_after(from_us, left)
        return None if last is None else last.nominal_us
    except SearchLimit:
        return _walked(occurrences, from_us, left)


def _walked(occurrences: Occurrences, at_us: int, left: int) -> int | None:
    """As `last_allowed`, one by one: a search that was given up is taken up again, a few times."""
    given_up = 0
    while left > 0:
        try:
            found = occurrences.next_after(at_us)
        except SearchLimit as limit:
            given_up += 1
            if given_up > _MOST_SEARCHES:
                return None
            at_us = limit.at_us
            continue
        if found is None:
            return None
        at_us, left = found.nominal_us, left - 1
    return at_us
