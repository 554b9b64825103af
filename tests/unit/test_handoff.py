"""The state machine of a hand-off, by table; and what counts as a tiling, by what can be done to one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.buckets import NO_END, BucketScale
from core.fence import TermRow
from core.handoff import (
    HANDOFF_TRANSITIONS,
    Duty,
    Handoff,
    Phase,
    Step,
    boundary_for,
    handoffs_of,
    owner_duty,
    phase_of,
    target_duty,
    tiles,
)
from core.states import TermState

B = 100
BEFORE = TermRow(3, 7, 40, B, "old", TermState.OPEN)
AFTER = TermRow(3, 8, B, NO_END, "new", TermState.OPEN)
PAIR = Handoff(BEFORE, AFTER)
ALONE = Handoff(replace(BEFORE, term=9, owner="new"), AFTER)


class TestTheBoundary:
    @pytest.mark.parametrize(
        ("now_us", "lead_s", "boundary"),
        [(0, 0.25, 2), (249_999, 0.25, 2), (250_000, 0.25, 3), (499_999, 0.0, 2), (500_000, 0.0, 3), (0, 1.0, 4)],
    )
    def test_is_the_second_bucket_that_begins_after_the_lead(self, now_us: int, lead_s: float, boundary: int) -> None:
        assert boundary_for(BucketScale(500), now_us, lead_s) == boundary

    @given(st.integers(100, 60_000), st.integers(0, 2 * 10**15), st.floats(0, 10))
    def test_leaves_a_whole_bucket_after_the_lead(self, width_ms: int, now_us: int, lead_s: float) -> None:
        scale = BucketScale(width_ms)
        left_us = scale.start_us(boundary_for(scale, now_us, lead_s)) - now_us - round(lead_s * 1_000_000)
        assert scale.width_us < left_us <= 2 * scale.width_us


class TestWhichHandOffsThereAre:
    def test_one_a_shard_whose_two_open_rows_meet(self) -> None:
        other = TermRow(4, 1, 0, NO_END, "old", TermState.OPEN)
        assert handoffs_of([BEFORE, AFTER, other]) == {3: PAIR}

    @pytest.mark.parametrize("state", [TermState.CLOSED, TermState.VOID])
    def test_none_once_either_row_is_not_open(self, state: TermState) -> None:
        assert handoffs_of([replace(BEFORE, state=state), AFTER]) == {}
        assert handoffs_of([BEFORE, replace(AFTER, state=state)]) == {}

    def test_the_range_in_time_decides_and_not_the_number(self) -> None:
        assert handoffs_of([AFTER, ALONE.before]) == {3: ALONE}


class TestThePhase:
    @pytest.mark.parametrize(
        ("bucket", "watermark", "rehomed", "phase"),
        [
            (B - 1, B - 2, False, Phase.SPLIT),
            (B - 1, B - 2, True, Phase.SPLIT),
            (B, B - 1, False, Phase.PASSED),
            (B + 9, B - 1, True, Phase.PASSED),
            (B, B, False, Phase.DRAINED),
            (B, B, True, Phase.REHOMED),
            (B + 1, B + 1, True, Phase.REHOMED),
        ],
    )
    def test_is_read_off_the_marks_and_the_time(self, bucket: int, watermark: int, rehomed: bool, phase: Phase) -> None:
        assert phase_of(PAIR, bucket=bucket, watermark=watermark, rehomed=rehomed) is phase

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30))
    def test_only_goes_forward_by_steps_of_the_table(self, moves: list[tuple[int, int, bool]]) -> None:
        bucket, watermark, rehomed = B - 3, B - 5, False
        phase = phase_of(PAIR, bucket=bucket, watermark=watermark)
        forward = {p: {to for (start, _), to in HANDOFF_TRANSITIONS.items() if start is p} for p in Phase}
        for later, finished, done in moves:
            bucket += later
            watermark = min(bucket, watermark + finished)
            rehomed = rehomed or (done and watermark >= B)
            following = phase_of(PAIR, bucket=bucket, watermark=watermark, rehomed=rehomed)
            reached = {phase}
            for _ in range(3):
                reached |= {to for each in reached for to in forward[each]}
            assert following in reached
            phase = following


class TestDuties:
    @pytest.mark.parametrize(
        ("phase", "duty"),
        [
            (Phase.ORDERED, Duty.SERVE),
            (Phase.SPLIT, Duty.SERVE),
            (Phase.PASSED, Duty.FINISH),
            (Phase.DRAINED, Duty.ANSWER),
            (Phase.REHOMED, Duty.ANSWER),
            (Phase.CLOSED, Duty.LEAVE),
            (Phase.KEPT, Duty.SERVE),
            (Phase.TAKEN_OVER, Duty.LEAVE),
            (Phase.GIVEN_BACK, Duty.SERVE),
        ],
    )
    def test_of_the_owner_before(self, phase: Phase, duty: Duty) -> None:
        assert owner_duty(phase) is duty

    @pytest.mark.parametrize(
        ("phase", "overdue", "gone", "duty"),
        [
            (Phase.SPLIT, False, False, Duty.WAIT),
            (Phase.SPLIT, True, False, Duty.WAIT),
            (Phase.SPLIT, False, True, Duty.TAKE_OVER_REST),
            (Phase.PASSED, False, False, Duty.WAIT),
            (Phase.PASSED, True, False, Duty.TAKE_OVER_REST),
            (Phase.PASSED, False, True, Duty.TAKE_OVER_REST),
            (Phase.DRAINED, True, True, Duty.BRING_HOME),
            (Phase.REHOMED, True, True, Duty.CLOSE),
            (Phase.CLOSED, True, True, Duty.WAIT),
        ],
    )
    def test_of_the_target(self, phase: Phase, overdue: bool, gone: bool, duty: Duty) -> None:
        assert target_duty(PAIR, phase, overdue=overdue, gone=gone) is duty

    @pytest.mark.parametrize("phase", [Phase.SPLIT, Phase.PASSED])
    def test_nobody_takes_over_from_itself(self, phase: Phase) -> None:
        assert target_duty(ALONE, phase, overdue=True, gone=True) is Duty.WAIT

    def test_every_phase_that_stands_has_somebody_to_end_it(self) -> None:
        """Both gone for good, either replaced: no phase waits for ever for somebody who is not there."""
        for phase in (Phase.SPLIT, Phase.PASSED, Phase.DRAINED, Phase.REHOMED):
            steps = {step for (start, step) in HANDOFF_TRANSITIONS if start is phase}
            assert Step.REPLACE in steps, "the target may be gone"
            assert target_duty(PAIR, phase, overdue=True, gone=True) is not Duty.WAIT, "the owner before may be gone"


def history(cuts: list[int], opened: int = 1) -> list[TermRow]:
    """Terms of one shard with these inner edges, the last `opened` of them open."""
    edges = [0, *cuts, NO_END]
    spans = list(pairwise(edges))
    states = [TermState.CLOSED] * (len(spans) - opened) + [TermState.OPEN] * opened
    return [TermRow(0, n + 1, a, b, "o", state) for n, ((a, b), state) in enumerate(zip(spans, states, strict=True))]


EDGES = st.lists(st.integers(1, 1000), min_size=1, max_size=6, unique=True).map(sorted)


class TestTiles:
    @given(EDGES, st.integers(1, 2))
    def test_a_history_without_a_gap_is_well(self, cuts: list[int], opened: int) -> None:
        rows = history(cuts, opened)
        assert tiles(rows) == []
        assert tiles([*rows, TermRow(0, 90, 3, 5, "o", TermState.VOID)]) == [], "a void row counts for nothing"
        assert tiles(list(reversed(rows))) == []

    @given(EDGES, st.data())
    def test_a_row_that_is_missing_or_void_is_found(self, cuts: list[int], data: st.DataObject) -> None:
        rows = history(cuts)
        at = data.draw(st.integers(0, len(rows) - 1))
        assert any("nobody's" in fault for fault in tiles(rows[:at] + rows[at + 1 :]))
        assert tiles([*rows[:at], replace(rows[at], state=TermState.VOID), *rows[at + 1 :]])

    @given(EDGES, st.data())
    def test_an_edge_that_is_off_by_one_is_found(self, cuts: list[int], data: st.DataObject) -> None:
        rows = history(cuts)
        at = data.draw(st.integers(0, len(rows) - 2))
        longer = replace(rows[at], to_bucket=rows[at].to_bucket + 1)
        assert any("twice" in fault for fault in tiles([*rows[:at], longer, *rows[at + 1 :]]))
        later = replace(rows[at + 1], from_bucket=rows[at + 1].from_bucket + 1)
        assert any("nobody's" in fault for fault in tiles([*rows[: at + 1], later, *rows[at + 2 :]]))

    def test_open_terms_are_the_last_and_two_at_most(self) -> None:
        assert tiles(history([5, 9], opened=3)) == ["3 terms are open"]
        first, second, last = history([5, 9])
        rows = [replace(first, state=TermState.OPEN), second, last]
        assert tiles(rows) == ["a closed term begins after an open one"]

    def test_a_number_is_given_once(self) -> None:
        rows = history([5])
        assert tiles([rows[0], replace(rows[1], term=1)]) == ["term 1 stands twice"]

    def test_nothing_but_void_rows_is_nobodys_and_no_row_at_all_is_a_shard_without_a_past(self) -> None:
        assert tiles([TermRow(0, 1, 0, NO_END, "o", TermState.VOID)]) == ["no term that is not void"]
        assert tiles([]) == []
