"""Policies: catching up against a plain walk over every occurrence, and limits that are refused, never bent."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.clock import US_PER_S
from core.errors import Invalid
from core.policy import CatchUp, CatchUpMode, Retry, decide_catch_up


@dataclass(frozen=True)
class Listed:
    """Occurrences given one by one."""

    instants: tuple[int, ...]

    def next_after(self, instant_us: int) -> int | None:
        return min((each for each in self.instants if each > instant_us), default=None)

    def prev_before(self, instant_us: int) -> int | None:
        return max((each for each in self.instants if each < instant_us), default=None)


@given(
    instants=st.sets(st.integers(0, 300), min_size=1, max_size=30),
    now=st.integers(0, 300),
    grace=st.integers(0, 80),
    mode=st.sampled_from(CatchUpMode),
)
def test_catching_up_agrees_with_a_walk_over_every_occurrence(
    instants: set[int], now: int, grace: int, mode: CatchUpMode
) -> None:
    schedule, policy = Listed(tuple(sorted(instants))), CatchUp(mode, grace)
    due = [each for each in schedule.instants if each <= now]
    runs, skipped = [], set()
    head: int | None = schedule.instants[0]
    while head is not None and head <= now:
        decision = decide_catch_up(policy, schedule, head, now)
        if decision.run_us is not None:
            runs.append(decision.run_us)
        if decision.skip_from_us is not None:
            assert decision.skip_to_us is not None
            skipped |= {each for each in due if decision.skip_from_us <= each <= decision.skip_to_us}
        assert decision.next_us is None or decision.next_us > head
        head = decision.next_us
    fresh = [each for each in due if each >= now - grace]
    old = [each for each in due if each < now - grace]
    wanted = fresh or (old[-1:] if mode is CatchUpMode.LATEST else [])
    assert runs == wanted
    assert skipped == set(due) - set(wanted), "what does not run is recorded, and nothing else"
    assert head == schedule.next_after(now)


def test_an_occurrence_at_the_very_end_of_the_grace_still_runs() -> None:
    policy, schedule = CatchUp(CatchUpMode.SKIP, 60), Listed((40, 200))
    assert decide_catch_up(policy, schedule, 40, 100).run_us == 40
    assert decide_catch_up(policy, schedule, 40, 101).run_us is None


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


def test_a_grace_out_of_range_is_refused() -> None:
    with pytest.raises(Invalid, match=r"catch_up.grace"):
        CatchUp(grace_us=-1)


@given(ended=st.integers(1, 10**9), factor=st.floats(1.0, 10.0), spread=st.floats(-1, 1))
def test_no_delay_exceeds_the_maximum_by_more_than_its_jitter(ended: int, factor: float, spread: float) -> None:
    retry = Retry(factor=factor)
    assert 0 <= retry.delay_us(ended, spread) <= 660 * US_PER_S
