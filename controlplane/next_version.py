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
    first_after,
    named_calendars,
    occurrences_in,
)
from controlplane.version_drafts import NO_MINUTES, Draft, limited
from core.enumerator import Enumerator
from core.errors import Conflict, Invalid
from core.jobspec import JobSpec
from core.occurrences import SearchLimit
from core.states import JOB_TRANSITIONS, JobEvent, JobState
from core.store.job_changes import NextVersion
from core.store.jobs import JobRecord
from core.store.surroundings import Surroundings, Wishes


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

    def _draft(self, around: Surroundings, at_us: int) -> Draft:
        return Draft.of(self.spec, None, around, at_us, self.job_id, self.enumerator, restored=False)


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

    def _draft(self, present: JobRecord, new: JobSpec, around: Surroundings, at_us: int) -> Draft:
        old = readable_spec(present)
        try:
            return Draft.of(new, old, around, at_us, present.job_id, self.enumerator, restored=self.restored)
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
        spec, first = limited(spec, around, from_us, left, self.enumerator)
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
        spec, first = limited(spec, around, at_us, left, self.enumerator)
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
