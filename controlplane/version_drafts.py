"""A version with a newly given schedule, before its jitter and its last occurrence are known; and what pins them. Pure.

Called by next_version.py, which says for which changes a schedule is newly given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from controlplane.pinning import (
    emptiest,
    first_after,
    jitter_candidates,
    jitter_minutes,
    last_allowed,
    occurrences_in,
    pinned_calendars,
    with_last,
)
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence, SearchLimit
from core.schedule import Schedule
from core.store.surroundings import Surroundings

NO_MINUTES: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Draft:
    """Such a version; the rules are those of next_version.py."""

    spec: JobSpec
    from_us: int
    around: Surroundings
    enumerator: Enumerator
    jitter_candidates: tuple[int, ...]
    # Where the chain would begin without jitter and without a limit of runs.
    bare_first: Occurrence | None

    @classmethod
    def of(
        cls,
        new: JobSpec,
        old: JobSpec | None,
        around: Surroundings,
        at_us: int,
        job_id: UUID,
        enumerator: Enumerator,
        *,
        restored: bool,
    ) -> Draft:
        old_schedule = None if old is None else old.schedule
        from_us = at_us if restored else _beginning(new.schedule, old_schedule, at_us)
        jitter_us = new.schedule.jitter_us if new.schedule else 0
        candidates: tuple[int, ...] = ()
        if jitter_us and old is not None and old_schedule is not None and old_schedule.jitter_us == jitter_us:
            candidates = (old.pins.jitter_offset_us,)
        elif jitter_us and restored:
            candidates = (new.pins.jitter_offset_us,)
        elif jitter_us:
            candidates = jitter_candidates(job_id, jitter_us)
        spec = replace(new, pins=Pins(calendars=pinned_calendars(new.schedule, around)))
        first = _sought(spec, around, from_us, enumerator, refuse=not restored)
        return cls(spec, from_us, around, enumerator, candidates, first)

    def minutes(self) -> frozenset[int]:
        """The minutes whose load decides about the jitter."""
        return (
            jitter_minutes(self.bare_first, self.jitter_candidates) if len(self.jitter_candidates) > 1 else NO_MINUTES
        )

    def finished(self, *, left: int) -> tuple[JobSpec, Occurrence | None]:
        """The spec with every pin, and where its chain begins; `left` runs are allowed if the schedule has a limit."""
        offset_us = 0
        if self.jitter_candidates:
            offset_us = emptiest(self.bare_first, self.jitter_candidates, self.around.load)
        spec = replace(self.spec, pins=replace(self.spec.pins, jitter_offset_us=offset_us))
        return limited(spec, self.around, self.from_us, left, self.enumerator)


def limited(
    spec: JobSpec, around: Surroundings, from_us: int, left: int, enumerator: Enumerator
) -> tuple[JobSpec, Occurrence | None]:
    """The spec with its last occurrence pinned where the schedule limits its runs, and where its chain begins."""
    unlimited = with_last(spec, None)
    occurrences = occurrences_in(unlimited, around, enumerator)
    if occurrences is None or spec.schedule is None:
        return unlimited, None
    if spec.schedule.max_runs == 0:
        return unlimited, first_after(occurrences, from_us)
    last_us = last_allowed(occurrences, from_us, left)
    return with_last(spec, last_us), first_after(occurrences.until(last_us), from_us)


def _beginning(new: Schedule | None, old: Schedule | None, at_us: int) -> int:
    """The instant that the new version's own occurrences lie strictly after: the cut-over, or a newly given one-off.

    Raises Invalid for a one-off in the past beside intervals or lines: from there on theirs would be in the past, too.
    """
    given = () if new is None else new.at_us
    known = () if old is None else old.at_us
    past = [each for each in given if each <= at_us and each not in known]
    if past and new is not None and new.recurring:
        rule = "gives an instant in the past; beside intervals and cron lines only instants to come can be added"
        raise Invalid("job.schedule.at", rule)
    return min(past) - 1 if past else at_us


def _sought(
    spec: JobSpec, around: Surroundings, from_us: int, enumerator: Enumerator, *, refuse: bool
) -> Occurrence | None:
    """The first occurrence of a newly given schedule. Raises Invalid where a recurring one has none any more."""
    occurrences = occurrences_in(spec, around, enumerator)
    if occurrences is None:
        return None
    if not refuse:
        return first_after(occurrences, from_us)
    try:
        first = occurrences.next_after(from_us)
    except SearchLimit:
        raise Invalid(
            "job.schedule", "never fires: whatever it gives after now is taken away, as far as was searched"
        ) from None
    if first is None and spec.schedule is not None and spec.schedule.recurring:
        raise Invalid("job.schedule", "never fires: it has no occurrence after now")
    return first
