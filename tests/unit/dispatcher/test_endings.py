"""Endings: what every word about an attempt makes of its run, how many attempts there are, and how long each waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.buckets import BucketScale
from core.errors import Invalid
from core.jobspec import MAX_ERROR_CHARS, MAX_RESULT_BYTES, JobSpec
from core.policy import Retry
from core.states import AttemptOutcome, RunState
from core.store.completion import Ending
from dispatcher.endings import Failed, GivenBack, Lost, Stopped, Succeeded, Word, ending_of
from tests.support.dispatcher_parts import NOW_US, SECOND_US, job_version, live_attempt

SCALE = BucketScale(5_000)
FAILED = Failed("it broke", retryable=True, timed_out=False)
FATAL = Failed("it broke", retryable=False, timed_out=False)
LATE = Failed("took too long", retryable=True, timed_out=True)
TOO_LARGE = Succeeded(b"x" * (MAX_RESULT_BYTES + 1), "")
DONE = Succeeded(b"result", "text")
NO_JITTER = Retry(jitter=0.0)


def end(word: Word, *, retry: Retry = NO_JITTER, spread: float = 0.0, by_worker: bool = True, **live: Any) -> Ending:
    attempt = live_attempt(job_version(JobSpec(handler="work", retry=retry)), **live)
    return ending_of(word, attempt, by_worker=by_worker, now_us=NOW_US, spread=spread, scale=SCALE)


@pytest.mark.parametrize(
    ("word", "live", "state", "outcome"),
    [
        (DONE, {}, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED),
        (DONE, {"cancel_requested": True}, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED),
        (DONE, {"timed_out": True}, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED),
        (TOO_LARGE, {}, RunState.FAILED, AttemptOutcome.FAILED),
        (FAILED, {}, RunState.PENDING, AttemptOutcome.FAILED),
        (FAILED, {"attempt": 4}, RunState.DEAD, AttemptOutcome.FAILED),
        (FATAL, {}, RunState.FAILED, AttemptOutcome.FAILED),
        (FATAL, {"attempt": 4}, RunState.FAILED, AttemptOutcome.FAILED),
        (LATE, {}, RunState.PENDING, AttemptOutcome.TIMED_OUT),
        (LATE, {"attempt": 4}, RunState.DEAD, AttemptOutcome.TIMED_OUT),
        (Stopped(), {}, RunState.PENDING, AttemptOutcome.FAILED),
        (Stopped(), {"attempt": 4}, RunState.DEAD, AttemptOutcome.FAILED),
        (Stopped(), {"cancel_requested": True}, RunState.CANCELED, AttemptOutcome.CANCELED),
        (Stopped(), {"timed_out": True}, RunState.PENDING, AttemptOutcome.TIMED_OUT),
        (Stopped(), {"timed_out": True, "attempt": 4}, RunState.DEAD, AttemptOutcome.TIMED_OUT),
        (Stopped(), {"timed_out": True, "cancel_requested": True}, RunState.CANCELED, AttemptOutcome.CANCELED),
        (Lost(), {}, RunState.PENDING, AttemptOutcome.LOST),
        (Lost(), {"attempt": 4}, RunState.DEAD, AttemptOutcome.LOST),
        (Lost(), {"cancel_requested": True}, RunState.CANCELED, AttemptOutcome.CANCELED),
        (Lost(), {"timed_out": True}, RunState.PENDING, AttemptOutcome.TIMED_OUT),
        (GivenBack(), {}, RunState.PENDING, AttemptOutcome.CANCELED),
        (GivenBack(), {"attempt": 4}, RunState.PENDING, AttemptOutcome.CANCELED),
    ],
)
def test_every_word_ends_an_attempt_in_one_way(
    word: Word, live: dict[str, Any], state: RunState, outcome: AttemptOutcome
) -> None:
    ending = end(word, **live)
    assert (ending.state, ending.outcome) == (state, outcome)
    assert (ending.retry_at_us > 0) == (state is RunState.PENDING and word != GivenBack())
    assert ending.uncounted == (1 if word == GivenBack() else 0)
    assert (ending.result is not None) == (state is RunState.SUCCEEDED)


def test_b99_delays_double_from_the_first_and_each_is_exact() -> None:
    retry = Retry(max_attempts=6, first_delay_us=10 * SECOND_US, factor=2.0, max_delay_us=3600 * SECOND_US, jitter=0.0)
    delays = [end(FAILED, retry=retry, attempt=attempt).retry_at_us - NOW_US for attempt in range(1, 6)]
    assert [delay / SECOND_US for delay in delays] == [10, 20, 40, 80, 160]
    assert end(FAILED, retry=retry, attempt=6).state is RunState.DEAD


def test_the_bucket_of_a_retry_is_that_of_its_instant() -> None:
    ending = end(FAILED)
    assert ending.retry_bucket == SCALE.bucket_of(NOW_US + 10 * SECOND_US)


@given(attempt=st.integers(1, 30), spread=st.floats(-1, 1), jitter=st.floats(0, 0.5))
def test_a_delay_stays_inside_its_jitter(attempt: int, spread: float, jitter: float) -> None:
    retry = Retry(max_attempts=100, jitter=jitter)
    plain = min(10 * SECOND_US * 2.0 ** (attempt - 1), 600 * SECOND_US)
    delay = end(FAILED, retry=retry, attempt=attempt, spread=spread).retry_at_us - NOW_US
    assert plain * (1 - jitter) - 1 <= delay <= plain * (1 + jitter) + 1


def test_a_retry_without_a_delay_is_still_in_the_future() -> None:
    ending = end(FAILED, retry=Retry(first_delay_us=0, max_delay_us=0, jitter=0.0))
    assert ending.retry_at_us == NOW_US + 1


def test_b101_a_first_delay_above_the_maximum_is_refused_and_never_cut() -> None:
    with pytest.raises(Invalid, match="first_delay"):
        Retry(first_delay_us=3600 * SECOND_US)
    hour = Retry(first_delay_us=3600 * SECOND_US, max_delay_us=3600 * SECOND_US, jitter=0.0)
    assert end(FAILED, retry=hour).retry_at_us == NOW_US + 3600 * SECOND_US


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_b102_losing_workers_counts_like_failing_and_is_bounded(max_attempts: int) -> None:
    retry = Retry(max_attempts=max_attempts)
    states = [end(Lost(), retry=retry, attempt=attempt).state for attempt in range(1, max_attempts + 1)]
    assert states == [RunState.PENDING] * (max_attempts - 1) + [RunState.DEAD]
    assert end(Lost(), retry=retry).outcome is AttemptOutcome.LOST, "worker loss is told apart from failure"


def test_b102_attempts_that_never_started_use_up_none() -> None:
    assert end(FAILED, attempt=6, uncounted=3).state is RunState.PENDING
    assert end(FAILED, attempt=6, uncounted=3).retry_at_us - NOW_US == 40 * SECOND_US, "as after the third attempt"
    assert end(FAILED, attempt=7, uncounted=3).state is RunState.DEAD


def test_a_workers_word_is_proven_by_its_secret_and_the_owners_by_the_lease_end() -> None:
    live = live_attempt()
    by_worker, by_owner = end(DONE), end(Lost(), by_worker=False)
    assert (by_worker.token_hash, by_worker.lease_until_us) == (live.token_hash, 0)
    assert (by_owner.token_hash, by_owner.lease_until_us) == (None, live.sql_lease_until_us)


def test_b94_a_result_too_large_fails_the_run_with_the_reason_and_the_limit() -> None:
    assert str(MAX_RESULT_BYTES) in end(TOO_LARGE).error
    assert end(Succeeded(b"x" * MAX_RESULT_BYTES, "")).state is RunState.SUCCEEDED


def test_texts_of_workers_are_cut_and_fit_for_the_database() -> None:
    ending = end(Failed("a\0b" * MAX_ERROR_CHARS, retryable=False, timed_out=False))
    assert len(ending.error) == MAX_ERROR_CHARS
    assert "\0" not in ending.error
    assert "\0" not in end(Succeeded(b"", "te\0xt")).result_type
