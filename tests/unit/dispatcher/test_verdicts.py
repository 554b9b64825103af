"""Verdicts: a word that was not recorded is judged by the run's row (rule of ownership 13)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.ids import token_hash
from core.jobspec import MAX_RESULT_BYTES
from core.states import AttemptOutcome, RunState
from core.store.completion import RunHolding
from dispatcher.endings import Failed, GivenBack, Lost, Stopped, Succeeded, Word
from dispatcher.verdicts import verdict_on
from tests.support.dispatcher_parts import TOKEN

ACCEPTED, STALE, REDIRECT, RETRY = pb.VERDICT_ACCEPTED, pb.VERDICT_STALE, pb.VERDICT_REDIRECT, pb.VERDICT_RETRY
DONE = Succeeded(b"", "")
FAILED = Failed("", retryable=True, timed_out=False)
TOO_LARGE = Succeeded(b"x" * (MAX_RESULT_BYTES + 1), "")


def holding(state: RunState, **changes: Any) -> RunHolding:
    values: dict[str, Any] = {"run_id": UUID(int=1), "attempt": 2, "token_hash": token_hash(TOKEN), "home_term": 1}
    return RunHolding(state=state, shard=0, **(values | changes))


def judge(word: Word, row: RunHolding | None, *, attempt: int = 2, token: bytes | None = TOKEN) -> pb.Verdict:
    return verdict_on(word, attempt, token, row, at_home=False)


@pytest.mark.parametrize("word", [DONE, FAILED, Stopped(), GivenBack(), Lost()])
def test_a_current_secret_is_never_stale_while_the_run_is_leased(word: Word) -> None:
    leased = holding(RunState.LEASED)
    assert verdict_on(word, 2, TOKEN, leased, at_home=False) == REDIRECT
    assert verdict_on(word, 2, TOKEN, leased, at_home=True) == RETRY
    assert verdict_on(word, 2, None, leased, at_home=True) == RETRY


@pytest.mark.parametrize("state", list(RunState))
def test_a_wrong_secret_another_attempt_and_an_unknown_run_are_stale(state: RunState) -> None:
    row = holding(state, outcome=AttemptOutcome.SUCCEEDED)
    assert judge(DONE, row, token=b"wrong") == STALE
    assert judge(DONE, row, attempt=1) == STALE
    assert judge(DONE, row, attempt=3) == STALE
    assert judge(DONE, None) == STALE
    assert judge(DONE, holding(state, token_hash=None)) == STALE


@pytest.mark.parametrize(
    ("word", "outcomes"),
    [
        (DONE, {AttemptOutcome.SUCCEEDED}),
        (TOO_LARGE, {AttemptOutcome.FAILED}),
        (FAILED, {AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT}),
        (Stopped(), {AttemptOutcome.CANCELED, AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT}),
        (GivenBack(), {None}),
        (Lost(), set()),
    ],
)
def test_a_word_that_is_sent_again_is_accepted_only_where_it_was_recorded(
    word: Word, outcomes: set[AttemptOutcome | None]
) -> None:
    for outcome in (None, *AttemptOutcome):
        verdict = judge(word, holding(RunState.PENDING, outcome=outcome))
        assert verdict == (ACCEPTED if outcome in outcomes else STALE), outcome


def test_a_success_that_came_after_its_lease_had_ended_is_not_said_to_be_durable() -> None:
    lost = holding(RunState.PENDING, outcome=AttemptOutcome.LOST)
    assert judge(DONE, lost) == STALE
