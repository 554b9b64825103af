"""What calendars may say, and that what was stored comes back."""

from __future__ import annotations

import json
from functools import partial
from uuid import UUID

import pytest

from core.calendar_checks import check_content
from core.calendars import (
    CalendarContent,
    CalendarPin,
    DayOff,
    DaysOff,
    Window,
    WindowAction,
    Windows,
    content_from_json,
    content_to_json,
)
from core.civil import END_US
from core.daysets import DaySet, NamedDays, date_text, parse_date
from core.errors import Invalid
from tests.support.processor_time import least_ms

HOUR_US = 3_600_000_000


def skip(*windows: Window) -> Windows:
    return Windows(WindowAction.SKIP, windows)


CONTENTS = [
    DaysOff((0, 6), (DayOff("2026-12-24", "Eve"), DayOff("2026-12-24/2027-01-02"), DayOff("*-05-01")), ("2026-12-19",)),
    DaysOff(working=("2026-12-19",)),
    skip(Window(from_us=0, to_us=1)),
    Windows(
        WindowAction.DEFER,
        (
            Window(cron="0 22 * * 1-5", zone="Europe/Berlin", duration_us=8 * HOUR_US, name="nights"),
            Window(from_us=5, to_us=END_US - 1),
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_what_is_sound_is_taken_and_comes_back_equal(content: CalendarContent) -> None:
    check_content(content)
    assert content_from_json(json.loads(json.dumps(content_to_json(content)))) == content


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (DaysOff(), "content"),
        (DaysOff((7,)), "content.weekdays[0]"),
        (DaysOff((0, -1)), "content.weekdays[1]"),
        (DaysOff((0,) * 8), "content.weekdays"),
        (DaysOff(days=(DayOff("2026-12-24"), DayOff("Christmas"))), "content.days[1].date"),
        (DaysOff(days=(DayOff("2026-12-24", "x" * 129),)), "content.days[0].name"),
        (DaysOff(days=(DayOff("2026-12-24", "a\nb"),)), "content.days[0].name"),
        (DaysOff(days=(DayOff("2026-12-24"),) * 5001), "content.days"),
        (DaysOff((1,), working=("*-12-19",)), "content.working[0]"),
        (DaysOff((1,), working=("2026-12-19",) * 501), "content.working"),
        (skip(), "content.windows"),
        (skip(*(Window(from_us=0, to_us=1),) * 501), "content.windows"),
        (skip(*(Window(cron="0 9 * * *", duration_us=HOUR_US),) * 17), "content.windows"),
        (Windows(3, (Window(from_us=0, to_us=1),)), "content.action"),  # type: ignore[arg-type]
        (skip(Window()), "content.windows[0].from_us"),
        (skip(Window(from_us=0)), "content.windows[0].to_us"),
        (skip(Window(from_us=1, to_us=1)), "content.windows[0].to_us"),
        (skip(Window(from_us=-1, to_us=1)), "content.windows[0].from_us"),
        (skip(Window(from_us=0, to_us=END_US)), "content.windows[0].to_us"),
        (skip(Window(from_us=0, to_us=1, duration_us=HOUR_US)), "content.windows[0].duration_us"),
        (skip(Window(from_us=0, to_us=1, zone="Europe/Berlin")), "content.windows[0].zone"),
        (skip(Window(from_us=0, to_us=1, cron="0 9 * * *", duration_us=HOUR_US)), "content.windows[0]"),
        (skip(Window(cron="0 9 * * *")), "content.windows[0].duration_us"),
        (skip(Window(cron="0 9 * * *", duration_us=999_999)), "content.windows[0].duration_us"),
        (skip(Window(cron="0 9 * * *", duration_us=31 * 24 * HOUR_US + 1)), "content.windows[0].duration_us"),
        (skip(Window(cron="0 9 * * *", duration_us=HOUR_US, zone="PST")), "content.windows[0].zone"),
        (skip(Window(from_us=0, to_us=1), Window(cron="*/90 * * * *", duration_us=60_000_000)),
         "content.windows[1].cron.minute"),
        (skip(Window(cron="@every 2h", duration_us=HOUR_US)), "content.windows[0].cron"),
        (skip(Window(cron="H 9 * * *", duration_us=HOUR_US)), "content.windows[0].cron.minute"),
        (skip(Window(cron="0 0 30 2 *", duration_us=HOUR_US)), "content.windows[0].cron.day_of_month"),
        (skip(Window(from_us=0, to_us=1, name="x" * 129)), "content.windows[0].name"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_refuses_and_names_the_field(content: CalendarContent, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_content(content)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "stored",
    [None, [], {}, {"days_off": {}}, {"windows": {"action": 9, "windows": []}}, {"days_off": {"days": 1}},
     {"days_off": {"weekdays": [], "days": [{"day": "2026-12-24"}], "working": []}}, {"a": 1, "b": 2}],
)  # fmt: skip
def test_what_was_spoilt_is_refused(stored: object) -> None:
    with pytest.raises(Invalid):
        content_from_json(stored)


def test_pins_come_back() -> None:
    pin = CalendarPin(UUID(int=7), 3)
    assert CalendarPin.from_json(json.loads(json.dumps(pin.to_json()))) == pin


def test_the_largest_calendars_are_checked_in_bounded_time() -> None:
    days = DaysOff(days=tuple(DayOff(f"{date_text(16 * n)}/{date_text(16 * n + 3)}", "x") for n in range(5000)))
    lines = tuple(
        Window(cron=f"{','.join(str((n + m) % 60) for m in range(70))} * * * *", duration_us=HOUR_US) for n in range(16)
    )
    for content in (days, skip(*lines, *(Window(from_us=n, to_us=n + 1) for n in range(484)))):
        assert least_ms(partial(check_content, content)) < 300, "the figure is 30 ms"


def test_dates_are_days_from_1970_to_2199() -> None:
    assert parse_date("1970-01-01", "at") == 0
    assert date_text(parse_date("2199-12-31", "at")) == "2199-12-31"
    for text in ("1969-12-31", "2200-01-01", "2026-02-29", "2026-00-10", "20260101", "2026-1-1", "\u0662026-01-01", ""):
        with pytest.raises(Invalid, match=r"^at: "):
            parse_date(text, "at")


def test_runs_of_days_are_whole_and_working_days_cut_them() -> None:
    days = DaySet([NamedDays("2026-12-24/2026-12-31", "recess"), NamedDays("2027-01-01"), NamedDays("*-01-03")], "days",
                  weekdays=(6,), working=("2026-12-28",), working_path="working")  # fmt: skip

    def run(text: str) -> tuple[str, str] | None:
        found = days.run(parse_date(text, "at"))
        return None if found is None else (date_text(found[0]), date_text(found[1]))

    assert run("2026-12-25") == ("2026-12-24", "2026-12-28")
    assert run("2026-12-28") is None
    assert run("2026-12-30") == ("2026-12-29", "2027-01-02"), "dates that touch are one run"
    assert run("2027-01-02") == ("2027-01-02", "2027-01-04"), "a Saturday, and a day of every year"
    assert run("2027-01-04") is None
    assert days.words(parse_date("2026-12-26", "at")) == "recess"
    assert days.words(parse_date("2027-01-03", "at")) == "*-01-03"
    assert days.words(parse_date("2027-01-09", "at")) == "Saturday"
