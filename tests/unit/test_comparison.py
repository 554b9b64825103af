"""What differs between two lists of occurrences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.comparison import Change, ChangeKind, Placed, compare

DAY = 86_400
GAINED, LOST, MOVED = ChangeKind.GAINED, ChangeKind.LOST, ChangeKind.MOVED


def at(*seconds: int, put_off: int = 0) -> list[Placed]:
    """Occurrences at these seconds, on days of UTC."""
    return [Placed(second, second + put_off, second // DAY) for second in seconds]


@pytest.mark.parametrize(
    ("before", "after", "changes", "unchanged"),
    [
        pytest.param(at(1, 2), at(1, 2), [], 2, id="the same"),
        pytest.param(at(), at(), [], 0, id="nothing on either side"),
        pytest.param(at(), at(5), [(GAINED, None, 5)], 0, id="one more"),
        pytest.param(at(5), at(), [(LOST, 5, None)], 0, id="one less"),
        pytest.param(at(5), at(9), [(MOVED, 5, 9)], 0, id="the only one of its day in both"),
        pytest.param(at(9), at(5), [(MOVED, 9, 5)], 0, id="moved to an earlier time"),
        pytest.param(at(5), at(DAY + 5), [(LOST, 5, None), (GAINED, None, DAY + 5)], 0, id="on another day"),
        pytest.param(
            at(5, 6), at(7), [(LOST, 5, None), (LOST, 6, None), (GAINED, None, 7)], 0, id="two of a day before"
        ),
        pytest.param(
            at(5), at(6, 7), [(LOST, 5, None), (GAINED, None, 6), (GAINED, None, 7)], 0, id="two of a day after"
        ),
        pytest.param(at(5, 9), at(9), [(LOST, 5, None)], 1, id="a day that keeps one and loses one"),
        pytest.param(at(5), at(5, 9), [(GAINED, None, 9)], 1, id="a day that keeps one and gains one"),
        pytest.param(at(5), at(5, put_off=3), [(MOVED, 5, 5)], 0, id="the same instant, due at another time"),
        pytest.param(
            at(5, DAY, 2 * DAY + 1),
            at(6, DAY, 3 * DAY),
            [(MOVED, 5, 6), (LOST, 2 * DAY + 1, None), (GAINED, None, 3 * DAY)],
            1,
            id="some of each",
        ),
    ],
)
def test_says_what_differs(
    before: list[Placed],
    after: list[Placed],
    changes: list[tuple[ChangeKind, int | None, int | None]],
    unchanged: int,
) -> None:
    found = compare(before, after)
    assert list(found.changes) == [Change(*change) for change in changes]
    assert found.unchanged == unchanged
    assert found.count(MOVED) == sum(kind is MOVED for kind, _, _ in changes)


def test_days_are_those_of_each_schedule() -> None:
    """The same wall time in another zone is the same day, moved; also where UTC has it on another day."""
    before = [Placed(DAY - 1, DAY - 1, 7)]
    after = [Placed(DAY + 1, DAY + 1, 7)]
    assert compare(before, after).changes == (Change(MOVED, DAY - 1, DAY + 1),)


occurrences = st.lists(st.integers(0, 20 * DAY), unique=True).map(lambda seconds: at(*sorted(seconds)))


@given(occurrences, occurrences)
def test_accounts_for_each_occurrence_once(before: list[Placed], after: list[Placed]) -> None:
    found = compare(before, after)
    old = [change.before_us for change in found.changes if change.before_us is not None]
    new = [change.after_us for change in found.changes if change.after_us is not None]
    assert len(set(old)) == len(old) == len(before) - found.unchanged
    assert len(set(new)) == len(new) == len(after) - found.unchanged
    assert set(old) <= {each.nominal_us for each in before}
    assert set(new) <= {each.nominal_us for each in after}
    assert [change.at_us for change in found.changes] == sorted(change.at_us for change in found.changes)


@given(occurrences, occurrences)
def test_turned_round_gains_are_losses(before: list[Placed], after: list[Placed]) -> None:
    there, back = compare(before, after), compare(after, before)
    assert (there.count(GAINED), there.count(MOVED)) == (back.count(LOST), back.count(MOVED))
    assert there.unchanged == back.unchanged
