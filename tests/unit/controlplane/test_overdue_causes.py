"""Why something is overdue: what holds a whole shard up is named before what ails one job, and only then the owner."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from controlplane.overdue_causes import WORDS, Cause, Surroundings, is_put_off
from core.buckets import NO_END
from core.errors import Invalid
from core.fence import TermRow
from core.occurrences import Occurrences
from core.schedule import Schedule
from core.states import DueKind, TermState
from core.store.overdue import LateRow
from core.telemetry.control_plane_metrics import MissedFire

NOW_US = 1_000_000_000_000
BEFORE_US = NOW_US - 30_000_000
ROW = LateRow(
    shard=3,
    bucket=100,
    due_at_us=BEFORE_US - 1,
    due_id=UUID(int=1),
    kind=DueKind.OCCURRENCE,
    job_id=UUID(int=2),
    job_version=1,
    scheduled_for_us=BEFORE_US - 1,
    back_us=None,
    namespace="team",
    name="nightly",
    error="",
    has_version=True,
)
TERM = TermRow(3, 7, 0, NO_END, "d1", TermState.OPEN)


def around(*terms: TermRow, heard: bool = True) -> Surroundings:
    return Surroundings({3: terms}, lambda owner: heard and owner == "d1", BEFORE_US)


@pytest.mark.parametrize(
    ("row", "surroundings", "going", "expected"),
    [
        (ROW, around(), [], Cause(MissedFire.NO_TERM, "shard 3")),
        (ROW, around(replace(TERM, state=TermState.CLOSED)), [], Cause(MissedFire.NO_TERM, "shard 3")),
        (ROW, around(replace(TERM, from_bucket=101)), [], Cause(MissedFire.NO_TERM, "shard 3")),
        (replace(ROW, error="x"), around(TERM, heard=False), [], Cause(MissedFire.OWNER_SILENT, "shard 3 of d1")),
        (replace(ROW, error="no zone data"), around(TERM), ["d1"], Cause(MissedFire.SET_ASIDE, "no zone data")),
        (
            replace(ROW, error="x", has_version=False),
            around(TERM),
            [],
            Cause(MissedFire.UNREADABLE, f"there is no version 1 of job {UUID(int=2)}"),
        ),
        (replace(ROW, due_at_us=NOW_US), around(TERM), [], Cause(MissedFire.CATCH_UP, "namespace team")),
        (ROW, around(TERM), ["d1"], Cause(MissedFire.BEHIND, "d1")),
        (ROW, around(TERM), ["d2"], Cause(MissedFire.STUCK, "d1")),
    ],
    ids=lambda value: value.reason.value if isinstance(value, Cause) else "",
)
def test_each_cause(row: LateRow, surroundings: Surroundings, going: list[str], expected: Cause) -> None:
    assert surroundings.cause_of(row, going) == expected


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(MissedFire)


def test_an_owner_is_going_when_what_was_late_is_gone_or_has_moved() -> None:
    here = around(TERM)
    assert here.going({ROW.due_id: ROW}, {ROW.due_id: ROW}) == frozenset()
    assert here.going({ROW.due_id: ROW}, {}) == {"d1"}
    moved = replace(ROW, scheduled_for_us=ROW.scheduled_for_us + 1)
    assert here.going({ROW.due_id: ROW}, {ROW.due_id: moved}) == {"d1"}
    put_off = replace(ROW, due_at_us=NOW_US)
    assert here.going({ROW.due_id: put_off}, {}) == frozenset(), "it was not late, only put off"


class TestWhatIsPutOff:
    """A row that lies ahead of its occurrence may be deferred as its job wants it, and is not late then."""

    every_minute = Schedule(cron=("* * * * *",))
    minute_us = BEFORE_US // 60_000_000 * 60_000_000

    def late(self, nominal_us: int, **changes: object) -> LateRow:
        return replace(ROW, scheduled_for_us=nominal_us, due_at_us=NOW_US, **changes)  # type: ignore[arg-type]

    def test_one_that_was_due_long_ago_is_put_off(self) -> None:
        assert is_put_off(self.late(self.minute_us), Occurrences(self.every_minute), BEFORE_US)

    def test_one_that_jitter_defers_is_not(self) -> None:
        offset = Occurrences(self.every_minute, offset_us=300_000_000)
        assert not is_put_off(self.late(self.minute_us), offset, BEFORE_US)

    def test_a_place_between_occurrences_is_none(self) -> None:
        assert not is_put_off(self.late(self.minute_us + 1), Occurrences(self.every_minute), BEFORE_US)

    def test_a_catch_up_that_goes_backwards_is_late_wherever_its_head_stands(self) -> None:
        going_back = self.late(NOW_US + 60_000_000, back_us=self.minute_us)
        assert is_put_off(going_back, Occurrences(self.every_minute), BEFORE_US)

    def test_a_job_that_cannot_be_computed_is(self) -> None:
        assert is_put_off(self.late(self.minute_us), Invalid("zone", "has no data"), BEFORE_US)

    def test_a_job_without_a_schedule_is_not(self) -> None:
        assert not is_put_off(self.late(self.minute_us), None, BEFORE_US)
