"""Policies as values: limits that are refused, never bent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.clock import US_PER_S
from core.errors import Invalid
from core.policy import MAX_WINDOW_US, CatchUp, Overlap, Retry


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("retry.max_attempts", {"max_attempts": 0}),
        ("retry.max_attempts", {"max_attempts": 101}),
        ("retry.first_delay", {"first_delay_us": -1}),
        ("retry.first_delay", {"first_delay_us": 601 * US_PER_S}),
        ("retry.max_delay", {"max_delay_us": 8 * 24 * 3600 * US_PER_S}),
        ("retry.factor", {"factor": 0.9}),
        ("retry.factor", {"factor": float("nan")}),
        ("retry.jitter", {"jitter": 0.6}),
    ],
)
def test_limits_of_a_retry_policy_are_refused_by_name(field: str, changes: dict[str, float]) -> None:
    with pytest.raises(Invalid) as refused:
        Retry(**changes)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("catch_up.grace", {"grace_us": -1}),
        ("catch_up.grace", {"grace_us": 7 * 24 * 3600 * US_PER_S + 1}),
        ("catch_up.max_runs", {"max_runs": 0}),
        ("catch_up.max_runs", {"max_runs": 1001}),
        ("catch_up.window", {"window_us": -1}),
        ("catch_up.window", {"window_us": MAX_WINDOW_US + 1}),
    ],
)
def test_limits_of_a_catch_up_policy_are_refused_by_name(field: str, changes: dict[str, int]) -> None:
    with pytest.raises(Invalid) as refused:
        CatchUp(**changes)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_run_may_have_to_wait_under_the_policies_that_neither_skip_nor_allow() -> None:
    assert {policy for policy in Overlap if policy.buffers} == {
        Overlap.BUFFER_ONE,
        Overlap.BUFFER_ALL,
        Overlap.CANCEL_OTHER,
    }


@given(ended=st.integers(1, 10**9), factor=st.floats(1.0, 10.0), spread=st.floats(-1, 1))
def test_no_delay_exceeds_the_maximum_by_more_than_its_jitter(ended: int, factor: float, spread: float) -> None:
    retry = Retry(factor=factor)
    assert 0 <= retry.delay_us(ended, spread) <= 660 * US_PER_S
