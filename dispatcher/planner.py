"""Decides what a due occurrence becomes: a run, a skip, both, or nothing; and where its chain stands next. Pure.

Called by firing for each due row of kind OCCURRENCE. The catch-up policy is core/policy.py; here it is bounded by the
life of the job's version: occurrences of a version end at the instant at which the next version took over (rule of
ownership 9), and those due before that instant still fire.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.buckets import BucketScale
from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.ids import occurrence_run_id
from core.policy import Overlap, decide_catch_up
from core.schedule import Schedule
from core.states import SkipReason
from core.store.decisions import DueKey, FireChain, LeaseGrant, NewRun, NextOccurrence, SkippedRange
from core.store.discovery import DueRow
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion, Unreadable

# A job that cannot be read is looked at again after this long, and its occurrences wait (B32: zone data may come back).
SET_ASIDE_RETRY_US = 60 * US_PER_S


class VersionedOccurrences:
    """The occurrences of one version of a job: its schedule up to its end, equal questions answered once."""

    def __init__(self, schedule: Schedule, enumerator: Enumerator, end_us: int | None) -> None:
        self._schedule = schedule
        self._enumerator = enumerator
        self._end_us = end_us

    def next_after(self, instant_us: int) -> int | None:
        """The next occurrence that the version still owns, or None."""
        found = self._enumerator.next_after(self._schedule, instant_us)
        return None if found is None or (self._end_us is not None and found > self._end_us) else found

    def prev_before(self, instant_us: int) -> int | None:
        """The occurrence before, or None."""
        bound = instant_us if self._end_us is None else min(instant_us, self._end_us + 1)
        return self._schedule.prev_before(bound)


@dataclass(frozen=True, slots=True)
class Decision:
    """What firing writes for one row, before it is known whether a credit is there for the run."""

    run_us: int | None
    due_at_us: int
    skipped: SkippedRange | None
    next: NextOccurrence | None
    overlap_skip: bool


def decide(row: DueRow, job: JobVersion, now_us: int, scale: BucketScale, enumerator: Enumerator) -> Decision:
    """Decide about a row that is due. A row whose version ended before it is deleted without a trace."""
    overlap_skip = job.spec.overlap is Overlap.SKIP
    ended = job.superseded_us is not None and row.scheduled_for_us > job.superseded_us
    if ended or job.spec.schedule is None:
        return Decision(None, row.due_at_us, None, None, overlap_skip)
    occurrences = VersionedOccurrences(job.spec.schedule, enumerator, job.superseded_us)
    made = decide_catch_up(job.spec.catch_up, occurrences, row.scheduled_for_us, now_us)
    skipped = None
    if made.skip_from_us is not None and made.skip_to_us is not None:
        skipped = SkippedRange(made.skip_from_us, made.skip_to_us, SkipReason.CATCH_UP)
    moved = made.run_us is not None and made.run_us != row.scheduled_for_us
    due_at_us = made.run_us if moved and made.run_us is not None else row.due_at_us
    return Decision(made.run_us, due_at_us, skipped, _next(made.next_us, scale), overlap_skip)


def set_aside(row: DueRow, broken: Unreadable, held: HeldTerm, now_us: int, scale: BucketScale) -> FireChain:
    """Keep the chain of an unreadable job where it stands, and look again later."""
    again_us = now_us + SET_ASIDE_RETRY_US
    return FireChain(
        key=due_key(row, held.term),
        job_id=row.job_id,
        job_version=row.job_version,
        expect_version=broken.current_version,
        run=None,
        skipped=None,
        next=NextOccurrence(scale.bucket_of(again_us), again_us, row.scheduled_for_us),
        open_from_us=held.open_from_us,
    )


def chain_item(row: DueRow, job: JobVersion, decision: Decision, lease: LeaseGrant | None, held: HeldTerm) -> FireChain:
    """The statement's item for a decision, with the lease that was reserved for its run, if any."""
    run = None
    if decision.run_us is not None:
        run = NewRun(
            run_id=occurrence_run_id(row.job_id, job.hash16, decision.run_us),
            scheduled_for_us=decision.run_us,
            due_at_us=decision.due_at_us,
            lease=lease,
            overlap_skip=decision.overlap_skip,
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


def _next(next_us: int | None, scale: BucketScale) -> NextOccurrence | None:
    return None if next_us is None else NextOccurrence(scale.bucket_of(next_us), next_us, next_us)
