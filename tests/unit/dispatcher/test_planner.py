"""The planner: what a due occurrence becomes, and which versions of an edited job still fire (rule of ownership 9)."""

from __future__ import annotations

from typing import Any

import pytest

from core.buckets import BucketScale
from core.fence import TermRow
from core.ids import occurrence_run_id
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap
from core.schedule import Schedule
from core.states import JobState, SkipReason, TermState
from core.store.decisions import LeaseGrant, NextOccurrence, SkippedRange
from core.store.discovery import DueRow
from core.store.marks import Marks
from dispatcher.holdings import HeldTerm, Holdings
from dispatcher.jobs import JobVersion, Unreadable
from dispatcher.planner import SET_ASIDE_RETRY_US, Decision, chain_item, decide, due_key, put_off, set_aside
from tests.support.dispatcher_parts import due_row, job_version
from tests.support.instants import us

SCALE = BucketScale(5_000)
MINUTELY = Schedule(cron=("* * * * *",))
MINUTE_US = 60_000_000


def held_term() -> HeldTerm:
    held = Holdings().add(TermRow(0, 7, 0, 2**62, "me", TermState.OPEN), Marks(0, 0, 0, 1_000), 0.0)
    held.stand_before_us = 2_000
    return held


def job_of(schedule: Schedule | None, mode: CatchUpMode = CatchUpMode.LATEST, **changes: Any) -> JobVersion:
    jitter_us = changes.pop("jitter_us", 0)
    order = changes.pop("order", CatchUpOrder.OLDEST_FIRST)
    spec = JobSpec(handler="work", schedule=schedule, catch_up=CatchUp(mode, order=order), pins=Pins(jitter_us))
    return job_version(spec, **changes)


def row_of(job: JobVersion, at: str | int, **changes: Any) -> DueRow:
    instant_us = us(at) if isinstance(at, str) else at
    return due_row(instant_us, job_id=job.job_id, **changes)


def decide_at(job: JobVersion, head: str | int, now: str) -> Decision:
    return decide(row_of(job, head), job, us(now), SCALE)


def standing(at: str, *, late_by_us: int = 0) -> NextOccurrence:
    due_us = us(at) + late_by_us
    return NextOccurrence(SCALE.bucket_of(due_us), due_us, us(at))


def occurrence(at: str, *, late_by_us: int = 0) -> Occurrence:
    return Occurrence(us(at), us(at) + late_by_us)


def all_runs_until(job: JobVersion, head: str, now: str) -> tuple[list[int], list[SkippedRange], int | None]:
    """Fire the chain until it stands in the future: runs, skips, and where it stands."""
    runs, skips = [], []
    row: DueRow | None = row_of(job, head)
    while row is not None and row.due_at_us <= us(now):
        decision = decide(row, job, us(now), SCALE)
        runs += [] if decision.run is None else [decision.run.nominal_us]
        skips += [] if decision.skipped is None else [decision.skipped]
        at = decision.next
        row = None if at is None else row_of(job, at.scheduled_for_us, due_at_us=at.due_at_us, bucket=at.bucket)
    return runs, skips, None if row is None else row.scheduled_for_us


def test_an_occurrence_on_time_runs_and_its_chain_moves_on() -> None:
    decision = decide_at(job_of(MINUTELY), "2026-01-10T22:01:00Z", "2026-01-10T22:01:00.2Z")
    assert decision == Decision(occurrence("2026-01-10T22:01:00Z"), next=standing("2026-01-10T22:02:00Z"))


def test_a_chain_with_jitter_waits_for_the_due_time_and_keeps_the_nominal_one() -> None:
    late_by_us = 7_000_000
    job = job_of(MINUTELY, jitter_us=late_by_us)
    decision = decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:01:07Z")
    assert decision.run == occurrence("2026-01-10T22:01:00Z", late_by_us=late_by_us)
    assert decision.next == standing("2026-01-10T22:02:00Z", late_by_us=late_by_us)
    early = decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:01:06Z")
    assert early == Decision(next=standing("2026-01-10T22:01:00Z", late_by_us=late_by_us))


