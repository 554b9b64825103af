"""The planner: what a due occurrence becomes, and which versions of an edited job still fire (rule of ownership 9)."""

from __future__ import annotations

from typing import Any

from core.buckets import BucketScale
from core.enumerator import Enumerator
from core.fence import TermRow
from core.ids import occurrence_run_id
from core.jobspec import JobSpec
from core.policy import CatchUp, CatchUpMode, Overlap
from core.schedule import Schedule
from core.states import SkipReason, TermState
from core.store.decisions import LeaseGrant, NextOccurrence, SkippedRange
from core.store.discovery import DueRow
from core.store.marks import Marks
from dispatcher.holdings import HeldTerm, Holdings
from dispatcher.jobs import JobVersion, Unreadable
from dispatcher.planner import SET_ASIDE_RETRY_US, Decision, chain_item, decide, due_key, set_aside
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
    spec = JobSpec(handler="work", schedule=schedule, catch_up=CatchUp(mode))
    return job_version(spec, **changes)


def row_of(job: JobVersion, at: str | int) -> DueRow:
    instant_us = us(at) if isinstance(at, str) else at
    return due_row(instant_us, job_id=job.job_id)


def decide_at(job: JobVersion, head: str | int, now: str) -> Decision:
    return decide(row_of(job, head), job, us(now), SCALE, Enumerator())


def all_runs_until(job: JobVersion, head: str, now: str) -> tuple[list[int], list[SkippedRange], int | None]:
    """Fire the chain until it stands in the future: runs, skips, and where it stands."""
    runs, skips = [], []
    head_us: int | None = us(head)
    while head_us is not None and head_us <= us(now):
        decision = decide_at(job, head_us, now)
        runs += [] if decision.run_us is None else [decision.run_us]
        skips += [] if decision.skipped is None else [decision.skipped]
        head_us = None if decision.next is None else decision.next.scheduled_for_us
    return runs, skips, head_us


def test_an_occurrence_on_time_runs_and_its_chain_moves_on() -> None:
    decision = decide_at(job_of(MINUTELY), "2026-01-10T22:01:00Z", "2026-01-10T22:01:00.2Z")
    next_us = us("2026-01-10T22:02:00Z")
    assert decision == Decision(
        us("2026-01-10T22:01:00Z"),
        us("2026-01-10T22:01:00Z"),
        None,
        NextOccurrence(SCALE.bucket_of(next_us), next_us, next_us),
        overlap_skip=True,
    )


def test_b50_after_a_night_the_newest_missed_slot_runs_once_and_the_next_minute_goes_on() -> None:
    runs, skips, head = all_runs_until(job_of(MINUTELY), "2026-01-10T22:01:00Z", "2026-01-11T06:00:30Z")
    assert runs == [us("2026-01-11T06:00:00Z")]
    assert skips == [SkippedRange(us("2026-01-10T22:01:00Z"), us("2026-01-11T05:59:00Z"), SkipReason.CATCH_UP)]
    assert head == us("2026-01-11T06:01:00Z")


def test_b50_latest_outside_the_grace_runs_the_last_slot_and_records_the_others() -> None:
    hourly = job_of(Schedule(cron=("0 * * * *",)))
    runs, skips, head = all_runs_until(hourly, "2026-01-10T22:00:00Z", "2026-01-11T06:30:00Z")
    assert runs == [us("2026-01-11T06:00:00Z")]
    assert skips == [SkippedRange(us("2026-01-10T22:00:00Z"), us("2026-01-11T05:00:00Z"), SkipReason.CATCH_UP)]
    assert head == us("2026-01-11T07:00:00Z")


def test_b50_skip_runs_nothing_older_than_the_grace() -> None:
    hourly = job_of(Schedule(cron=("0 * * * *",)), CatchUpMode.SKIP)
    runs, skips, head = all_runs_until(hourly, "2026-01-10T22:00:00Z", "2026-01-11T06:30:00Z")
    assert runs == []
    assert skips == [SkippedRange(us("2026-01-10T22:00:00Z"), us("2026-01-11T06:00:00Z"), SkipReason.CATCH_UP)]
    assert head == us("2026-01-11T07:00:00Z")


def test_b53_an_interval_catches_up_once_like_a_cron_line() -> None:
    daily = Schedule(every_us=24 * 60 * MINUTE_US, anchor_us=us("2018-11-15T00:00:00Z"))
    for schedule in (daily, Schedule(cron=("0 0 * * *",))):
        runs, skips, head = all_runs_until(job_of(schedule), "2018-11-18T00:00:00Z", "2018-11-19T09:00:00Z")
        assert runs == [us("2018-11-19T00:00:00Z")]
        assert skips == [SkippedRange(us("2018-11-18T00:00:00Z"), us("2018-11-18T00:00:00Z"), SkipReason.CATCH_UP)]
        assert head == us("2018-11-20T00:00:00Z")


def test_b56_a_late_run_does_not_shift_an_interval() -> None:
    nightly = Schedule(every_us=24 * 60 * MINUTE_US, anchor_us=us("2026-01-09T23:55:00Z"))
    decision = decide_at(job_of(nightly), "2026-01-10T23:55:00Z", "2026-01-11T00:05:00Z")
    assert decision.run_us == us("2026-01-10T23:55:00Z")
    assert decision.next is not None
    assert decision.next.scheduled_for_us == us("2026-01-11T23:55:00Z")


