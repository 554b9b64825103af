"""The account of moves: what the terms show decides; what is gone ends a move only before its split."""

from __future__ import annotations

import pytest

from controlplane.move_steps import orders, steps
from controlplane.picture import Picture, Standing
from core.buckets import NO_END
from core.config import ControlPlaneSettings
from core.fence import TermRow
from core.states import MoveCause, MoveState, TermState
from core.store.move_records import MoveRecord
from tests.unit.controlplane.pictures import BEGAN_US, move, owned, picture, roster, term

WELL = roster("onx")
OLD, NEW = (0, 100), (100, NO_END)
WHOLE = [term(0, 1, "o")]
SPLIT = [term(0, 1, "o", OLD), term(0, 2, "n", NEW)]
CLOSED = [term(0, 1, "o", OLD, TermState.CLOSED), term(0, 2, "n", NEW)]


def moving(state: MoveState, **values: float) -> MoveRecord:
    return move(0, "o", "n", state, **values)  # type: ignore[arg-type]


def stepped(seen: Picture) -> MoveRecord | None:
    found = steps(seen)
    return found[0].now if found else None


def ended(seen: Picture) -> str:
    """Why the move was rolled back."""
    found = stepped(seen)
    assert found is not None
    assert found.state is MoveState.ROLLED_BACK
    assert found.ended_us == seen.now_us
    return found.error


class TestUnderWay:
    @pytest.mark.parametrize("state", [MoveState.PENDING, MoveState.ORDERED])
    def test_nothing_happens_while_nothing_has_changed(self, state: MoveState) -> None:
        assert stepped(picture(WHOLE, WELL, moves=[moving(state)], at_s=9)) is None

    @pytest.mark.parametrize("state", [MoveState.ORDERED, MoveState.SPLIT])
    def test_the_split_is_the_targets_to_write_and_a_drain_may_take_its_time(self, state: MoveState) -> None:
        """An ORDERED one was read a moment before the terms."""
        assert stepped(picture(SPLIT, WELL, moves=[moving(state)], at_s=500)) is None

    @pytest.mark.parametrize("state", [MoveState.ORDERED, MoveState.SPLIT])
    def test_it_is_completed_when_the_term_before_is_closed(self, state: MoveState) -> None:
        found = stepped(picture(CLOSED, WELL, moves=[moving(state)], at_s=3))
        assert found is not None
        assert (found.state, found.boundary, found.new_term) == (MoveState.COMPLETED, 100, 2)
        assert found.ended_us == BEGAN_US + 3_000_000
        assert found.split_us > 0

    def test_what_the_new_owner_takes_over_of_the_old_range_has_to_be_closed_too(self) -> None:
        rest = [term(0, 1, "o", (0, 98), TermState.CLOSED), term(0, 2, "n", NEW), term(0, 3, "n", (98, 100))]
        assert stepped(picture(rest, roster("nx"), moves=[moving(MoveState.SPLIT)])) is None
        done = [*rest[:2], term(0, 3, "n", (98, 100), TermState.CLOSED)]
        found = stepped(picture(done, roster("nx"), moves=[moving(MoveState.SPLIT)]))
        assert found is not None
        assert (found.state, found.new_term) == (MoveState.COMPLETED, 2)

    def test_the_target_lost_before_the_boundary_rolls_it_back_once_the_terms_say_so(self) -> None:
        """A suspicion alone may be wrong: the shard's terms decide."""
        gone = roster("ox", suspects="n")
        assert stepped(picture(SPLIT, gone, moves=[moving(MoveState.SPLIT)])) is None
        back = [term(0, 1, "o", OLD), term(0, 2, "n", NEW, TermState.VOID), term(0, 3, "o", NEW)]
        assert ended(picture(back, gone, moves=[moving(MoveState.SPLIT)])) == "the shard went to o under term 3"

    def test_an_owner_lost_after_the_split_does_not_end_it(self) -> None:
        assert stepped(picture(SPLIT, roster("nx", suspects="o"), moves=[moving(MoveState.SPLIT)])) is None

    def test_a_split_that_is_not_split_any_more_is_rolled_back(self) -> None:
        """As after the restore of an old backup of the database."""
        assert ended(picture(WHOLE, WELL, moves=[moving(MoveState.SPLIT)])) == "the shard went to o under term 1"

    def test_a_shard_that_went_to_somebody_else_ends_it(self) -> None:
        taken = [term(0, 1, "o", (0, 90), TermState.CLOSED), term(0, 2, "x", (90, NO_END))]
        for state in (MoveState.PENDING, MoveState.ORDERED):
            error = ended(picture(taken, roster("nx"), moves=[moving(state)]))
            assert error == "the shard went to x under term 2"

    def test_a_takeover_by_the_target_is_as_good_as_a_hand_off(self) -> None:
        taken = [term(0, 1, "o", (0, 90), TermState.CLOSED), term(0, 2, "n", (90, NO_END))]
        found = stepped(picture(taken, roster("nx"), moves=[moving(MoveState.ORDERED)]))
        assert found is not None
        assert (found.state, found.boundary) == (MoveState.COMPLETED, 90)


