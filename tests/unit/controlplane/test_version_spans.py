"""Which version answers for which instants."""

from __future__ import annotations

import pytest

from controlplane.version_spans import past_one_offs, span_at, spans_of, unknown_befores
from core.civil import END_US
from core.jobspec import JobSpec
from core.schedule import Schedule
from core.states import JobState
from core.store.ledger import LedgerVersion

ACTIVE, PAUSED, DELETED = JobState


def version(number: int, state: JobState, cutover: int, begins: int | None = None, *at: int) -> LedgerVersion:
    spec = JobSpec("h", schedule=Schedule(at_us=at) if at else None)
    return LedgerVersion(number, state, cutover if begins is None else begins, cutover, "", "", spec)


def tiles(*versions: LedgerVersion) -> list[tuple[int, int, int]]:
    return [(0 if s.version is None else s.version.version, s.after_us, s.until_us) for s in spans_of(versions)]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param([version(1, ACTIVE, 10)], [(0, -1, 10), (1, 10, END_US)], id="one version"),
        pytest.param(
            [version(1, ACTIVE, 10), version(2, ACTIVE, 20)], [(0, -1, 10), (1, 10, 20), (2, 20, END_US)], id="an edit"
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, DELETED, 80)], [(7, 70, 80), (8, 80, END_US)], id="a deletion"
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, PAUSED, 80), version(9, ACTIVE, 90)],
            [(7, 70, 80), (8, 80, 90), (9, 90, END_US)],
            id="a pause",
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, PAUSED, 80), version(9, ACTIVE, 90, 80)],
            [(7, 70, 80), (9, 80, END_US)],
            id="a pause that is caught up on",
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, PAUSED, 80), version(9, PAUSED, 85, 80), version(10, ACTIVE, 90, 80)],
            [(7, 70, 80), (10, 80, END_US)],
            id="a pause with an edit, caught up on",
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, PAUSED, 80), version(9, PAUSED, 85), version(10, ACTIVE, 90, 85)],
            [(7, 70, 80), (8, 80, 85), (10, 85, END_US)],
            id="a pause with another schedule, caught up on",
        ),
        pytest.param(
            [version(7, ACTIVE, 70), version(8, ACTIVE, 80, 19, 20)],
            [(7, 70, 80), (8, 80, END_US)],
            id="a one-off for the past moves nothing else",
        ),
    ],
)
def test_versions_tile_time(versions: list[LedgerVersion], expected: list[tuple[int, int, int]]) -> None:
    assert tiles(*versions) == expected


def test_the_end_of_a_span_belongs_to_it() -> None:
    spans = spans_of([version(1, ACTIVE, 10), version(2, ACTIVE, 20)])
    found = {at: span_at(spans, at) for at in (0, 10, 11, 20, 21)}
    numbers = {at: span and span.version and span.version.version for at, span in found.items()}
    assert numbers == {0: None, 10: None, 11: 1, 20: 1, 21: 2}


class TestPastOneOffs:
    def test_are_those_that_the_version_before_did_not_have(self) -> None:
        versions = [version(1, ACTIVE, 10, None, 30), version(2, ACTIVE, 50, 24, 25, 30, 60)]
        assert {at: each.version.version for at, each in past_one_offs(versions, {}).items()} == {25: 2}

    def test_of_the_first_version_lie_before_the_registration(self) -> None:
        assert set(past_one_offs([version(1, ACTIVE, 10, 4, 5, 20)], {})) == {5}

    def test_that_were_given_in_a_pause_go_over_to_whoever_catches_up_on_it(self) -> None:
        paused = [version(1, ACTIVE, 10), version(2, PAUSED, 20), version(3, PAUSED, 30, 4, 5)]
        resumed = [*paused, version(4, ACTIVE, 40, 4, 5)]
        assert [past_one_offs(each, {})[5].version.version for each in (paused, resumed)] == [3, 4]

    def test_need_the_version_before_where_that_is_not_at_hand(self) -> None:
        versions = [version(1, ACTIVE, 10), version(5, ACTIVE, 50, 24, 25, 30)]
        assert unknown_befores(versions) == [5]
        assert set(past_one_offs(versions, {5: version(4, ACTIVE, 40, None, 30)})) == {25}

    def test_are_none_of_a_resumed_pause(self) -> None:
        versions = [version(1, ACTIVE, 10, None, 15), version(2, PAUSED, 20, None, 15), version(3, ACTIVE, 30, 20, 15)]
        assert past_one_offs(versions, {}) == {}
        assert unknown_befores(versions) == []
