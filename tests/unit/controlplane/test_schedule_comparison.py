"""The walk over two schedules that are compared: bounded, by local days, and no longer than either goes on."""

from __future__ import annotations

from controlplane.schedule_comparison import compare_over
from controlplane.schedule_preview import Drawn, draft
from core.comparison import ChangeKind, Comparison
from core.schedule import Schedule
from tests.support.clock import NEW_YEAR_2026_US, ManualClock

HOUR = 3_600_000_000
DAY = 24 * HOUR
FROM = NEW_YEAR_2026_US


def drawn(*lines: str, **more: object) -> Drawn:
    return draft(Schedule(cron=lines, **more), {})  # type: ignore[arg-type]


async def compared(
    before: Drawn, after: Drawn, to_us: int = FROM + 10 * DAY, most: int = 100_000
) -> tuple[Comparison, bool]:
    return await compare_over(before, after, FROM, to_us, ManualClock(), most)


async def test_the_same_schedule_has_no_difference() -> None:
    found, partial = await compared(drawn("*/7 * * * *"), drawn("*/7 * * * *"))
    assert (found.changes, found.unchanged, partial) == ((), 10 * 24 * 9, False)


async def test_another_zone_moves_what_comes_once_a_day() -> None:
    found, _ = await compared(drawn("0 3 * * *", zone="Asia/Tokyo"), drawn("0 3 * * *", zone="America/New_York"))
    assert found.count(ChangeKind.MOVED) == 9
    moved = next(change for change in found.changes if change.kind is ChangeKind.MOVED)
    assert (moved.before_us, moved.after_us) == (FROM + DAY - 6 * HOUR, FROM + DAY + 8 * HOUR)


async def test_only_what_both_walks_reached_is_compared() -> None:
    """The denser one ends the comparison, whichever it is: what lies beyond is no loss of the other."""
    dense, sparse = drawn("* * * * *"), drawn("0 * * * *")
    for before, after, kind in ((dense, sparse, ChangeKind.LOST), (sparse, dense, ChangeKind.GAINED)):
        found, partial = await compared(before, after, most=1_200)
        assert (partial, found.unchanged, found.count(kind), len(found.changes)) == (True, 20, 1_180, 1_180)


async def test_exactly_as_many_as_are_allowed_are_the_whole() -> None:
    found, partial = await compared(drawn("0 * * * *"), drawn("0 * * * *"), FROM + 20 * HOUR, most=20)
    assert (found.unchanged, partial) == (20, False)


async def test_a_limited_number_of_runs_ends_it() -> None:
    found, partial = await compared(drawn("0 * * * *", max_runs=30), drawn("0 * * * *"))
    assert (found.unchanged, found.count(ChangeKind.GAINED), partial) == (30, 210, False)
