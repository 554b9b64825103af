"""What the next version of a job is: for creation, edit, restoration, pause, resume, deletion and changed calendars.

Pure: each decision (core/store/job_changes.py: Decision) answers from the job, what the transaction found around it,
and the instant of the cut-over. Used by controlplane/api for single jobs and by operations for many.

The rules. An edit takes effect from now on: nothing of the new schedule lies at or before the cut-over, and what the
old one had until then stays with the old version. Only a one-off instant in the past that is newly given is taken as it
is: the version then begins at the earliest of those. A pause keeps its beginning in `from_us`, over edits that leave
the schedule alone; whatever ends it records its occurrences as skipped, or, on wish, makes them the resumed version's
own, so that the catch-up policy decides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from uuid import UUID

from controlplane.api.violations import BadRequest
from controlplane.pinning import (
    emptiest,
    first_after,
    jitter_candidates,
    jitter_minutes,
    last_allowed,
    named_calendars,
    occurrences_in,
    pinned_calendars,
    with_last,
)
from core.enumerator import Enumerator
from core.errors import Conflict, Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence, SearchLimit
from core.schedule import Schedule
from core.states import JOB_TRANSITIONS, JobEvent, JobState
from core.store.job_changes import NextVersion
from core.store.jobs import JobRecord
from core.store.surroundings import Surroundings, Wishes

NO_MINUTES: frozenset[int] = frozenset()


class PausedOccurrences(Enum):
    """What becomes of the occurrences of a pause when it ends."""

    SKIP = "skip"
    CATCH_UP = "catch up"


def readable_spec(job: JobRecord) -> JobSpec:
    """What the job says. Raises Conflict where its stored form cannot be read."""
    if job.spec is None:
        raise Conflict(f"{job.fault}; delete the job and create it anew", field="name")
    return job.spec


@dataclass(frozen=True, slots=True)
class Creation:
    """The first version of the job `job_id`."""

    job_id: UUID
    spec: JobSpec
    payload: bytes
    enumerator: Enumerator

    def wishes(self, present: JobRecord | None) -> Wishes:
        return Wishes(calendars=named_calendars(self.spec.schedule))

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return self._draft(around, at_us).minutes()

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion:
        draft = self._draft(around, at_us)
        spec, first = draft.finished(left=self.spec.schedule.max_runs if self.spec.schedule else 0)
        return NextVersion(spec, self.payload, JobState.ACTIVE, first, draft.from_us)

    def _draft(self, around: Surroundings, at_us: int) -> _Draft:
        return _Draft.of(self.spec, None, around, at_us, self.job_id, self.enumerator, restored=False)


@dataclass(frozen=True, slots=True)
class Edit:
    """The version after a change of what the job says; its state stays.

    `edited` gives the new spec and payload; it may refuse. With `restored` they are those of an older version: its
    past one-offs are not taken again, its jitter stays what it was, and a schedule that is over may come back.
    """

    edited: Callable[[JobRecord], tuple[JobSpec, bytes]]
    enumerator: Enumerator
    restored: bool = False

    def wishes(self, present: JobRecord | None) -> Wishes:
        assert present is not None, "only a job that is there is edited"
        old, (new, _) = readable_spec(present), self.edited(present)
        if new.schedule == old.schedule:
            return Wishes(pins=frozenset(old.pins.calendars.values()))
        limited = new.schedule is not None and new.schedule.max_runs > 0
        return Wishes(named_calendars(new.schedule), frozenset(old.pins.calendars.values()), limited)

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        assert present is not None, "only a job that is there is edited"
        old, (new, _) = readable_spec(present), self.edited(present)
        return NO_MINUTES if new.schedule == old.schedule else self._draft(present, new, around, at_us).minutes()

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion:
        assert present is not None, "only a job that is there is edited"
        old, (new, payload) = readable_spec(present), self.edited(present)
        paused = present.state is JobState.PAUSED
        if new.schedule == old.schedule:
            kept = replace(new, pins=old.pins)
            first = None if paused else first_after(occurrences_in(kept, around, self.enumerator), at_us)
            return NextVersion(kept, payload, present.state, first, present.from_us if paused else None)
        draft = self._draft(present, new, around, at_us)
        spec, first = draft.finished(left=_runs_left(present, new, around, at_us, self.enumerator))
        if not paused:
            return NextVersion(spec, payload, present.state, first, draft.from_us)
        skipped = pause_of(present, around, at_us, self.enumerator)
        return NextVersion(spec, payload, present.state, None, draft.from_us, skipped)

    def _draft(self, present: JobRecord, new: JobSpec, around: Surroundings, at_us: int) -> _Draft:
        old = readable_spec(present)
        try:
            return _Draft.of(new, old, around, at_us, present.job_id, self.enumerator, restored=self.restored)
        except (Invalid, BadRequest) as fault:
            if not self.restored:
                raise
            raise Invalid("version", f"cannot be restored now: {fault}") from None


@dataclass(frozen=True, slots=True)
class Pause:
    """No occurrence after the cut-over runs. A job that is paused is left as it is."""

    def wishes(self, present: JobRecord | None) -> Wishes:
        return Wishes()

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return NO_MINUTES

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        assert present is not None, "only a job that is there is paused"
        if (present.state, JobEvent.PAUSE) not in JOB_TRANSITIONS:
            return None
        return NextVersion(present.spec, present.payload, JobState.PAUSED, None)


@dataclass(frozen=True, slots=True)
class Resume:
    """The end of a pause. A job that is active is left as it is."""

    paused: PausedOccurrences
    enumerator: Enumerator

    def wishes(self, present: JobRecord | None) -> Wishes:
        assert present is not None, "only a job that is there is resumed"
        if present.state is not JobState.PAUSED:
            return Wishes()
        return _own_wishes(readable_spec(present))

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return NO_MINUTES

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        assert present is not None, "only a job that is there is resumed"
        if (present.state, JobEvent.RESUME) not in JOB_TRANSITIONS:
            return None
        spec = readable_spec(present)
        caught_up = self.paused is PausedOccurrences.CATCH_UP
        from_us = present.from_us if caught_up else at_us
        left = _runs_left(present, spec, around, at_us, self.enumerator)
        spec, first = _limited(spec, around, from_us, left, self.enumerator)
        skipped = None if caught_up else pause_of(present, around, at_us, self.enumerator)
        return NextVersion(spec, present.payload, JobState.ACTIVE, first, from_us, skipped)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The end of a job. The occurrences of a pause that it ends are recorded as skipped."""

    enumerator: Enumerator

    def wishes(self, present: JobRecord | None) -> Wishes:
        assert present is not None, "only a job that is there is deleted"
        if present.state is not JobState.PAUSED or present.spec is None:
            return Wishes()
        return Wishes(pins=frozenset(present.spec.pins.calendars.values()))

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return NO_MINUTES

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion:
        assert present is not None, "only a job that is there is deleted"
        skipped = None
        if present.state is JobState.PAUSED and present.spec is not None:
            try:
                skipped = pause_of(present, around, at_us, self.enumerator)
            except Conflict:  # a calendar that cannot be read must not keep the job alive
                skipped = None
        return NextVersion(present.spec, present.payload, JobState.DELETED, None, None, skipped)


