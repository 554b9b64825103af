"""Live attempts: when each must be looked at, and what proves one."""

from __future__ import annotations

from core.jobspec import JobSpec
from dispatcher.attempts import Attempts, LiveAttempt
from tests.support.dispatcher_parts import NOW_US, SECOND_US, TOKEN, job_version, live_attempt

LEASE_END_US = NOW_US + 15 * SECOND_US


def among(*attempts: LiveAttempt) -> Attempts:
    kept = Attempts()
    for live in attempts:
        kept.add(live)
    return kept


def test_only_its_own_secret_proves_an_attempt() -> None:
    live = live_attempt()
    assert live.proves(TOKEN)
    assert not live.proves(b"x" * 32)
    assert not live.proves(b"")


def test_an_attempt_is_looked_at_when_its_lease_has_ended_and_not_before() -> None:
    live = live_attempt()
    attempts = among(live)
    assert attempts.due_for_check(LEASE_END_US - 1) == []
    assert attempts.due_for_check(LEASE_END_US) == [live]


def test_a_heartbeat_moves_the_alarm() -> None:
    live = live_attempt()
    attempts = among(live)
    live.lease_until_us = LEASE_END_US + SECOND_US
    assert attempts.due_for_check(LEASE_END_US) == []
    assert attempts.due_for_check(LEASE_END_US + SECOND_US) == [live]


def test_an_attempt_is_looked_at_when_its_time_is_up_although_its_lease_holds() -> None:
    live = live_attempt(job_version(JobSpec(handler="work", timeout_us=3 * SECOND_US)))
    attempts = among(live)
    assert attempts.due_for_check(NOW_US + 3 * SECOND_US - 1) == []
    assert attempts.due_for_check(NOW_US + 3 * SECOND_US) == [live]
    live.timed_out = True  # it was told to stop: from here on its lease alone counts
    attempts.check_again(live, live.lease_until_us)
    assert attempts.due_for_check(LEASE_END_US - 1) == []
    assert attempts.due_for_check(LEASE_END_US) == [live]


def test_an_assignment_that_never_left_is_found_at_once() -> None:
    live = live_attempt()
    attempts = among(live)
    attempts.mark_unsent(live)
    assert attempts.due_for_check(NOW_US) == [live]


def test_what_is_gone_or_replaced_by_a_newer_attempt_raises_no_alarm() -> None:
    gone, old = live_attempt(), live_attempt()
    newer = live_attempt(run_id=old.run_id, attempt=2, lease_until_us=LEASE_END_US + SECOND_US)
    attempts = among(gone, old)
    attempts.remove(gone)
    attempts.add(newer)
    assert attempts.due_for_check(LEASE_END_US) == []
    assert attempts.due_for_check(LEASE_END_US + SECOND_US) == [newer]


def test_an_attempt_whose_ending_is_under_way_is_looked_at_again_in_case_that_fails() -> None:
    live = live_attempt(ending=True)
    attempts = among(live)
    assert attempts.due_for_check(LEASE_END_US) == []
    live.ending = False
    assert attempts.due_for_check(LEASE_END_US + SECOND_US - 1) == []
    assert attempts.due_for_check(LEASE_END_US + SECOND_US) == [live]


def test_removing_an_old_attempt_leaves_the_newer_one_of_its_run() -> None:
    old = live_attempt()
    newer = live_attempt(run_id=old.run_id, attempt=2)
    attempts = among(old, newer)
    attempts.remove(old)
    assert attempts.get(old.run_id) is newer
    assert len(attempts) == 1


def test_a_lost_term_takes_its_attempts_and_no_others() -> None:
    mine, lost, elsewhere = live_attempt(term=2), live_attempt(term=1), live_attempt(term=1, shard=3)
    attempts = among(mine, lost, elsewhere)
    assert attempts.drop_term(0, 1) == [lost]
    assert [attempts.get(live.run_id) for live in (mine, elsewhere, lost)] == [mine, elsewhere, None]


def test_the_next_alarm_is_known() -> None:
    assert Attempts().next_alarm_us is None
    assert among(live_attempt()).next_alarm_us == LEASE_END_US