class TestWhoIsMissing:
    @pytest.mark.parametrize("state", [MoveState.PENDING, MoveState.ORDERED])
    def test_a_target_or_an_owner_that_is_gone_ends_it_before_the_split(self, state: MoveState) -> None:
        one = moving(state)
        assert ended(picture(WHOLE, roster("o", suspects="n"), moves=[one])) == "its target n is gone"
        assert ended(picture(WHOLE, roster("o"), moves=[one])) == "its target n is gone"
        assert ended(picture(WHOLE, roster("o", leaving="n"), moves=[one])) == "its target n drains"
        drained = Standing(drained=frozenset("n"))
        assert ended(picture(WHOLE, WELL, moves=[one], rules=drained)) == "its target n drains"
        error = ended(picture(WHOLE, roster("n", suspects="o"), moves=[one]))
        assert error == "its owner o is gone: the shard is taken over instead"

    @pytest.mark.parametrize("state", [MoveState.PENDING, MoveState.ORDERED])
    def test_a_leader_that_has_not_heard_of_anybody_yet_ends_nothing(self, state: MoveState) -> None:
        assert stepped(picture(WHOLE, roster(settling=True), moves=[moving(state)])) is None

    def test_an_owner_that_leaves_is_no_reason(self) -> None:
        assert stepped(picture(WHOLE, roster("n", leaving="o"), moves=[moving(MoveState.ORDERED)])) is None

    def test_an_order_without_a_split_ends_after_its_withdrawal(self) -> None:
        one = [moving(MoveState.ORDERED)]
        assert stepped(picture(WHOLE, WELL, moves=one, at_s=11.5)) is None, "withdrawn, and perhaps under way"
        assert ended(picture(WHOLE, WELL, moves=one, at_s=12.5)) == "n had not begun it 10 s after it was ordered"

    def test_a_new_leader_gives_an_old_order_its_time(self) -> None:
        one = [moving(MoveState.ORDERED, ordered_s=-3_600.0)]
        assert stepped(picture(WHOLE, WELL, moves=one, at_s=11)) is None

    def test_whoever_waits_for_ten_minutes_is_told(self) -> None:
        one = [moving(MoveState.PENDING)]
        assert stepped(picture(WHOLE, WELL, moves=one, at_s=599)) is None
        assert "waited for more than 600 s" in ended(picture(WHOLE, WELL, moves=one, at_s=601))

    def test_a_freeze_ends_what_has_not_begun_and_nothing_else(self) -> None:
        for rules in (Standing(all_frozen=True), Standing(frozen=frozenset({0}))):
            error = ended(picture(WHOLE, WELL, moves=[moving(MoveState.PENDING)], rules=rules))
            assert error == "the shard was frozen before the move began"
            assert stepped(picture(WHOLE, WELL, moves=[moving(MoveState.ORDERED)], rules=rules)) is None


class TestTheBudget:
    SETTINGS = ControlPlaneSettings(moves_at_once=2)

    def ordered(self, *moves: MoveRecord, left: int = 60, rows: list[TermRow] | None = None) -> list[int]:
        seen = picture(rows or owned("o", range(40)), WELL, moves=moves, at_s=9)
        taken = orders(seen, self.SETTINGS, left)
        assert all(step.now.state is MoveState.ORDERED and step.now.ordered_us == seen.now_us for step in taken)
        return [step.now.shard for step in taken]

    def test_so_many_at_once(self) -> None:
        waiting = [move(shard, "o", "n", requested_s=-shard) for shard in range(4)]
        assert self.ordered(*waiting) == [3, 2], "whoever asked first"
        assert self.ordered(move(9, "o", "n", MoveState.SPLIT), *waiting) == [3]
        assert self.ordered(move(8, "o", "n", MoveState.ORDERED), move(9, "o", "n", MoveState.SPLIT), *waiting) == []

    def test_operators_first_then_drains_then_rebalancing(self) -> None:
        causes = (MoveCause.REBALANCE, MoveCause.DRAIN, MoveCause.OPERATOR)
        waiting = [move(n, "o", "n", cause=cause, requested_s=float(n)) for n, cause in enumerate(causes)]
        assert self.ordered(*waiting) == [2, 1]

    def test_drains_have_four_times_the_budget(self) -> None:
        waiting = [move(shard, "o", "n", cause=MoveCause.DRAIN) for shard in range(10)]
        assert len(self.ordered(*waiting)) == 8
        assert len(self.ordered(*waiting, move(20, "o", "n"), move(21, "o", "n"))) == 8

    def test_rebalancing_has_a_budget_of_the_minute_as_well(self) -> None:
        waiting = [move(shard, "o", "n", cause=MoveCause.REBALANCE) for shard in range(4)]
        assert self.ordered(*waiting, left=1) == [0]
        assert self.ordered(*waiting, left=0) == []
        assert self.ordered(*waiting, move(9, "o", "n"), left=0) == [9]

    def test_a_shard_in_a_hand_off_has_to_wait_for_its_end(self) -> None:
        rows = [term(0, 1, "o", OLD), term(0, 2, "o", NEW), *owned("o", [1])]
        assert self.ordered(move(0, "o", "n", from_term=2), move(1, "o", "n"), rows=rows) == [1]

    def test_nothing_is_ordered_of_or_for_one_who_cannot(self) -> None:
        for judged in (roster("o", keepers="n"), roster("n", settling=True)):
            assert orders(picture(WHOLE, judged, moves=[moving(MoveState.PENDING)]), self.SETTINGS, 60) == []
        leaving = picture(WHOLE, roster("n", leaving="o"), moves=[moving(MoveState.PENDING)])
        assert len(orders(leaving, self.SETTINGS, 60)) == 1
