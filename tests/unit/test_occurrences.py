"""Occurrences of a version: when each is due, under calendars, windows, jitter and the bound on runs."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import UUID

import pytest

from core.calendars import CalendarContent, CalendarPin, DayOff, DaysOff, Window
from core.civil import END_US
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence, Occurrences, SearchLimit, occurrences_of
from core.schedule import Schedule
from tests.support.instants import rfc3339, us
from tests.support.occurrence_checks import (
    DAY_US,
    HOUR_US,
    HOURLY,
    MINUTE_US,
    NOON,
    checked,
    day_of,
    deferring,
    shown,
    skipping,
    window,
)

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
