"""Holdings: which term covers a bucket, what a lost one takes with it, and when memory holds every open run."""

from __future__ import annotations

import pytest

from core.buckets import NO_END
from core.fence import FenceView, TermRow
from core.states import TermState
from core.store.marks import Marks
from dispatcher.holdings import HeldTerm, Holdings

MARKS = Marks(shard=0, floor=100, watermark=98, open_from_us=5_000)


def hold(holdings: Holdings, term: int, low: int, high: int, shard: int = 0) -> HeldTerm:
    row = TermRow(shard, term, low, high, "me", TermState.OPEN)
    return holdings.add(row, MARKS, proven_s=1.0)


def test_a_shard_may_be_held_in_ranges_under_several_terms() -> None:
    holdings = Holdings()
    early, late = hold(holdings, 3, 0, 100), hold(holdings, 4, 100, NO_END)
    assert holdings.covering(0, 99) is early
    assert holdings.covering(0, 100) is late
    assert holdings.covering(1, 99) is None
    assert holdings.shards == {0}
    assert len(holdings) == 2
    assert holdings.of_shard(0) == [early, late]


def test_a_bucket_under_a_term_that_does_not_act_is_covered_by_nobody() -> None:
    holdings = Holdings()
    held = hold(holdings, 3, 0, NO_END)
    held.acting = False
    assert holdings.covering(0, 50) is None
    assert holdings.get((0, 3)) is held


def test_dropping_a_term_leaves_the_others_of_its_shard() -> None:
    holdings = Holdings()
    early, late = hold(holdings, 3, 0, 100), hold(holdings, 4, 100, NO_END)
    assert holdings.drop((0, 3)) is early
    assert holdings.covering(0, 99) is None
    assert holdings.covering(0, 100) is late
    assert holdings.drop((0, 3)) is None
    holdings.drop((0, 4))
    assert (holdings.shards, len(holdings), holdings.of_shard(0)) == (set(), 0, [])


def test_what_a_statement_saw_proves_a_term_and_tells_of_a_range_that_was_split() -> None:
    holdings = Holdings()
    held = hold(holdings, 3, 0, NO_END)
    shorter = holdings.note([FenceView(0, 3, 0, 200), FenceView(9, 9, 0, 1)], seen_s=7.0)
    assert (shorter, held.proven_s) == ([(held, 200)], 7.0)
    holdings.note([FenceView(0, 3, 0, 200)], seen_s=6.0)
    assert held.proven_s == 7.0, "an answer that was sent earlier proves no more"


def test_a_new_term_begins_with_the_marks_of_its_shard_and_without_its_open_runs() -> None:
    held = hold(Holdings(), 3, 0, NO_END)
    assert (held.floor, held.watermark, held.open_from_us, held.stand_before_us) == (100, 98, 5_000, 5_000)
    assert held.doubtful
    assert not held.whole


@pytest.mark.parametrize(
    ("doubts", "overflows", "whole", "doubtful", "overflowed"),
    [(0, 0, True, False, False), (1, 0, False, True, False), (0, 1, False, False, True), (2, 3, False, True, True)],
)
def test_memory_is_whole_until_a_run_may_have_been_missed_or_had_no_room(
    doubts: int, overflows: int, whole: bool, doubtful: bool, overflowed: bool
) -> None:
    held = hold(Holdings(), 3, 0, NO_END)
    held.resolved = (held.doubts, held.overflows)
    held.doubts += doubts
    held.overflows += overflows
    assert (held.whole, held.doubtful, held.overflowed) == (whole, doubtful, overflowed)
