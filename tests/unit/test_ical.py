"""iCalendar files as days off and windows: what is kept, what is not, and on which line."""

from __future__ import annotations

import pytest

from core.calendars import DayOff, Window
from tools.ical import Kept, Problem, ReadCalendar, ReadOptions, Wanted, read_ical

US = 1_000_000


def file(*events: str, before: str = "") -> str:
    """A file of these events, each given as its lines; the first begins on line 4."""
    blocks = "".join(f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{before}{blocks}END:VCALENDAR\n"


def read(text: str, wanted: Wanted = Wanted.DAYS_OFF, zone: str = "", until: int = 2028) -> ReadCalendar:
    return read_ical(text, ReadOptions(wanted, zone, 2026, until))


def days(*events: str) -> list[str]:
    found = read(file(*events))
    assert not [each for each in found.results if isinstance(each, Problem)], found.results
    return [day.date for day in found.days]


def problem(event: str, wanted: Wanted = Wanted.DAYS_OFF) -> str:
    found = read(file(event), wanted)
    (result,) = found.results
    assert isinstance(result, Problem), result
    assert (found.days, found.windows) == ((), ())
    return result.reason


class TestWholeDays:
    def test_one_day_is_a_day_off_with_its_name(self) -> None:
        found = read(file("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261225\nSUMMARY:Eve"))
        assert found.days == (DayOff("2026-12-24", "Eve"),)
        assert found.results == (Kept(4, "Eve", ("2026-12-24",)),)

    @pytest.mark.parametrize(
        ("end", "date"),
        [
            ("", "2026-12-24"),
            ("DTEND;VALUE=DATE:20261224", "2026-12-24"),
            ("DTEND;VALUE=DATE:20270103", "2026-12-24/2027-01-02"),
            ("DURATION:P3D", "2026-12-24/2026-12-26"),
        ],
        ids=["no end", "an end that is no later", "an exclusive end", "a duration"],
    )
    def test_the_end_is_exclusive_in_the_file_and_inclusive_with_us(self, end: str, date: str) -> None:
        assert days(f"DTSTART;VALUE=DATE:20261224\n{end}") == [date]

    def test_names_are_unfolded_unescaped_and_of_one_line(self) -> None:
        found = read(file("DTSTART;VALUE=DATE:20261224\nSUMMARY:Weih\n nachten\\, die\\nletzten"))
        assert found.days[0].name == "Weihnachten, die letzten"

    def test_two_events_of_one_day_are_one_entry_with_both_names(self) -> None:
        found = read(file("DTSTART;VALUE=DATE:20261003\nSUMMARY:A", "DTSTART;VALUE=DATE:20261003\nSUMMARY:B"))
        assert found.days == (DayOff("2026-10-03", "A / B"),)

    def test_a_name_is_cut_to_what_a_calendar_takes(self) -> None:
        assert len(read(file(f"DTSTART;VALUE=DATE:20261003\nSUMMARY:{'x' * 300}")).days[0].name) == 128


class TestRecurringDays:
    def test_every_year_on_the_same_day_is_kept_as_that(self) -> None:
        assert days("DTSTART;VALUE=DATE:20101225\nRRULE:FREQ=YEARLY") == ["*-12-25"]
        assert days("DTSTART;VALUE=DATE:20101225\nRRULE:FREQ=YEARLY;INTERVAL=1;BYMONTH=12;BYMONTHDAY=25") == ["*-12-25"]
        assert days("DTSTART;VALUE=DATE:20101225\nDTEND;VALUE=DATE:20101227\nRRULE:FREQ=YEARLY;WKST=MO") == [
            "*-12-25",
            "*-12-26",
        ]

    def test_that_it_holds_for_earlier_years_too_is_said(self) -> None:
        (result,) = read(file("DTSTART;VALUE=DATE:20101225\nRRULE:FREQ=YEARLY")).results
        assert isinstance(result, Kept)
        assert result.notes == ("holds for every year, also before 2010",)

    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            (
                "DTSTART;VALUE=DATE:20251127\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
                ["2026-11-26", "2027-11-25", "2028-11-23"],
            ),
            ("DTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY;UNTIL=20271225", ["2026-12-25", "2027-12-25"]),
            ("DTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY;COUNT=2", ["2026-12-25"]),
            ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=2", ["2026-12-25", "2028-12-25"]),
            (
                "DTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20271225",
                ["2026-12-25", "2028-12-25"],
            ),
            ("DTSTART;VALUE=DATE:20270301\nRRULE:FREQ=YEARLY", ["2027-03-01", "2028-03-01"]),
            (
                "DTSTART;VALUE=DATE:20260131\nRRULE:FREQ=MONTHLY;COUNT=3",
                ["2026-01-31", "2026-03-31", "2026-05-31"],
            ),
            (
                "DTSTART;VALUE=DATE:20260228\nDTEND;VALUE=DATE:20260302\nRRULE:FREQ=YEARLY",
                ["2026-02-28/2026-03-01", "2027-02-28/2027-03-01", "2028-02-28/2028-02-29"],
            ),
            (
                "DTSTART;VALUE=DATE:20260105\nRDATE;VALUE=DATE:20260109,20260107",
                ["2026-01-05", "2026-01-07", "2026-01-09"],
            ),
        ],
        ids=[
            "fourth thursday",
            "until",
            "count",
            "interval",
            "exdate",
            "from a later year",
            "month ends",
            "leap day",
            "rdate",
        ],
    )
    def test_every_other_recurrence_is_expanded(self, event: str, expected: list[str]) -> None:
        assert days(event) == expected

    def test_to_which_year_is_said(self) -> None:
        (result,) = read(
            file("DTSTART;VALUE=DATE:20251127\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), until=2027
        ).results
        assert isinstance(result, Kept)
        assert result.entries == ("2026-11-26", "2027-11-25")
        assert result.notes == ("its recurrence is kept for 2026 to 2027 only",)

    def test_an_occurrence_that_was_moved_stands_for_itself(self) -> None:
        series = "UID:u\nDTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY"
        moved = "UID:u\nRECURRENCE-ID;VALUE=DATE:20271225\nDTSTART;VALUE=DATE:20271227"
        assert days(series, moved) == ["2026-12-25", "2028-12-25", "2027-12-27"]

    def test_one_that_is_over_is_refused(self) -> None:
        assert problem("DTSTART;VALUE=DATE:20101225\nRRULE:FREQ=YEARLY;COUNT=3") == "does not occur in 2026 to 2028"


class TestTimesOfDay:
    EVENT = "DTSTART;TZID=Europe/Berlin:20260701T220000\nDTEND;TZID=Europe/Berlin:20260702T020000\nSUMMARY:Upgrade"

    def test_are_refused_where_days_off_are_wanted(self) -> None:
        assert "--windows" in problem(self.EVENT)

    def test_are_windows_where_those_are_wanted(self) -> None:
        found = read(file(self.EVENT), Wanted.WINDOWS)
        begin_us = 1_782_936_000 * US  # 2026-07-01T20:00:00Z
        assert found.windows == (Window(begin_us, begin_us + 4 * 3600 * US, name="Upgrade"),)
        (result,) = found.results
        assert isinstance(result, Kept)
        assert result.entries == ("2026-07-01T20:00:00Z/2026-07-02T00:00:00Z",)

    def test_whole_days_are_refused_beside_windows(self) -> None:
        assert "whole day" in problem("DTSTART;VALUE=DATE:20261224", Wanted.WINDOWS)

    @pytest.mark.parametrize(
        ("rule", "line"),
        [
            ("FREQ=DAILY", "0 2 * * *"),
            ("FREQ=WEEKLY", "0 2 * * 0"),
            ("FREQ=WEEKLY;BYDAY=SA,SU;WKST=MO", "0 2 * * 0,6"),
        ],
    )
    def test_that_recur_for_ever_are_a_cron_line(self, rule: str, line: str) -> None:
        event = f"DTSTART;TZID=Europe/Berlin:20251005T020000\nDURATION:PT90M\nRRULE:{rule}"
        found = read(file(event), Wanted.WINDOWS)
        assert found.windows == (Window(cron=line, zone="Europe/Berlin", duration_us=5400 * US),)

    def test_that_recur_otherwise_are_expanded_by_the_clock_on_the_wall(self) -> None:
        """Berlin springs forward on 29 March 2026: 02:00 there is 01:00 UTC before and 00:00 UTC after."""
        event = "DTSTART;TZID=Europe/Berlin:20260328T020000\nDURATION:PT1H\nRRULE:FREQ=DAILY;INTERVAL=2;COUNT=2"
        found = read(file(event), Wanted.WINDOWS)
        begins = [window.from_us for window in found.windows]
        assert begins == [1_774_659_600 * US, 1_774_828_800 * US]
        assert [(window.to_us or 0) - (window.from_us or 0) for window in found.windows] == [3600 * US] * 2

    def test_until_an_instant_includes_it(self) -> None:
        rule = "RRULE:FREQ=DAILY;UNTIL=20260103T100000Z"
        found = read(file(f"DTSTART:20260101T100000Z\nDURATION:PT1H\n{rule}"), Wanted.WINDOWS)
        assert len(found.windows) == 3

    def test_without_a_zone_need_one_to_be_named(self) -> None:
        event = "DTSTART:20260701T220000\nDURATION:PT1H"
        assert problem(event, Wanted.WINDOWS) == "its time is of no zone: --zone would name one"
        found = read(file(event), Wanted.WINDOWS, zone="Europe/Berlin")
        assert found.windows[0].from_us == 1_782_936_000 * US

    def test_of_a_zone_that_nobody_knows_are_refused_by_its_name(self) -> None:
        event = "DTSTART;TZID=Atlantis Standard:20260701T220000\nDURATION:PT1H"
        assert "'Atlantis Standard'" in problem(event, Wanted.WINDOWS)

    @pytest.mark.parametrize(
        "event",
        [
            "DTSTART:20260701T220000Z",
            "DTSTART:20260701T220000Z\nDTEND:20260701T210000Z",
            "DTSTART:20260701T220000Z\nDTEND;VALUE=DATE:20260702",
        ],
    )
    def test_that_last_no_time_are_refused(self, event: str) -> None:
        assert problem(event, Wanted.WINDOWS)


class TestWhatCannotBeKept:
    @pytest.mark.parametrize(
        ("event", "reason"),
        [
            ("SUMMARY:x", "has no DTSTART"),
            ("DTSTART;VALUE=DATE:20261224\nSTATUS:CANCELLED", "is cancelled"),
            ("DTSTART;VALUE=DATE:20261224\nRRULE:FREQ=HOURLY", "recurs more often than daily (HOURLY)"),
            ("DTSTART;VALUE=DATE:20261224\nEXRULE:FREQ=DAILY\nRRULE:FREQ=DAILY", "has an EXRULE, which is not kept"),
        ],
    )
    def test_is_said_in_words(self, event: str, reason: str) -> None:
        assert problem(event) == reason

    @pytest.mark.parametrize(
        "event",
        [
            "DTSTART;VALUE=DATE:20261332",
            "DTSTART;VALUE=DATE:20261224\nRRULE:FREQ=NEVER",
            "DTSTART;VALUE=DATE:20261224\nRRULE:",
            "DTSTART;VALUE=DATE:99999999",
            "DTSTART",
        ],
    )
    def test_a_fault_costs_only_its_own_event(self, event: str) -> None:
        found = read(file(event, "DTSTART;VALUE=DATE:20261225\nSUMMARY:good"))
        assert [type(result) for result in found.results] == [Problem, Kept]
        assert found.days == (DayOff("2026-12-25", "good"),)

    def test_has_its_line(self) -> None:
        found = read(file("SUMMARY:one", "DTSTART;VALUE=DATE:20261225", "SUMMARY:three"))
        assert [(result.line_no, type(result)) for result in found.results] == [(4, Problem), (7, Kept), (10, Problem)]

    def test_a_task_is_no_event(self) -> None:
        (result,) = read(file(before="BEGIN:VTODO\nSUMMARY:x\nEND:VTODO\n")).results
        assert result == Problem(4, "", "a VTODO is no event")

    def test_alarms_are_said_not_to_be_kept(self) -> None:
        (result,) = read(file("DTSTART;VALUE=DATE:20261225\nBEGIN:VALARM\nTRIGGER:-PT5M\nEND:VALARM")).results
        assert isinstance(result, Kept)
        assert result.notes == ("alarms are not kept",)

    def test_too_many_days_are_refused(self) -> None:
        event = "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=DAILY"
        assert "recurs more than 5000 times" in problem_until(event, 2060)


def problem_until(event: str, until: int) -> str:
    (result,) = read(file(event), until=until).results
    assert isinstance(result, Problem)
    return result.reason


class TestFiles:
    def test_that_are_no_calendar_are_refused(self) -> None:
        with pytest.raises(ValueError, match="no iCalendar file"):
            read("0 3 * * * backup\n")

    def test_the_calendars_own_name_is_its_title(self) -> None:
        assert read(file(before="X-WR-CALNAME:Feiertage\n")).title == "Feiertage"

    def test_an_end_that_is_missing_is_a_problem_of_its_event(self) -> None:
        (result,) = read("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\n").results
        assert isinstance(result, Problem)
        assert "without an end" in result.reason

    def test_zones_of_the_files_own_are_understood_by_their_names(self) -> None:
        """As mail programs write them: a name that is not IANA's, and its rules beside it."""
        zone = "BEGIN:VTIMEZONE\nTZID:W. Europe Standard Time\nBEGIN:STANDARD\nDTSTART:16010101T030000\n"
        zone += "TZOFFSETFROM:+0200\nTZOFFSETTO:+0100\nRRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\nEND:STANDARD\n"
        zone += "BEGIN:DAYLIGHT\nDTSTART:16010101T020000\nTZOFFSETFROM:+0100\nTZOFFSETTO:+0200\n"
        zone += "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3\nEND:DAYLIGHT\nEND:VTIMEZONE\n"
        event = "DTSTART;TZID=W. Europe Standard Time:20260701T220000\nDURATION:PT1H"
        found = read(file(event, before=zone), Wanted.WINDOWS)
        assert [window.from_us for window in found.windows] == [1_782_936_000 * US]