def test_catching_up_records_what_is_not_run_with_its_reason() -> None:
    hourly = job_of(Schedule(cron=("0 * * * *",)))
    runs, skips, head = all_runs_until(hourly, "2026-01-10T22:00:00Z", "2026-01-11T06:30:00Z")
    assert runs == [us("2026-01-11T06:00:00Z")]
    assert skips == [SkippedRange(us("2026-01-10T22:00:00Z"), us("2026-01-11T05:00:00Z"), SkipReason.CATCH_UP)]
    assert head == us("2026-01-11T07:00:00Z")


def test_a_catch_up_backwards_keeps_in_the_row_what_is_left_and_comes_back_at_once() -> None:
    job = job_of(Schedule(cron=("0 * * * *",)), CatchUpMode.ALL, order=CatchUpOrder.NEWEST_FIRST)
    now_us = us("2026-01-11T06:30:00Z")
    first = decide(row_of(job, "2026-01-11T04:00:00Z"), job, now_us, SCALE)
    assert (first.run, first.skipped) == (occurrence("2026-01-11T06:00:00Z"), None)
    left = us("2026-01-11T05:00:00Z"), us("2026-01-11T04:00:00Z")
    assert first.next == NextOccurrence(SCALE.bucket_of(now_us), now_us, us("2026-01-11T07:00:00Z"), *left)
    again = row_of(job, us("2026-01-11T07:00:00Z"), due_at_us=now_us, back_us=left[0], back_to_us=left[1])
    second = decide(again, job, now_us, SCALE)
    assert second.run == occurrence("2026-01-11T05:00:00Z")
    assert second.next is not None
    assert (second.next.due_at_us, second.next.back_us) == (now_us + 1, left[1]), "never onto the key that it leaves"


def test_an_edit_does_not_end_a_catch_up_backwards() -> None:
    superseded_us = us("2026-01-11T06:31:00Z")
    job = job_of(
        Schedule(cron=("0 * * * *",)),
        CatchUpMode.ALL,
        order=CatchUpOrder.NEWEST_FIRST,
        current_version=2,
        superseded_us=superseded_us,
    )
    left_us = us("2026-01-11T05:00:00Z")
    head_us, due_at_us = us("2026-01-11T07:00:00Z"), us("2026-01-11T06:30:00Z")
    row = row_of(job, head_us, due_at_us=due_at_us, back_us=left_us, back_to_us=left_us)
    decision = decide(row, job, us("2026-01-11T06:32:00Z"), SCALE)
    assert (decision.run, decision.next) == (occurrence("2026-01-11T05:00:00Z"), None)


def test_two_occurrences_that_are_due_together_have_due_rows_of_their_own() -> None:
    ended = Schedule(cron=("* * * * *",), end_us=us("2026-01-10T22:03:00Z"))
    job = job_of(ended, jitter_us=10 * MINUTE_US)
    due_us = us("2026-01-10T22:03:00Z") - 1
    row = row_of(job, us("2026-01-10T22:01:00Z"), due_at_us=due_us, bucket=SCALE.bucket_of(due_us))
    decision = decide(row, job, due_us, SCALE)
    assert decision.run == Occurrence(us("2026-01-10T22:01:00Z"), due_us)
    assert decision.next is not None
    assert (decision.next.scheduled_for_us, decision.next.due_at_us) == (us("2026-01-10T22:02:00Z"), due_us + 1)


def test_an_occurrence_due_before_an_edit_still_fires_and_is_the_last_of_its_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:01:30Z"))
    decision = decide_at(edited, "2026-01-10T22:01:00Z", "2026-01-10T22:01:31Z")
    assert decision == Decision(occurrence("2026-01-10T22:01:00Z"))


def test_an_occurrence_at_the_very_instant_of_the_edit_belongs_to_the_old_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:02:00Z"))
    decision = decide_at(edited, "2026-01-10T22:02:00Z", "2026-01-10T22:02:01Z")
    assert decision == Decision(occurrence("2026-01-10T22:02:00Z"))


