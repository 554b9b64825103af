"""What schedules exclude by date and by line; that the search jumps, and gives up in time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.civil import END_US
from core.errors import Invalid
from core.schedule import Schedule
from core.search import SearchLimit
from tests.support.cron_strategies import ZONES, random_line
from tests.support.instants import rfc3339, us
from tests.support.processor_time import least_ms

NOON = us("2026-06-01T12:00:00Z")  # a Monday


def after(schedule: Schedule, from_text: str, count: int) -> list[str | None]:
    found = schedule.between(us(from_text) + 1, END_US, count)
    assert [schedule.prev_before(at) for at in found[1:]] == list(found[:-1]), "previous agrees with next"
    assert all(schedule.matches(at) for at in found)
    return [rfc3339(at) for at in found]


def test_dates_ranges_and_days_of_every_year_are_days_of_the_schedules_zone() -> None:
    daily = Schedule(
        cron=("30 23 * * *",),
        zone="America/New_York",
        exclude_dates=("2026-06-02", "2026-06-04/2026-06-06", "*-06-08"),
    )
    assert after(daily, "2026-06-01T12:00:00Z", 4) == [
        "2026-06-02T03:30:00Z",  # still 1 June in New York
        "2026-06-04T03:30:00Z", "2026-06-08T03:30:00Z", "2026-06-10T03:30:00Z",
    ]  # fmt: skip
    assert after(daily, "2031-06-07T12:00:00Z", 2) == ["2031-06-08T03:30:00Z", "2031-06-10T03:30:00Z"]
    assert not daily.matches(us("2026-06-03T03:30:00Z"))


def test_a_leap_day_of_every_year_can_be_excluded() -> None:
    daily = Schedule(cron=("0 0 * * *",), exclude_dates=("*-02-29",))
    assert after(daily, "2028-02-28T00:00:00Z", 1) == ["2028-03-01T00:00:00Z"]


def test_a_line_of_five_fields_excludes_whole_minutes_and_one_of_six_exact_seconds() -> None:
    often = ("*/20 * * * * *",)
    by_minute = Schedule(cron=often, exclude_cron=("1 * * * *",))
    assert after(by_minute, "2026-06-01T12:00:40Z", 2) == ["2026-06-01T12:02:00Z", "2026-06-01T12:02:20Z"]
    by_second = Schedule(cron=often, exclude_cron=("20 1 * * * *",))
    assert after(by_second, "2026-06-01T12:01:00Z", 1) == ["2026-06-01T12:01:40Z"]


def test_exclusions_take_from_every_part_of_the_union() -> None:
    noon = Schedule(at_us=(NOON, NOON + 250_000), cron=("0 12 * * *",), exclude_cron=("* 12 1 6 *",))
    assert after(noon, "2026-05-31T12:00:00Z", 1) == ["2026-06-02T12:00:00Z"]


def test_lines_exclude_under_the_rules_of_the_schedule() -> None:
    def found(gap: str, excluded: str) -> list[str | None]:
        schedule = Schedule(cron=("30 2 * * *",), zone="America/New_York", gap=gap, exclude_cron=(excluded,))  # type: ignore[arg-type]
        return after(schedule, "2026-03-07T12:00:00Z", 1)

    assert found("end", "* 2 * 3 *") == ["2026-03-08T07:00:00Z"], "elapsed time: that line has no 02:00 to 03:00"
    assert found("end", "0-59 2 8 3 *") == ["2026-03-09T06:30:00Z"], "its missing minutes end at the same instant"
    assert found("shift", "30 2 8 3 *") == ["2026-03-09T06:30:00Z"]
    assert found("shift", "30 3 8 3 *") == ["2026-03-09T06:30:00Z"], "03:30 is where the missing 02:30 was carried"
    assert found("shift", "29 2 8 3 *") == ["2026-03-08T07:30:00Z"]


def test_a_pass_that_the_line_does_not_run_is_not_excluded_by_it() -> None:
    hourly = Schedule(cron=("30 * * * *",), zone="America/New_York", exclude_cron=("30 0-2 1 11 *",))
    assert after(hourly, "2026-11-01T03:30:00Z", 2) == ["2026-11-01T06:30:00Z", "2026-11-01T08:30:00Z"]


def test_times_carried_over_midnight_are_not_taken_with_the_day_they_land_on() -> None:
    # Pyongyang jumped from 23:30 on 4 May to 00:00: the missing 23:40 is carried to 00:10 on the 5th.
    schedule = Schedule(
        cron=("5,40 0,23 * * *",),
        zone="Asia/Pyongyang",
        gap="shift",
        exclude_cron=("5,40 0,23 5 5 *",),  # type: ignore[arg-type]
    )
    assert after(schedule, "2018-05-04T14:35:00Z", 2) == ["2018-05-04T15:10:00Z", "2018-05-05T15:05:00Z"]


def asked(ask: Callable[[int], int | None], instant_us: int) -> None:
    try:
        ask(instant_us)
    except SearchLimit as limit:
        if limit.at_us == instant_us:
            raise


FAR = [
    (("0 9 * * *",), ("* * * * 1-5",), "2026-06-06T09:00:00Z"),
    (("*/5 * * * *",), ("*/5 * * 1-11 *",), "2026-12-01T00:00:00Z"),
    (("* * * * * *",), ("0-59 * * 1-11 *",), "2026-12-01T00:00:00Z"),
    (("* * * * * *",), ("0-58 * * * * *",), "2026-06-01T12:00:59Z"),
    (("*/7 8-18 * * 1-5",), ("*/7 8-18 1-30 * *",), "2026-07-31T08:00:00Z"),
    (("* 9 * * *", "30 14 * * *"), ("* 9 * * *", "30 14 * 1-11 *"), "2026-12-01T14:30:00Z"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "excluded", "want"), FAR, ids=lambda value: str(value)[:40])
def test_whole_runs_are_jumped_over(lines: tuple[str, ...], excluded: tuple[str, ...], want: str) -> None:
    schedule = Schedule(cron=lines, exclude_cron=excluded)
    assert rfc3339(schedule.next_after(NOON)) == want
    assert least_ms(lambda: schedule.next_after(NOON)) < 50, "the figure is 5 ms"
    assert least_ms(lambda: schedule.prev_before(us("2026-11-30T23:59:59Z"))) < 50, "the figure is 5 ms"


def test_years_of_days_are_jumped_over_at_once() -> None:
    minutely = Schedule(cron=("* * * * *",), zone="Europe/Berlin", exclude_dates=("1980-01-01/2150-12-31",))
    assert after(minutely, "1979-12-31T22:58:00Z", 2) == ["1979-12-31T22:59:00Z", "2150-12-31T23:00:00Z"]
    assert least_ms(lambda: minutely.next_after(NOON)) < 50, "the figure is 5 ms"


def test_a_search_that_gives_up_is_taken_up_where_it_stopped() -> None:
    # Alternating minutes are jumped over one by one.
    schedule = Schedule(
        cron=("* * * 1-5 *", "0 0 7 6 *"), exclude_cron=("* */2 * * 1-5 ? 2026", "* 1-59/2 * * 1-5 ? 2026")
    )
    start, at_us, stops = us("2026-01-01T00:00:00Z"), us("2026-01-01T00:00:00Z"), 0
    found = None
    while found is None:
        try:
            found = schedule.next_after(at_us)
        except SearchLimit as limit:
            assert limit.at_us > at_us, "each search gets further"  # noqa: PT017
            assert not schedule.matches(limit.at_us)  # noqa: PT017
            at_us, stops = limit.at_us, stops + 1
    assert (rfc3339(found), stops > 100) == ("2026-06-07T00:00:00Z", True)
    assert least_ms(lambda: asked(schedule.next_after, start)) < 50, "the figure is 5 ms"
    with pytest.raises(SearchLimit) as stop:
        schedule.prev_before(us("2026-05-31T00:00:00Z"))
    assert stop.value.at_us < us("2026-05-31T00:00:00Z")


def adversarial(draw: Random) -> dict[str, object]:
    """As many parts as a schedule takes, most of them in each other's way."""
    lines = [random_line(draw, seconds=draw.random() < 0.3)[0] for _ in range(draw.choice((1, 4, 16)))]
    excluded = [random_line(draw, seconds=draw.random() < 0.3)[0] for _ in range(draw.choice((0, 3, 8)))]
    for index in range(0, len(excluded), 2):  # the times of a line on other days, or a part of its days
        kept, other = draw.choice(lines).split(), excluded[index].split()
        excluded[index] = " ".join([*kept[:-3], *other[-3:]])
    dates = [
        f"{1970 + 7 * n}-{draw.randint(1, 12):02}-01/{1976 + 7 * n}-12-{draw.randint(1, 31):02}" for n in range(30)
    ]
    return {
        "cron": tuple(lines),
        "exclude_cron": tuple(excluded),
        "exclude_dates": tuple(dates[: draw.choice((0, 0, 10, 30))]),
        "zone": draw.choice(ZONES),
        "gap": draw.choice(("end", "shift", "skip")),
        "repeat": draw.choice(("first", "second", "both")),
    }


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), print_blob=True)
def test_any_schedule_is_checked_and_asked_in_bounded_time(seed: int) -> None:
    draw = Random(seed)
    parts = adversarial(draw)

    def check() -> Schedule | None:
        try:
            return Schedule(**parts)  # type: ignore[arg-type]
        except Invalid:
            return None

    schedule = check()
    assert least_ms(check) < 100, (parts, "the figure is 10 ms")
    if schedule is None:
        return
    for instant in (0, draw.randrange(END_US), END_US):
        assert least_ms(lambda instant=instant: asked(schedule.next_after, instant)) < 50, (parts, "figure: 5 ms")
        assert least_ms(lambda instant=instant: asked(schedule.prev_before, instant)) < 50, (parts, "figure: 5 ms")
