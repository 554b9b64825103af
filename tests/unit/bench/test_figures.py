"""The figures of a benchmark: medians, what stands beside them, and whether a goal is kept."""

from __future__ import annotations

import pytest

from tools.bench.figures import Goal, figure, percentile


def test_a_figure_is_the_median_of_its_rounds_and_so_is_the_undisturbed_one() -> None:
    made = figure("x", "ms", [30.0, 10.0, 20.0], "", undisturbed=[4.0, 2.0, 12.0])
    assert (made.value, made.undisturbed, made.ratio) == (20.0, 4.0, 5.0)


@pytest.mark.parametrize(
    ("goal", "value", "undisturbed", "met"),
    [
        (Goal(50, added=True), 150.0, [100.0], True),
        (Goal(50, added=True), 150.1, [100.0], False),
        (Goal(50), 150.0, [100.0], False),
        (Goal(150), 150.0, [100.0], True),
        (Goal(15), 15.1, [], False),
        (None, 1e9, [], None),
    ],
)
def test_a_goal_is_a_bound_of_its_own_or_one_above_the_undisturbed_figure(
    goal: Goal | None, value: float, undisturbed: list[float], met: bool | None
) -> None:
    assert figure("x", "ms", [value], "", undisturbed=undisturbed, goal=goal).met is met


def test_there_is_no_ratio_without_an_undisturbed_figure_or_beside_zero() -> None:
    assert figure("x", "s", [3.0], "").ratio is None
    assert figure("x", "s", [3.0], "", undisturbed=[0.0]).ratio is None


def test_a_line_of_the_file_says_its_goal_only_where_there_is_one() -> None:
    plain = figure("x", "s", [3.0], "of").to_json()
    assert plain == {"name": "x", "value": 3.0, "unit": "s", "runs": [3.0], "detail": "of"}
    beside = figure("x", "s", [3.0], "of", undisturbed=[2.0], goal=Goal(50, added=True)).to_json()
    assert beside == plain | {"undisturbed": 2.0, "goal": "+50", "met": True}


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (51.0, 100.0, 7.0)
