"""Decides what a due occurrence becomes: a run, a skip, both, or nothing; and where its chain stands next. Pure.

Called by drafting for each due row of kind OCCURRENCE. The catch-up policy is core/catch_up.py; here it is bounded by
the life of the job's version: occurrences of a version end at the instant at which the next version took over (rule of
ownership 9), and those that were due before that instant still fire. What only becomes due afterwards, because of
jitter or a deferral, fires after an edit, and is recorded as skipped after a pause or a deletion.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.buckets import BucketScale
from core.catch_up import Back, CatchUpDecision, Stand, decide_catch_up, next_stand
from core.clock import US_PER_S
from core.ids import occurrence_run_id
from core.occurrences import Occurrence, Occurrences, SearchLimit
from core.states import JobState, SkipReason
from core.store.decisions import DueKey, FireChain, LeaseGrant, NewRun, NextOccurrence, SkippedRange
from core.store.discovery import DueRow
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion, Unreadable

# A job that cannot be read is looked at again after this long, and its occurrences wait (B32: zone data may come back).
SET_ASIDE_RETRY_US = 60 * US_PER_S


class DueBeforeStop:
    """The occurrences of a version that were due when its job was paused or deleted, at `stop_us`."""

    def __init__(self, owned: Occurrences, stop_us: int) -> None:
        self._owned = owned
        self._stop_us = stop_us

    def at(self, nominal_us: int) -> Occurrence | None:
        """The occurrence with this nominal instant, or None."""
        return self._if_due(self._owned.at(nominal_us))

    def next_after(self, nominal_us: int) -> Occurrence | None:
        """The first one whose nominal instant is later, or None. Raises SearchLimit."""
        return self._if_due(self._owned.next_after(nominal_us))

    def prev_before(self, nominal_us: int) -> Occurrence | None:
        """The last one whose nominal instant is earlier, or None. Raises SearchLimit."""
        found = self._owned.prev_before(nominal_us)
        if found is not None and found.due_us > self._stop_us:
            return self._owned.last_due_before(self._stop_us + 1)
        return found

    def last_due_before(self, due_us: int) -> Occurrence | None:
        """The last one that is due earlier than `due_us`. Raises SearchLimit."""
        return self._owned.last_due_before(min(due_us, self._stop_us + 1))

    def _if_due(self, found: Occurrence | None) -> Occurrence | None:
        return None if found is None or found.due_us > self._stop_us else found


@dataclass(frozen=True, slots=True)
class Decision:
    """What firing writes for one row, before it is known whether a credit is there for the run.

    `late` and `yields_us` are those of core/catch_up.py.
    """

    run: Occurrence | None = None
    skipped: SkippedRange | None = None
    next: NextOccurrence | None = None
    late: bool = False
    yields_us: int | None = None


def decide(row: DueRow, job: JobVersion, now_us: int, scale: BucketScale) -> Decision:
    """Decide about a row that is due. A row whose version ended before it is deleted without a trace."""
    owned = job.occurrences
    back = None if row.back_us is None or row.back_to_us is None else Back(row.back_us, row.back_to_us)
    ended = job.superseded_us is not None and row.scheduled_for_us > job.superseded_us
    if owned is None or (ended and back is None):
        return Decision()
    if back is None and _came_due_too_late(row, job, owned):
        return Decision(skipped=_skipped_after_stop(row, job, owned))
    chain = owned if job.stopped_us is None else DueBeforeStop(owned, job.stopped_us)
    made = decide_catch_up(job.spec.catch_up, chain, row.scheduled_for_us, now_us, back)
    skipped = None if made.skipped is None else SkippedRange(*made.skipped, SkipReason.CATCH_UP)
    following = made.next
    if following is None and job.stopped_us is not None:
        following = _after_stop(made, row, owned)
    return Decision(made.run, skipped, _next(following, made.back, row, now_us, scale), made.late, made.yields_us)


def put_off(row: DueRow, job: JobVersion, held: HeldTerm, until_us: int, scale: BucketScale) -> FireChain:
    """Keep the chain where it stands, and decide about it again at `until_us`."""
    return _kept(row, job.current_version, held, until_us, scale)


def set_aside(row: DueRow, broken: Unreadable, held: HeldTerm, now_us: int, scale: BucketScale) -> FireChain:
    """Keep the chain of an unreadable job where it stands, and look again later."""
    return _kept(row, broken.current_version, held, now_us + SET_ASIDE_RETRY_US, scale)


def chain_item(row: DueRow, job: JobVersion, decision: Decision, lease: LeaseGrant | None, held: HeldTerm) -> FireChain:
    """The statement's item for a decision, with the lease that was reserved for its run, if any."""
    run = None
    if decision.run is not None:
        run = NewRun(
            run_id=occurrence_run_id(row.job_id, job.hash16, decision.run.nominal_us),
            scheduled_for_us=decision.run.nominal_us,
            due_at_us=decision.run.due_us,
            lease=lease,
            overlap=job.spec.overlap,
            max_buffered=job.spec.max_buffered,
        )
    return FireChain(
        key=due_key(row, held.term),
        job_id=row.job_id,
        job_version=row.job_version,
        expect_version=job.current_version,
        run=run,
        skipped=decision.skipped,
        next=decision.next,
        open_from_us=held.open_from_us,
        stand_before_us=held.stand_before_us,
    )


