"""Intervals of days and months keep the wall time of their anchor; those of elapsed time do not care."""

from __future__ import annotations

import pytest

from core.intervals import Every
from core.schedule import Schedule
from tests.support.instants import rfc3339, us


def instants(schedule: Schedule, from_text: str, count: int) -> list[str | None]:
    """The first `count` occurrences from an instant on, in UTC; the way back must agree."""
    found = schedule.between(us(from_text), us("2199-12-31T00:00:00Z"), count)
    assert [schedule.prev_before(at) for at in found[1:]] == list(found[:-1])
    assert all(schedule.matches(at) for at in found)
    assert schedule.prev_before(found[-1] + 1) == found[-1]
    return [rfc3339(at) for at in found]


def every(
    anchor: str, zone: str = "UTC", *, days: int | None = None, months: int | None = None, **rules: str
) -> Schedule:
    return Schedule(every=(Every(days=days, months=months, anchor_us=us(anchor)),), zone=zone, **rules)  # type: ignore[arg-type]


def test_days_keep_the_wall_time_when_the_clock_changes() -> None:
    daily = every("2026-03-07T14:30:00Z", "America/New_York", days=1)  # 09:30 in New York
    assert instants(daily, "2026-01-01T00:00:00Z", 3) == [
        "2026-03-07T14:30:00Z", "2026-03-08T13:30:00Z", "2026-03-09T13:30:00Z",
    ]  # fmt: skip
    elapsed = Schedule(every=(Every(elapsed_us=86_400_000_000, anchor_us=us("2026-03-07T14:30:00Z")),))
    assert instants(elapsed, "2026-01-01T00:00:00Z", 2)[1] == "2026-03-08T14:30:00Z"


@pytest.mark.parametrize(
    ("gap", "second"),
    [
        ("end", "2026-03-08T07:00:00Z"),
        ("shift", "2026-03-08T07:30:00.250000Z"),
        ("skip", "2026-03-09T06:30:00.250000Z"),
    ],
)
def test_days_follow_the_gap_rule_to_the_microsecond(gap: str, second: str) -> None:
    nightly = every("2026-03-07T07:30:00.250Z", "America/New_York", days=1, gap=gap)  # 02:30:00.25 in New York
    assert instants(nightly, "2026-03-07T00:00:00Z", 2) == ["2026-03-07T07:30:00.250000Z", second]


@pytest.mark.parametrize(
    ("repeat", "passes"),
    [
        ("first", ["2026-11-01T05:30:00Z"]),
        ("second", ["2026-11-01T06:30:00Z"]),
        ("both", ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]),
    ],
)
def test_days_follow_the_repeat_rule(repeat: str, passes: list[str]) -> None:
    nightly = every("2026-10-31T05:30:00Z", "America/New_York", days=1, repeat=repeat)  # 01:30 in New York
    assert instants(nightly, "2026-10-31T12:00:00Z", len(passes) + 1) == [*passes, "2026-11-02T06:30:00Z"]


@pytest.mark.parametrize("anchor", ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"])
@pytest.mark.parametrize("repeat", ["first", "second", "both"])
def test_the_anchor_is_the_first_occurrence_in_either_pass(anchor: str, repeat: str) -> None:
    nightly = every(anchor, "America/New_York", days=1, repeat=repeat)
    assert instants(nightly, "1970-01-01T00:00:00Z", 2) == [anchor, "2026-11-02T06:30:00Z"]


def test_weeks_are_seven_days() -> None:
    fortnightly = every("2026-10-19T07:00:00Z", "Europe/Berlin", days=14)  # Monday, 09:00
    assert instants(fortnightly, "2026-10-20T00:00:00Z", 2) == ["2026-11-02T08:00:00Z", "2026-11-16T08:00:00Z"]


def test_months_clamp_to_the_end_and_come_back_to_the_anchors_day() -> None:
    monthly = every("2026-01-31T09:00:00Z", months=1)
    assert instants(monthly, "2026-01-01T00:00:00Z", 6) == [
        "2026-01-31T09:00:00Z", "2026-02-28T09:00:00Z", "2026-03-31T09:00:00Z", "2026-04-30T09:00:00Z",
        "2026-05-31T09:00:00Z", "2026-06-30T09:00:00Z",
    ]  # fmt: skip
    assert instants(monthly, "2028-02-01T00:00:00Z", 1) == ["2028-02-29T09:00:00Z"]


def test_months_in_steps_and_over_years() -> None:
    yearly = every("2024-02-29T12:00:00Z", months=12)
    assert instants(yearly, "2024-01-01T00:00:00Z", 5) == [
        "2024-02-29T12:00:00Z", "2025-02-28T12:00:00Z", "2026-02-28T12:00:00Z", "2027-02-28T12:00:00Z",
        "2028-02-29T12:00:00Z",
    ]  # fmt: skip
    quarterly = every("2026-08-30T22:30:00Z", "Europe/Berlin", months=3)  # 31 August, 00:30
    assert instants(quarterly, "2026-09-01T00:00:00Z", 2) == ["2026-11-29T23:30:00Z", "2027-02-27T23:30:00Z"]


def test_an_anchor_at_the_epoch_may_lie_in_1969_on_the_wall() -> None:
    monthly = every("1970-01-01T00:00:00Z", "America/New_York", months=1)  # 31 December 1969, 19:00
    assert instants(monthly, "1970-01-01T00:00:00Z", 3) == [
        "1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z", "1970-03-01T00:00:00Z",
    ]  # fmt: skip
    daily = every("1970-01-01T00:00:00Z", "America/New_York", days=1)
    assert instants(daily, "1970-01-01T00:00:00Z", 2) == ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]


def test_intervals_end_with_2199() -> None:
    for schedule in (
        every("2199-12-30T12:00:00Z", "Pacific/Auckland", days=1),
        every("2199-11-30T12:00:00Z", "Pacific/Auckland", months=1),
        every("2199-12-01T12:00:00Z", "Pacific/Honolulu", months=1200),
    ):
        last = schedule.prev_before(10**18)
        assert last is not None
        assert schedule.next_after(last) is None
        assert schedule.matches(last)


def test_an_interval_without_an_anchor_counts_from_the_schedules() -> None:
    both = Schedule(
        every=(Every(days=1), Every(days=1, anchor_us=5_000_000)), cron=("@every 24h",), anchor_us=7_000_000
    )
    assert both.between(0, 86_400_000_000, 9) == (5_000_000, 7_000_000)


def test_a_day_that_the_zone_left_out_follows_the_gap_rule() -> None:
    found = {
        gap: instants(every("2011-12-29T20:00:00Z", "Pacific/Apia", days=1, gap=gap), "2011-12-29T21:00:00Z", 2)
        for gap in ("end", "shift", "skip")
    }
    assert found == {
        "end": ["2011-12-30T10:00:00Z", "2011-12-30T20:00:00Z"],  # 30 December is missing
        "shift": ["2011-12-30T20:00:00Z", "2011-12-31T20:00:00Z"],
        "skip": ["2011-12-30T20:00:00Z", "2011-12-31T20:00:00Z"],
    }