def test_b57_an_interval_counts_from_its_anchor_however_often_owners_change() -> None:
    daily = Schedule(every_us=24 * 60 * MINUTE_US, anchor_us=us("2026-01-01T00:00:00Z"))
    runs = []
    head_us = us("2026-01-02T00:00:00Z")
    for hour in range(72):
        now = f"2026-01-{2 + hour // 24:02}T{hour % 24:02}:00:01Z"
        if head_us <= us(now):
            decision = decide(row_of(job_of(daily), head_us), job_of(daily), us(now), SCALE, Enumerator())
            assert decision.run_us is not None
            assert decision.next is not None
            runs.append(decision.run_us)
            head_us = decision.next.scheduled_for_us
    assert runs == [us(f"2026-01-0{day}T00:00:00Z") for day in (2, 3, 4)]


def test_b59_a_one_off_that_was_missed_runs_once_and_its_chain_ends() -> None:
    once = Schedule(at_us=us("2026-01-10T12:00:00Z"))
    late = decide_at(job_of(once), "2026-01-10T12:00:00Z", "2026-01-10T12:10:00Z")
    assert (late.run_us, late.skipped, late.next) == (us("2026-01-10T12:00:00Z"), None, None)
    skipped = decide_at(job_of(once, CatchUpMode.SKIP), "2026-01-10T12:00:00Z", "2026-01-10T12:10:00Z")
    slot = us("2026-01-10T12:00:00Z")
    assert (skipped.run_us, skipped.next) == (None, None)
    assert skipped.skipped == SkippedRange(slot, slot, SkipReason.CATCH_UP)


def test_an_occurrence_due_before_an_edit_still_fires_and_is_the_last_of_its_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:01:30Z"))
    decision = decide_at(edited, "2026-01-10T22:01:00Z", "2026-01-10T22:01:31Z")
    assert decision.run_us == us("2026-01-10T22:01:00Z")
    assert decision.next is None


def test_an_occurrence_at_the_very_instant_of_the_edit_belongs_to_the_old_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:02:00Z"))
    decision = decide_at(edited, "2026-01-10T22:02:00Z", "2026-01-10T22:02:01Z")
    assert (decision.run_us, decision.next) == (us("2026-01-10T22:02:00Z"), None)


def test_an_occurrence_that_became_due_after_the_edit_dies_without_a_trace() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:01:30Z"))
    decision = decide_at(edited, "2026-01-10T22:02:00Z", "2026-01-10T22:02:01Z")
    assert (decision.run_us, decision.skipped, decision.next) == (None, None, None)


def test_catching_up_never_reaches_past_the_end_of_a_version() -> None:
    edited = job_of(MINUTELY, current_version=2, superseded_us=us("2026-01-10T22:10:30Z"))
    runs, skips, head = all_runs_until(edited, "2026-01-10T22:01:00Z", "2026-01-11T06:00:30Z")
    assert runs == [us("2026-01-10T22:10:00Z")]
    assert skips == [SkippedRange(us("2026-01-10T22:01:00Z"), us("2026-01-10T22:09:00Z"), SkipReason.CATCH_UP)]
    assert head is None


def test_a_job_that_lost_its_schedule_ends_its_chain() -> None:
    decision = decide_at(job_of(None), "2026-01-10T22:01:00Z", "2026-01-10T22:01:00Z")
    assert (decision.run_us, decision.next) == (None, None)


def test_an_item_carries_the_derived_run_id_and_the_version_it_was_decided_for() -> None:
    job = job_of(MINUTELY, version=3, current_version=4, hash16=77)
    row, lease = row_of(job, "2026-01-10T22:01:00Z"), LeaseGrant("worker-1", b"hash", 5)
    decision = decide(row, job, row.due_at_us, SCALE, Enumerator())
    item = chain_item(row, job, decision, lease, held_term())
    assert item.key == due_key(row, 7)
    assert (item.job_version, item.expect_version) == (row.job_version, 4)
    assert (item.open_from_us, item.stand_before_us) == (1_000, 2_000)
    assert item.run is not None
    assert item.run.run_id == occurrence_run_id(job.job_id, 77, row.scheduled_for_us)
    assert (item.run.lease, item.run.overlap_skip) == (lease, True)


def test_overlapping_is_allowed_where_the_job_says_so() -> None:
    job = job_version(JobSpec(handler="work", schedule=MINUTELY, overlap=Overlap.ALLOW))
    assert not decide_at(job, "2026-01-10T22:01:00Z", "2026-01-10T22:01:00Z").overlap_skip


def test_b108_an_unreadable_job_keeps_its_occurrence_and_is_looked_at_again_later() -> None:
    row, now_us = due_row(us("2026-01-10T22:01:00Z")), us("2026-01-10T22:01:00.1Z")
    item = set_aside(row, Unreadable(row.job_id, 1, 5, "no such zone"), held_term(), now_us, SCALE)
    again_us = now_us + SET_ASIDE_RETRY_US
    assert (item.run, item.skipped, item.expect_version) == (None, None, 5)
    assert item.next == NextOccurrence(SCALE.bucket_of(again_us), again_us, row.scheduled_for_us)