def due_key(row: DueRow, term: int) -> DueKey:
    """Where the row stands, acted on under `term`."""
    return DueKey(row.shard, term, row.bucket, row.due_at_us, row.id)


def _came_due_too_late(row: DueRow, job: JobVersion, owned: Occurrences) -> bool:
    if job.stopped_us is None:
        return False
    head = owned.at(row.scheduled_for_us)
    return head is not None and head.due_us > job.stopped_us


def _skipped_after_stop(row: DueRow, job: JobVersion, owned: Occurrences) -> SkippedRange:
    """The head and all that the version has after it: due times do not decrease."""
    from_us = row.scheduled_for_us
    reason = SkipReason.DELETED if job.stopped_as is JobState.DELETED else SkipReason.PAUSED
    try:
        last = owned.prev_before(1 + (from_us if job.superseded_us is None else job.superseded_us))
        last_us = from_us if last is None else last.nominal_us
    except SearchLimit as limit:
        last_us = limit.at_us  # nothing lies between it and the version's end
    return SkippedRange(from_us, max(from_us, last_us), reason)


def _after_stop(made: CatchUpDecision, row: DueRow, owned: Occurrences) -> Stand | None:
    """Nothing follows that was due before the stop: the first occurrence that was not, if there is one."""
    seen_us = row.scheduled_for_us if row.back_us is None else row.scheduled_for_us - 1
    if made.run is not None and row.back_us is None:
        seen_us = made.run.nominal_us
    elif made.skipped is not None and row.back_us is None:
        seen_us = made.skipped.last_us
    return next_stand(owned, seen_us)


def _next(
    following: Stand | None, back: Back | None, row: DueRow, now_us: int, scale: BucketScale
) -> NextOccurrence | None:
    """Where the row goes. Its time only grows, so that it never lands on the very key that it leaves."""
    if following is None:
        return None
    due_at_us = max(following.due_us if back is None else now_us, row.due_at_us + 1)
    back_us, back_to_us = back or (None, None)
    return NextOccurrence(scale.bucket_of(due_at_us), due_at_us, following.nominal_us, back_us, back_to_us)


def _kept(row: DueRow, current_version: int, held: HeldTerm, until_us: int, scale: BucketScale) -> FireChain:
    until_us = max(until_us, row.due_at_us + 1)
    return FireChain(
        key=due_key(row, held.term),
        job_id=row.job_id,
        job_version=row.job_version,
        expect_version=current_version,
        run=None,
        skipped=None,
        next=NextOccurrence(scale.bucket_of(until_us), until_us, row.scheduled_for_us, row.back_us, row.back_to_us),
        open_from_us=held.open_from_us,
    )