@dataclass(frozen=True, slots=True)
class Repinning:
    """The version by which the present versions of the calendars reach a job; nothing if they have already."""

    enumerator: Enumerator

    def wishes(self, present: JobRecord | None) -> Wishes:
        assert present is not None, "only a job that is there is pinned anew"
        if present.spec is None:
            return Wishes()
        return replace(_own_wishes(present.spec), calendars=named_calendars(present.spec.schedule))

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return NO_MINUTES

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        assert present is not None, "only a job that is there is pinned anew"
        if present.spec is None or present.state is JobState.DELETED:
            return None
        calendars = {name: around.calendars.get(name, pin) for name, pin in present.spec.pins.calendars.items()}
        if calendars == present.spec.pins.calendars:
            return None
        spec = replace(present.spec, pins=replace(present.spec.pins, calendars=calendars))
        left = _runs_left(present, spec, around, at_us, self.enumerator)
        spec, first = _limited(spec, around, at_us, left, self.enumerator)
        if present.state is JobState.ACTIVE:
            return NextVersion(spec, present.payload, present.state, first)
        skipped = pause_of(present, around, at_us, self.enumerator)
        return NextVersion(spec, present.payload, present.state, None, None, skipped)


def pause_of(present: JobRecord, around: Surroundings, at_us: int, enumerator: Enumerator) -> tuple[int, int] | None:
    """The first and the last nominal instant of a paused job's pause, when it ends at `at_us`; None if it had none.

    Where a search was given up the bounds are those of the pause: a range may be wider than what it holds.
    """
    occurrences = occurrences_in(readable_spec(present), around, enumerator)
    first = first_after(occurrences, present.from_us)
    if occurrences is None or first is None or first.nominal_us > at_us:
        return None
    try:
        last = occurrences.prev_before(at_us + 1)
    except SearchLimit:
        return first.nominal_us, at_us
    return first.nominal_us, max(first.nominal_us, first.nominal_us if last is None else last.nominal_us)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A version with a newly given schedule, before its jitter and its last occurrence are known."""

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
    ) -> _Draft:
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
        return _limited(spec, self.around, self.from_us, left, self.enumerator)


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


def _limited(
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


def _runs_left(present: JobRecord, new: JobSpec, around: Surroundings, at_us: int, enumerator: Enumerator) -> int:
    """How many runs the limit of the new schedule leaves: those made count, and those that the present version still
    has to make until the cut-over."""
    limit = new.schedule.max_runs if new.schedule else 0
    if limit == 0:
        return 0
    pending = 0
    occurrences = occurrences_in(readable_spec(present), around, enumerator)
    if occurrences is not None and present.state is JobState.ACTIVE:
        begin_us = max(present.from_us, around.accounted_us) + 1
        with suppress(SearchLimit):
            pending = len(occurrences.between(begin_us, at_us + 1, limit))
    return max(0, limit - around.runs_made - pending)


def _own_wishes(spec: JobSpec) -> Wishes:
    limited = spec.schedule is not None and spec.schedule.max_runs > 0
    return Wishes(pins=frozenset(spec.pins.calendars.values()), counts=limited)
