"""Maintenance windows: what they take away, what they put off and until when, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from core.calendars import CalendarContent, Window
from core.occurrences import Occurrence, Occurrences, SearchLimit
from core.schedule import Schedule
from tests.support.instants import us
from tests.support.occurrence_checks import (
    DAY_US,
    HOURLY,
    MINUTE_US,
    NOON,
    checked,
    day_of,
    deferring,
    nightly,
    skipping,
    window,
)
from tests.support.processor_time import least_ms


def test_a_window_that_skips_takes_away_what_begins_inside_it() -> None:
    contents = {"skip": skipping(window("2026-06-02T02:00:00Z", "2026-06-02T04:00:00Z"))}
    assert day_of(Occurrences(HOURLY, contents))[:4] == ["00:00", "01:00", "04:00", "05:00"]


def test_a_window_that_defers_puts_off_to_its_end_and_touching_ones_are_one() -> None:
    contents = {
        "defer": deferring(
            window("2026-06-02T02:30:00Z", "2026-06-02T04:15:00Z"),
            window("2026-06-02T04:15:00Z", "2026-06-02T05:30:00Z"),
            window("2026-06-02T05:00:00Z", "2026-06-02T05:10:00Z"),
        )
    }
    occurrences = Occurrences(HOURLY, contents)
    assert day_of(occurrences)[:7] == ["00:00", "01:00", "02:00", "03:00>05:30", "04:00>05:30", "05:00>05:30", "06:00"]
    checked(occurrences, NOON, NOON + 2 * DAY_US)


def test_deferral_goes_on_through_other_calendars_and_ends_in_the_windows_zone() -> None:
    schedule = Schedule(cron=("0 * * * *",), windows=("nights", "more"))
    contents: dict[str, CalendarContent] = {
        "nights": deferring(nightly("0 22 * * *", 8, "Europe/Berlin")),  # 20:00Z to 04:00Z
        "more": deferring(window("2026-06-02T03:30:00Z", "2026-06-02T06:30:00Z")),
    }
    occurrences = Occurrences(schedule, contents)
    assert day_of(occurrences)[:8] == [*(f"0{hour}:00>06:30" for hour in range(7)), "07:00"]
    checked(occurrences, NOON, NOON + 3 * DAY_US)


def test_what_is_put_off_into_a_window_that_skips_is_taken_away() -> None:
    contents: dict[str, CalendarContent] = {
        "defer": deferring(window("2026-06-02T02:00:00Z", "2026-06-02T04:30:00Z")),
        "skip": skipping(window("2026-06-02T04:30:00Z", "2026-06-02T05:00:00Z")),
    }
    assert day_of(Occurrences(HOURLY, contents))[:4] == ["00:00", "01:00", "05:00", "06:00"]


def test_what_would_be_put_off_to_the_end_or_later_is_taken_away() -> None:
    contents = {"defer": deferring(window("2026-06-02T02:00:00Z", "2026-06-02T04:00:00Z"))}
    end = us("2026-06-02T04:00:00Z")
    assert day_of(Occurrences(replace(HOURLY, end_us=end), contents)) == ["00:00", "01:00"]
    just_before = day_of(Occurrences(replace(HOURLY, end_us=end + 1), contents))
    assert just_before == ["00:00", "01:00", "02:00>04:00", "03:00>04:00", "04:00"]


def test_windows_minute_by_minute_are_one() -> None:
    blocks = Window(cron="* 0-5 * * *", duration_us=MINUTE_US)
    occurrences = Occurrences(HOURLY, {"defer": deferring(blocks)})
    assert day_of(occurrences)[:7] == [*(f"0{hour}:00>06:00" for hour in range(6)), "06:00"]
    checked(occurrences, NOON, NOON + 2 * DAY_US)


def gets_further(occurrences: Occurrences) -> Occurrence | None:
    """What comes next after noon, unless the search gives up, which is then later."""
    try:
        return occurrences.next_after(NOON)
    except SearchLimit as limit:
        assert limit.at_us > NOON  # noqa: PT017
        return None


def ends_or_gives_up(occurrences: Occurrences) -> None:
    assert gets_further(occurrences) is None


def test_windows_that_never_end_leave_nothing_and_say_so_in_time() -> None:
    for blocks in (Window(cron="* * * * *", duration_us=MINUTE_US), Window(cron="0 0 * * *", duration_us=DAY_US)):
        for content in (deferring(blocks), skipping(blocks)):
            occurrences = Occurrences(replace(HOURLY, windows=("all",)), {"all": content})
            assert least_ms(partial(ends_or_gives_up, occurrences)) < 150, "the figure is 15 ms"
            assert occurrences.at(NOON) is None


def test_what_is_too_many_windows_away_from_the_end_has_none_for_any_question() -> None:
    # From 01:00 to 09:00 minute after minute is a window of its own, of two lines in turn.
    turns = deferring(
        Window(cron="*/2 1-8 2 6 *", duration_us=MINUTE_US), Window(cron="1-59/2 1-8 2 6 *", duration_us=MINUTE_US)
    )
    occurrences = Occurrences(Schedule(cron=("*/3 * * * *",), windows=("turns",)), {"turns": turns})
    start, end = us("2026-06-02T00:00:00Z"), us("2026-06-02T12:00:00Z")
    there = [at for at in range(start, end, 3 * MINUTE_US) if occurrences.at(at) is not None]
    assert us("2026-06-02T02:00:00Z") not in there
    assert us("2026-06-02T08:57:00Z") in there

    def walk(ask: Callable[[int], Occurrence | None], at_us: int) -> list[int]:
        found = []
        while start <= at_us < end:
            try:
                following = ask(at_us)
            except SearchLimit as limit:
                assert limit.at_us != at_us  # noqa: PT017
                at_us = limit.at_us
                continue
            assert following is not None
            at_us = following.nominal_us
            found.append(at_us)
        return found[:-1]  # the last one lies outside

    assert walk(occurrences.next_after, start) == there[1:]
    assert walk(occurrences.prev_before, end - 1)[::-1] == there
    shown = [each.nominal_us for each in occurrences.entries(start, end, 1000) if not each.excluded_by]
    assert shown == there


def test_as_many_windows_as_may_be_are_searched_in_bounded_time() -> None:
    content = skipping(
        *(Window(from_us=n * 1000, to_us=n * 1000 + 10) for n in range(484)),
        *(
            Window(cron=f"{n},{n + 28} {n % 24} * * *", duration_us=MINUTE_US * 30, zone="Europe/Dublin")
            for n in range(16)
        ),
    )
    names = tuple("abcdefgh")
    schedule = Schedule(cron=("*/5 * * * *",), windows=names)
    occurrences = Occurrences(schedule, dict.fromkeys(names, content))
    assert least_ms(partial(gets_further, occurrences)) < 50, "the figure is 5 ms"