def test_an_occurrence_whose_nominal_instant_lies_after_the_edit_dies_without_a_trace() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:01:30Z"))
    assert decide_at(edited, "2026-01-10T22:02:00Z", "2026-01-10T22:02:01Z") == Decision()


def test_an_occurrence_that_jitter_put_past_an_edit_fires_as_the_version_it_was_due_under() -> None:
    edited = job_of(MINUTELY, jitter_us=30_000_000, current_version=2, superseded_us=us("2026-01-10T22:01:10Z"))
    decision = decide_at(edited, "2026-01-10T22:01:00Z", "2026-01-10T22:01:30Z")
    assert decision == Decision(occurrence("2026-01-10T22:01:00Z", late_by_us=30_000_000))


STOPS = [(JobState.PAUSED, SkipReason.PAUSED), (JobState.DELETED, SkipReason.DELETED)]


def stopped_job(state: JobState, at: str, **changes: Any) -> JobVersion:
    """Put off by 150 s, and paused or deleted at `at`."""
    values = {"current_version": 2, "superseded_us": us(at), "stopped_us": us(at), "stopped_as": state}
    return job_of(MINUTELY, jitter_us=150_000_000, **(values | changes))


@pytest.mark.parametrize(("state", "reason"), STOPS, ids=["paused", "deleted"])
def test_what_a_stop_came_before_is_one_skip_with_its_reason(state: JobState, reason: SkipReason) -> None:
    """Due at 22:03:30, 22:04:30, 22:05:30; stopped at 22:03:10, when 22:01, 22:02 and 22:03 had begun."""
    job = stopped_job(state, "2026-01-10T22:03:10Z")
    decision = decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:03:30Z")
    assert decision == Decision(skipped=SkippedRange(us("2026-01-10T22:01:00Z"), us("2026-01-10T22:03:00Z"), reason))


@pytest.mark.parametrize(("state", "reason"), STOPS, ids=["paused", "deleted"])
def test_what_was_due_before_a_stop_still_fires_and_what_was_not_is_skipped(
    state: JobState, reason: SkipReason
) -> None:
    job = stopped_job(state, "2026-01-10T22:03:40Z")
    first = decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:03:50Z")
    assert first.run == occurrence("2026-01-10T22:01:00Z", late_by_us=150_000_000)
    assert first.next == standing("2026-01-10T22:02:00Z", late_by_us=150_000_000)
    rest = decide_at(job, "2026-01-10T22:02:00Z", "2026-01-10T22:04:30Z")
    assert rest == Decision(skipped=SkippedRange(us("2026-01-10T22:02:00Z"), us("2026-01-10T22:03:00Z"), reason))


def test_what_a_downtime_missed_before_a_pause_is_caught_up_on_and_the_rest_is_skipped_as_paused() -> None:
    job = stopped_job(JobState.PAUSED, "2026-01-10T22:30:40Z")
    runs, skips, head = all_runs_until(job, "2026-01-10T22:01:00Z", "2026-01-11T06:00:00Z")
    assert runs == [us("2026-01-10T22:28:00Z")], "the last one that was due before the pause"
    assert skips == [
        SkippedRange(us("2026-01-10T22:01:00Z"), us("2026-01-10T22:27:00Z"), SkipReason.CATCH_UP),
        SkippedRange(us("2026-01-10T22:29:00Z"), us("2026-01-10T22:30:00Z"), SkipReason.PAUSED),
    ]
    assert head is None


def test_a_catch_up_backwards_ends_with_what_the_pause_came_before() -> None:
    """22:03 had begun and was not due; of what was missed 22:00 is left."""
    job = stopped_job(JobState.PAUSED, "2026-01-10T22:03:40Z", mode=CatchUpMode.ALL, order=CatchUpOrder.NEWEST_FIRST)
    now_us, left_us = us("2026-01-10T22:04:00Z"), us("2026-01-10T22:00:00Z")
    row = row_of(job, us("2026-01-10T22:03:00Z"), due_at_us=now_us, back_us=left_us, back_to_us=left_us)
    decision = decide(row, job, now_us, SCALE)
    assert decision.run == occurrence("2026-01-10T22:00:00Z", late_by_us=150_000_000)
    assert decision.next == standing("2026-01-10T22:03:00Z", late_by_us=150_000_000)


