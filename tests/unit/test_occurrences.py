"""Occurrences of a version: when each is due, under calendars, windows, jitter and the bound on runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest

from core.calendars import CalendarContent, CalendarPin, DayOff, DaysOff, Window, WindowAction, Windows
from core.civil import END_US
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence, Occurrences, SearchLimit, occurrences_of
from core.schedule import Schedule
from tests.support.instants import rfc3339, us

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
NOON = us("2026-06-01T12:00:00Z")  # a Monday
HOURLY = Schedule(cron=("0 * * * *",), windows=("skip", "defer"))


def window(from_text: str, to_text: str, name: str = "") -> Window:
    return Window(from_us=us(from_text), to_us=us(to_text), name=name)


def nightly(line: str, hours: int, zone: str = "UTC") -> Window:
    return Window(cron=line, zone=zone, duration_us=hours * HOUR_US)


def skipping(*windows: Window) -> Windows:
    return Windows(WindowAction.SKIP, windows)


def deferring(*windows: Window) -> Windows:
    return Windows(WindowAction.DEFER, windows)


def shown(found: tuple[Occurrence, ...]) -> list[str]:
    """Hour and minute of each nominal instant, with the due one where it differs."""
    return [
        f"{rfc3339(each.nominal_us)[11:16]}"
        + (f">{rfc3339(each.due_us)[11:16]}" if each.due_us != each.nominal_us else "")  # type: ignore[index]
        for each in found
    ]


def day_of(occurrences: Occurrences) -> list[str]:
    return shown(occurrences.between(us("2026-06-02T00:00:00Z"), us("2026-06-03T00:00:00Z"), 100))


def checked(occurrences: Occurrences, from_us: int, to_us: int) -> tuple[Occurrence, ...]:
    """The occurrences of a range, after every question about them was seen to agree."""
    found = occurrences.between(from_us, to_us, 10_000)
    assert all(early.nominal_us < late.nominal_us and early.due_us <= late.due_us for early, late in pairwise(found))
    assert [occurrences.prev_before(late.nominal_us) for late in found[1:]] == list(found[:-1])
    assert all(occurrences.at(each.nominal_us) == each for each in found)
    for asked_us in {each.due_us + nudge for each in found for nudge in (-1, 0, 1)}:
        later = [each for each in found if each.due_us >= asked_us]
        earlier = [each for each in found if each.due_us < asked_us]
        if later and earlier:
            assert occurrences.first_due_from(asked_us) == later[0], rfc3339(asked_us)
            assert occurrences.last_due_before(asked_us) == earlier[-1], rfc3339(asked_us)
    return found


# --- calendars ---


def test_days_off_are_days_of_the_schedules_zone_and_working_days_come_back() -> None:
    calendar = DaysOff((0, 6), (DayOff("2026-06-03/2026-06-05"), DayOff("*-06-10")), ("2026-06-04", "2026-06-07"))
    schedule = Schedule(cron=("0 23 * * *",), zone="America/New_York", exclude_calendars=("off",))
    found = Occurrences(schedule, {"off": calendar}).between(NOON, NOON + 11 * DAY_US, 20)
    # In New York the evening of the 1st, 2nd, 4th (worked), 7th (a worked Sunday), 8th, 9th, 11th.
    assert [rfc3339(each.nominal_us)[8:10] for each in found] == ["02", "03", "05", "08", "09", "10", "12"]  # type: ignore[index]


def test_a_calendar_that_works_every_day_again_ends_a_week_of_days_off() -> None:
    calendar = DaysOff(tuple(range(7)), (), ("2026-12-19",))
    only = Occurrences(Schedule(cron=("0 9 * * *",), exclude_calendars=("off",)), {"off": calendar})
    assert only.next_after(0) == Occurrence(us("2026-12-19T09:00:00Z"), us("2026-12-19T09:00:00Z"))
    assert only.next_after(us("2026-12-19T09:00:00Z")) is None
    assert only.prev_before(END_US) == only.next_after(0)


def test_calendars_that_are_not_given_have_no_effect() -> None:
    assert len(day_of(Occurrences(HOURLY))) == 24


# --- windows ---


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


def test_windows_that_never_end_leave_nothing_and_say_so_in_time() -> None:
    for blocks in (Window(cron="* * * * *", duration_us=MINUTE_US), Window(cron="0 0 * * *", duration_us=DAY_US)):
        for content in (deferring(blocks), skipping(blocks)):
            occurrences = Occurrences(replace(HOURLY, windows=("all",)), {"all": content})
            began = time.perf_counter()
            try:
                assert occurrences.next_after(NOON) is None
            except SearchLimit as limit:
                assert limit.at_us > NOON  # noqa: PT017
            assert time.perf_counter() - began < 0.1
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
    took = []
    for _ in range(5):
        began = time.perf_counter()
        try:
            occurrences.next_after(NOON)
        except SearchLimit as limit:
            assert limit.at_us > NOON  # noqa: PT017
        took.append(time.perf_counter() - began)
    assert min(took) < 0.015, "the figure is 5 ms"


# --- jitter ---


def test_jitter_moves_what_is_due_and_never_what_is_nominal() -> None:
    occurrences = Occurrences(Schedule(cron=("0 * * * *",), jitter_us=HOUR_US), offset_us=90_000_000)
    found = checked(occurrences, NOON, NOON + DAY_US)
    assert [each.nominal_us for each in found] == [NOON + n * HOUR_US for n in range(24)]
    assert {each.due_us - each.nominal_us for each in found} == {90_000_000}


def test_jitter_comes_on_top_of_deferral_and_is_cut_before_the_end() -> None:
    end_us = us("2026-06-02T06:00:30Z")
    contents = {"defer": deferring(window("2026-06-02T03:00:00Z", "2026-06-02T05:00:00Z"))}
    occurrences = Occurrences(replace(HOURLY, end_us=end_us, jitter_us=HOUR_US), contents, offset_us=MINUTE_US)
    found = checked(occurrences, NOON, END_US)
    assert shown(found)[-5:] == ["02:00>02:01", "03:00>05:01", "04:00>05:01", "05:00>05:01", "06:00>06:00"]
    assert found[-1].due_us == end_us - 1
    assert occurrences.first_due_from(end_us) is None
    assert occurrences.first_due_from(end_us - 1) == found[-1]
    assert occurrences.last_due_before(END_US) == found[-1]


def test_the_first_due_from_an_instant_may_be_nominal_long_before() -> None:
    contents = {"defer": deferring(window("2026-06-02T01:30:00Z", "2026-06-02T09:00:00Z"))}
    occurrences = Occurrences(HOURLY, contents, offset_us=5)
    assert occurrences.first_due_from(us("2026-06-02T08:00:00Z")) == Occurrence(
        us("2026-06-02T02:00:00Z"), us("2026-06-02T09:00:00Z") + 5
    )
    last = occurrences.last_due_before(us("2026-06-02T09:00:00Z") + 5)
    assert last == Occurrence(us("2026-06-02T01:00:00Z"), us("2026-06-02T01:00:00Z") + 5)


# --- bounds ---


def test_the_last_instant_is_inclusive_and_until_only_tightens() -> None:
    occurrences = Occurrences(HOURLY, last_us=NOON + 2 * HOUR_US)
    nominal = [each.nominal_us for each in occurrences.between(NOON, END_US, 10)]
    assert nominal == [NOON, NOON + HOUR_US, NOON + 2 * HOUR_US]
    assert occurrences.prev_before(END_US) == Occurrence(nominal[-1], nominal[-1])
    assert occurrences.at(NOON + 3 * HOUR_US) is None
    assert occurrences.next_after(nominal[-1]) is None
    assert occurrences.first_due_from(nominal[-1] + 1) is None
    assert len(occurrences.until(NOON).between(NOON, END_US, 10)) == 1
    assert occurrences.until(NOON + DAY_US) is occurrences
    assert occurrences.until(None) is occurrences
    assert len(occurrences.between(NOON, END_US, 10)) == 3, "the original is as it was"


def test_the_nth_occurrence_bounds_a_number_of_runs() -> None:
    occurrences = Occurrences(replace(HOURLY, exclude_dates=("2026-06-02",)))
    assert occurrences.nth_after(NOON, 1) == Occurrence(NOON + HOUR_US, NOON + HOUR_US)
    twelfth = occurrences.nth_after(NOON, 12)
    assert twelfth is not None
    assert rfc3339(twelfth.nominal_us) == "2026-06-03T00:00:00Z"
    assert occurrences.nth_after(END_US - 3 * HOUR_US, 3) is None


@pytest.mark.parametrize(
    ("parts", "calendar"),
    [
        ({"cron": ("*/7 * * * *", "30 1-3 * * 1-5", "* * 5 * * *")}, None),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-10-01/2026-11-15",)}, None),
        ({"cron": ("*/20 2,3 * * *",), "exclude_cron": ("20 * * * *", "* 3 1-20 * *"), "gap": "shift"}, None),
        (
            {"cron": ("15 1 * * *", "45 * * * *"), "repeat": "both"},
            DaysOff((6,), (DayOff("*-10-31"),), ("2026-10-10",)),
        ),
        ({"cron": ("0 0 13 * 5",), "start_us": NOON + 40 * DAY_US, "end_us": NOON + 900 * DAY_US}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_counting_days_at_once_agrees_with_walking(parts: dict[str, object], calendar: DaysOff | None) -> None:
    schedule = Schedule(zone="America/New_York", exclude_calendars=("off",), **parts)  # type: ignore[arg-type]
    occurrences = Occurrences(schedule, {"off": calendar} if calendar else None)
    for from_us in (us("2026-09-20T11:13:00Z"), us("2027-03-01T00:00:00Z") - 1):
        walked = occurrences.between(from_us + 1, END_US, 1500)
        for n in (1, 2, 3, 10, 100, 101, 333, 1499, 1500):
            want = walked[n - 1] if n <= len(walked) else None
            assert occurrences.nth_after(from_us, n) == want, n


def test_a_hundred_thousand_runs_are_counted_in_bounded_time() -> None:
    began = time.process_time()
    minutely = Occurrences(Schedule(cron=("* * * * *", "*/5 * * * *"), zone="Europe/Berlin"))
    last = minutely.nth_after(NOON, 100_000)
    assert last is not None
    assert last.nominal_us == NOON + 100_000 * MINUTE_US
    daily = Occurrences(Schedule(cron=("0 9 * * *",), zone="Europe/Berlin", exclude_dates=("2026-06-10",)))
    assert daily.nth_after(NOON, 100_000) is None, "the calendar ends before"
    assert daily.nth_after(NOON, 60_000) is not None
    assert time.process_time() - began < 3.0


# --- versions of jobs ---

PIN = CalendarPin(UUID(int=1), 3)


def spec_of(schedule: Schedule | None, **pins: object) -> JobSpec:
    return JobSpec(handler="report", schedule=schedule, pins=Pins(**pins))  # type: ignore[arg-type]


def test_a_version_is_computed_by_its_pins() -> None:
    schedule = Schedule(cron=("0 9 * * *",), exclude_calendars=("off",))
    spec = spec_of(schedule, jitter_offset_us=7, last_us=us("2026-06-03T09:00:00Z"), calendars={"off": PIN})
    for enumerator in (None, Enumerator()):
        occurrences = occurrences_of(spec, {PIN: DaysOff(days=(DayOff("2026-06-02"),))}, enumerator)
        assert occurrences is not None
        (only,) = occurrences.between(NOON, END_US, 5)
        assert only == Occurrence(us("2026-06-03T09:00:00Z"), us("2026-06-03T09:00:00Z") + 7)


def test_a_version_without_a_schedule_has_none_and_one_without_its_calendar_is_refused() -> None:
    assert occurrences_of(spec_of(None), {}, None) is None
    spec = spec_of(Schedule(cron=("0 9 * * *",), windows=("off",)), calendars={"off": PIN})
    with pytest.raises(Invalid, match="calendar off"):
        occurrences_of(spec, {}, None)
    with pytest.raises(Invalid, match="not readable"):
        occurrences_of(spec, {PIN: Invalid("content", "not readable")}, None)
    with pytest.raises(Invalid, match="calendar off"):
        occurrences_of(replace(spec, pins=Pins()), {PIN: DaysOff((1,))}, None)


def test_a_crowd_with_the_same_calendar_costs_one_computation() -> None:
    enumerator = Enumerator()
    other = CalendarPin(PIN.calendar_id, 4)
    contents: dict[CalendarPin, CalendarContent | Invalid] = {PIN: DaysOff((1,)), other: DaysOff((2,))}
    schedule = Schedule(cron=("0 9 * * *",), exclude_calendars=("off",))
    crowd = [
        occurrences_of(spec_of(schedule, jitter_offset_us=n, calendars={"off": PIN}), contents, enumerator)
        for n in range(50)
    ]
    dues = [each.next_after(NOON - DAY_US // 2).due_us for each in crowd if each is not None]  # type: ignore[union-attr]
    assert dues == [us("2026-06-02T09:00:00Z") + n for n in range(50)]
    assert (enumerator.misses, enumerator.hits) == (1, 49)
    later = occurrences_of(spec_of(schedule, calendars={"off": other}), contents, enumerator)
    assert later is not None
    found = later.next_after(NOON - DAY_US // 2)
    assert found is not None
    assert found.nominal_us == us("2026-06-01T09:00:00Z"), "another version of the calendar is another series"


def test_searches_that_give_up_say_how_far_they_came() -> None:
    schedule = Schedule(cron=("* * * * *",), exclude_calendars=("off",), windows=("odd",))
    contents: dict[str, CalendarContent] = {
        "off": DaysOff((0,)),
        "odd": skipping(
            Window(cron="1-59/2 * * * *", duration_us=MINUTE_US), Window(cron="*/2 * 1-6 * *", duration_us=MINUTE_US)
        ),
    }
    occurrences = Occurrences(schedule, contents)
    at_us, found, stops = NOON, None, 0
    while found is None:
        try:
            found = occurrences.next_after(at_us)
        except SearchLimit as limit:
            assert limit.at_us > at_us  # noqa: PT017
            assert occurrences.at(limit.at_us) is None  # noqa: PT017
            at_us, stops = limit.at_us, stops + 1
        else:
            assert found is not None
    # The 7th of June is a Sunday.
    assert (rfc3339(found.nominal_us), stops > 10) == ("2026-06-08T00:00:00Z", True)
