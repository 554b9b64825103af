"""Which starts count for which figure, and which moves make dispatchers even."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.bench.load import Expected
from tools.bench.spans import US, Span, boundary_span, evening, late_within
from tools.bench.system import CaseFailed, Start, judge_starts


def start(due_us: int, late_ms: int = 1, shard: int = 0, run: str = "a", attempt: int = 1) -> Start:
    return Start(run, attempt, due_us, due_us + late_ms * 1000, shard)


def test_a_span_counts_what_was_due_in_it_however_late_it_started() -> None:
    starts = [start(9, 1), start(10, 2), start(19, 5_000), start(20, 3)]
    assert late_within(starts, [Span(10, 20)]) == [2.0, 5_000.0]


def test_a_span_of_a_shard_counts_no_other_shard() -> None:
    starts = [start(15, 1, shard=1), start(15, 2, shard=2)]
    assert late_within(starts, [Span(10, 20, shard=2)]) == [2.0]


def test_a_start_in_two_spans_counts_once() -> None:
    assert late_within([start(15, 1, shard=1)], [Span(10, 20), Span(12, 18, shard=1), Span(14, 16, shard=1)]) == [1.0]


def test_a_boundary_is_felt_around_its_instant_by_its_shard_alone() -> None:
    span = boundary_span(3, 4, 5 * US)
    assert (span.from_us, span.to_us, span.shard) == (19 * US, 22 * US, 3)


def test_evening_moves_as_few_shards_as_can_be() -> None:
    owners = dict.fromkeys(range(64), "a")
    moves = evening(owners, ["a", "b", "c"])
    after = owners | {shard: target for target, shards in moves.items() for shard in shards}
    assert sorted(Counter(after.values()).values()) == [21, 21, 22]
    assert sum(map(len, moves.values())) == 42
    assert evening(after, ["a", "b", "c"]) == {}


EXPECTED = Expected({"a": 10, "b": 20}, {"a": 1, "b": 2})


def test_a_load_without_its_rest_keeps_the_shards_of_what_is_left() -> None:
    assert EXPECTED.before(20) == Expected({"a": 10}, {"a": 1})


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([start(10)], "lost 1"),
        ([start(10), start(20, -1, run="b")], "early 1"),
        ([start(10), start(20, run="b"), start(20, run="b", attempt=2)], "more than once 1"),
        ([start(10), start(20, run="b"), start(20, run="b")], "more than once 1"),
    ],
)
def test_a_run_that_is_lost_early_or_doubled_fails_the_case(found: list[Start], word: str) -> None:
    with pytest.raises(CaseFailed, match=word):
        judge_starts(found, EXPECTED, doubles_explained=False)


def test_a_second_attempt_is_no_fault_where_somebody_was_killed_but_a_doubled_one_is() -> None:
    second = [start(10), start(20, run="b"), start(20, run="b", attempt=2)]
    judge_starts(second, EXPECTED, doubles_explained=True)
    with pytest.raises(CaseFailed):
        judge_starts([*second, second[-1]], EXPECTED, doubles_explained=True)