def test_a_pause_that_follows_an_edit_counts_too() -> None:
    job = stopped_job(JobState.PAUSED, "2026-01-10T22:02:10Z", superseded_us=us("2026-01-10T22:01:10Z"))
    decision = decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:03:30Z")
    only_us = us("2026-01-10T22:01:00Z")
    assert decision == Decision(skipped=SkippedRange(only_us, only_us, SkipReason.PAUSED))


def test_catching_up_never_reaches_past_the_end_of_a_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:10:30Z"))
    runs, skips, head = all_runs_until(edited, "2026-01-10T22:01:00Z", "2026-01-11T06:00:30Z")
    assert runs == [us("2026-01-10T22:10:00Z")]
    assert skips == [SkippedRange(us("2026-01-10T22:01:00Z"), us("2026-01-10T22:09:00Z"), SkipReason.CATCH_UP)]
    assert head is None


def test_a_job_that_lost_its_schedule_ends_its_chain() -> None:
    assert decide_at(job_of(None), "2026-01-10T22:01:00Z", "2026-01-10T22:01:00Z") == Decision()


def test_an_item_carries_the_derived_run_id_and_the_version_it_was_decided_for() -> None:
    job = job_of(MINUTELY, version=3, current_version=4, hash16=77)
    row, lease = row_of(job, "2026-01-10T22:01:00Z"), LeaseGrant("worker-1", b"hash", 5)
    decision = decide(row, job, row.due_at_us, SCALE)
    item = chain_item(row, job, decision, lease, held_term())
    assert item.key == due_key(row, 7)
    assert (item.job_version, item.expect_version) == (row.job_version, 4)
    assert (item.open_from_us, item.stand_before_us) == (1_000, 2_000)
    assert item.run is not None
    assert item.run.run_id == occurrence_run_id(job.job_id, 77, row.scheduled_for_us)
    assert (item.run.lease, item.run.overlap, item.run.max_buffered) == (lease, Overlap.SKIP, 100)


def test_an_item_carries_the_overlap_policy() -> None:
    spec = JobSpec(handler="work", schedule=MINUTELY, overlap=Overlap.BUFFER_ALL, max_buffered=7)
    job = job_version(spec)
    row = row_of(job, "2026-01-10T22:01:00Z")
    item = chain_item(row, job, decide(row, job, row.due_at_us, SCALE), None, held_term())
    assert item.run is not None
    assert (item.run.overlap, item.run.max_buffered) == (Overlap.BUFFER_ALL, 7)


def test_what_waits_for_its_turn_stands_where_it_stood() -> None:
    job, until_us = job_of(MINUTELY), us("2026-01-11T00:00:00Z")
    row = row_of(job, "2026-01-10T22:01:00Z", back_us=5, back_to_us=3)
    item = put_off(row, job, held_term(), until_us, SCALE)
    assert (item.run, item.skipped, item.expect_version) == (None, None, 1)
    assert item.next == NextOccurrence(SCALE.bucket_of(until_us), until_us, row.scheduled_for_us, 5, 3)


def test_b108_an_unreadable_job_keeps_its_occurrence_and_is_looked_at_again_later() -> None:
    row, now_us = due_row(us("2026-01-10T22:01:00Z"), back_us=5, back_to_us=3), us("2026-01-10T22:01:00.1Z")
    item = set_aside(row, Unreadable(row.job_id, 1, 5, "no such zone"), held_term(), now_us, SCALE)
    again_us = now_us + SET_ASIDE_RETRY_US
    assert (item.run, item.skipped, item.expect_version) == (None, None, 5)
    assert item.next == NextOccurrence(SCALE.bucket_of(again_us), again_us, row.scheduled_for_us, 5, 3)
