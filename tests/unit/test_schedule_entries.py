"""What previews and explanations say of an instant: marks, notes, what took it away, and why it is none."""

from __future__ import annotations

from core.calendars import CalendarContent, DayOff, DaysOff, Window, WindowAction, Windows
from core.intervals import Every
from core.marks import Entry, Mark
from core.occurrences import Occurrences
from core.schedule import Schedule
from tests.support.instants import rfc3339, us

HOUR_US = 3_600_000_000


def entries(schedule: Schedule, from_text: str, to_text: str, **more: object) -> list[Entry]:
    occurrences = Occurrences(schedule, **more)  # type: ignore[arg-type]
    found = occurrences.entries(us(from_text), us(to_text), 1000)
    assert [at.nominal_us for at in found] == sorted({at.nominal_us for at in found}), "one entry for each instant"
    counted = [(entry.nominal_us, entry.due_us) for entry in found if not entry.excluded_by]
    assert counted == list(occurrences.between(us(from_text), us(to_text), 1000)), "what counts is what occurs"
    for entry in found:
        assert (Mark.EXCLUDED in entry.marks) == bool(entry.excluded_by)
        assert not entry.marks or entry.notes, "every mark is explained"
    return found


def only(schedule: Schedule, from_text: str, to_text: str, **more: object) -> Entry:
    (entry,) = entries(schedule, from_text, to_text, **more)
    return entry


def new_york(line: str, **rules: str) -> Schedule:
    return Schedule(cron=(line,), zone="America/New_York", **rules)  # type: ignore[arg-type]


def test_an_ordinary_occurrence_has_no_marks() -> None:
    entry = only(new_york("30 2 * * *"), "2026-03-07T00:00:00Z", "2026-03-08T00:00:00Z")
    at = us("2026-03-07T07:30:00Z")
    assert entry == Entry(at, at, "2026-03-07T02:30:00-05:00", (), (), "")


def test_a_missing_wall_time_says_what_the_gap_rule_made_of_it() -> None:
    day = ("2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z")
    end = only(new_york("30 2 * * *"), *day)
    assert (end.local, end.marks) == ("2026-03-08T03:00:00-04:00", (Mark.GAP,))
    assert end.notes == (
        "02:30 does not exist on 2026-03-08, where the clock goes from 02:00 to 03:00: "
        "gap rule end runs it at 03:00, the first instant after the gap",
    )
    shift = only(new_york("30 2 * * *", gap="shift"), *day)
    assert (shift.local, shift.marks) == ("2026-03-08T03:30:00-04:00", (Mark.GAP,))
    assert "gap rule shift runs it at 03:30" in shift.notes[0]
    skip = only(new_york("30 2 * * *", gap="skip"), *day)
    assert (skip.local, skip.marks) == ("2026-03-08T03:00:00-04:00", (Mark.GAP, Mark.EXCLUDED))
    assert skip.excluded_by == "gap rule skip"
    assert skip.notes == (
        "02:30 does not exist on 2026-03-08, where the clock goes from 02:00 to 03:00: "
        "nonexistent local time, which gap rule skip leaves out",
    )


def test_several_missing_times_are_named_together_and_by_their_lines() -> None:
    schedule = Schedule(cron=("0,30 2 * * *", "0 3 * * *"), zone="America/New_York", gap="skip")  # type: ignore[arg-type]
    entry = only(schedule, "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z")
    assert (entry.excluded_by, entry.marks) == ("", (Mark.GAP,)), "another line runs at that instant"
    assert entry.notes[0].startswith("line 0,30 2 * * *: 02:00, 02:30 do not exist on 2026-03-08")


def test_both_passes_of_a_repeated_time_are_shown() -> None:
    day = ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z")
    passes = ("2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00")
    for rule, left_out in (("first", 1), ("second", 0)):
        found = entries(new_york("30 1 * * *", repeat=rule), *day)
        assert tuple(entry.local for entry in found) == passes
        assert found[left_out].excluded_by == f"repeat rule {rule}"
        assert found[1 - left_out].excluded_by == ""
        assert all(Mark.REPEATED in entry.marks for entry in found)
        assert "this is the first pass" in found[0].notes[0]
        assert "this is the second pass" in found[1].notes[0]
    both = entries(new_york("30 1 * * *", repeat="both"), *day)
    assert [entry.excluded_by for entry in both] == ["", ""]
    hourly = entries(new_york("0 * * * *"), "2026-11-01T05:00:00Z", "2026-11-01T08:00:00Z")
    assert [Mark.REPEATED in entry.marks for entry in hourly] == [True, True, False]
    assert "elapsed time is followed" in hourly[0].notes[0]


def test_passes_of_calendar_intervals_are_shown_from_their_anchor_on() -> None:
    anchor = us("2026-10-31T05:30:00.5Z")
    daily = Schedule(every=(Every(days=1, anchor_us=anchor),), zone="America/New_York")
    found = entries(daily, "2025-10-30T00:00:00Z", "2026-11-02T00:00:00Z")
    assert [(entry.local[:21], entry.excluded_by) for entry in found] == [
        ("2026-10-31T01:30:00.5", ""), ("2026-11-01T01:30:00.5", ""), ("2026-11-01T01:30:00.5", "repeat rule first"),
    ]  # fmt: skip


def test_what_is_taken_away_says_by_what() -> None:
    schedule = Schedule(
        cron=("0 */4 * * *",),
        exclude_dates=("2026-06-02", "*-06-03"),
        exclude_cron=("* 4-7 * * *",),
        exclude_calendars=("holidays",),
        windows=("patches",),
    )
    contents: dict[str, CalendarContent] = {
        "holidays": DaysOff((6,), (DayOff("2026-06-04/2026-06-05", "Founders' days"), DayOff("2026-06-07"))),
        "patches": Windows(
            WindowAction.SKIP,
            (
                Window(cron="0 8 * * *", duration_us=HOUR_US, name="morning"),
                Window(from_us=us("2026-06-01T11:00:00Z"), to_us=us("2026-06-01T13:00:00Z")),
            ),
        ),
    }
    found = entries(schedule, "2026-06-01T00:00:00Z", "2026-06-08T00:00:00Z", contents=contents)
    by = {(rfc3339(entry.nominal_us) or "")[8:13]: entry.excluded_by for entry in found}
    assert len(found) == 7 * 6
    assert [by[f"01T{hour:02}"] for hour in range(0, 24, 4)] == [
        "", "line * 4-7 * * *", "window patches (morning)", "window patches", "", "",
    ]  # fmt: skip
    assert [by[f"{day:02}T00"] for day in range(2, 8)] == [
        "date 2026-06-02", "date *-06-03", "calendar holidays (Founders' days)", "calendar holidays (Founders' days)",
        "calendar holidays (Saturday)", "calendar holidays (2026-06-07)",
    ]  # fmt: skip
    assert next(entry for entry in found if entry.excluded_by == "window patches").notes == (
        "excluded by window patches",
    )


def test_deferral_and_jitter_are_told() -> None:
    schedule = Schedule(
        cron=("0 3 * * *",),
        zone="Europe/Berlin",
        windows=("nights",),
        jitter_us=HOUR_US,
        end_us=us("2026-06-02T03:30:30Z"),
    )
    night = Windows(
        WindowAction.DEFER, (Window(cron="0 2 * * *", zone="Europe/Berlin", duration_us=3 * HOUR_US, name="batch"),)
    )
    day = ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z")
    put_off = only(schedule, *day, contents={"nights": night}, offset_us=90_000_000)
    assert (put_off.marks, rfc3339(put_off.due_us)) == ((Mark.DEFERRED, Mark.JITTERED), "2026-06-01T03:01:30Z")
    assert put_off.notes == (
        "in window nights (batch), and put off until it ends at 2026-06-01T05:00:00+02:00",
        "put off by 1 min 30 s: the job's share of the jitter",
    )
    cut = only(schedule, "2026-06-02T00:00:00Z", "2026-06-03T00:00:00Z", contents={"nights": night}, offset_us=HOUR_US)
    assert rfc3339(cut.due_us) == "2026-06-02T03:30:29.999999Z"
    assert "cut to stay before the schedule's end" in cut.notes[1]
    draft = only(schedule, *day)
    assert (draft.marks, draft.due_us) == ((Mark.JITTERED,), draft.nominal_us)
    assert draft.notes == ("to be put off by up to 1 h of jitter",)


def test_deferral_for_good_is_told() -> None:
    def by(content: Windows, end_us: int | None = None) -> str:
        schedule = Schedule(cron=("0 3 * * *",), windows=("w", "v"), end_us=end_us)
        skip = Windows(WindowAction.SKIP, (Window(cron="0 5 * * *", duration_us=HOUR_US),))
        day = ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z")
        return only(schedule, *day, contents={"w": content, "v": skip}).excluded_by

    two_hours = Windows(WindowAction.DEFER, (Window(cron="0 3 * * *", duration_us=2 * HOUR_US, name="long"),))
    assert by(two_hours) == "window w (long), which ends inside window v"
    assert by(two_hours, us("2026-06-01T05:00:00Z")) == "window w (long), which ends at the schedule's end or later"
    endless = Windows(WindowAction.DEFER, (Window(cron="0 0 * * *", duration_us=24 * HOUR_US),))
    assert by(endless) == "window w, which has no end"


def test_entries_are_bounded_and_limited() -> None:
    schedule = Schedule(cron=("0 * * * *",), start_us=us("2026-06-01T02:00:00Z"), end_us=us("2026-06-01T09:00:00Z"))
    whole = ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z")
    assert len(entries(schedule, *whole)) == 7
    assert len(entries(schedule, *whole, last_us=us("2026-06-01T04:00:00Z"))) == 3
    assert len(Occurrences(schedule).entries(us(whole[0]), us(whole[1]), 2)) == 2


def why(schedule: Schedule, at: str, last: str | None = None) -> list[str]:
    return Occurrences(schedule, last_us=None if last is None else us(last)).mismatches(us(at))


def test_each_part_says_why_it_does_not_name_an_instant() -> None:
    schedule = Schedule(
        at_us=(us("2026-06-01T00:00:00Z"),),
        every=(Every(elapsed_us=2 * HOUR_US), Every(months=2)),
        cron=("30 9 * * 1-5", "0 9,21 * * *", "*/7 * * * * *", "@every 36h"),
        anchor_us=us("2026-06-01T00:00:00Z"),
        zone="Europe/Berlin",
    )
    assert why(schedule, "2026-06-06T07:00:01Z") == [  # a Saturday, 09:00:01
        "single instants: it names exact instants: 2026-06-01T02:00:00+02:00 before this one, nothing after it",
        "interval every 2 h: it names exact instants: 2026-06-06T08:00:00+02:00 before this one, "
        "2026-06-06T10:00:00+02:00 after it",
        "interval every 2 months: it names the wall time of its anchor: 2026-06-01T02:00:00+02:00 before this one, "
        "2026-08-01T02:00:00+02:00 after it",
        "line 30 9 * * 1-5: 2026-06-06, a Saturday, is not one of its days",
        "line 0 9,21 * * *: its second is 0, not 1",
        "line */7 * * * * *: its second is 0, 7, 14, 21, 28, 35, 42, 49, 56, not 1",
        "line @every 36h: it names exact instants: 2026-06-05T14:00:00+02:00 before this one, "
        "2026-06-07T02:00:00+02:00 after it",
    ]
    assert why(Schedule(cron=("0 9 * * *",)), "2026-06-06T10:00:00Z") == ["line 0 9 * * *: its hour is 9, not 10"]
    assert why(Schedule(cron=("0 9 * * *",)), "2026-06-06T09:01:00Z") == ["line 0 9 * * *: its minute is 0, not 1"]
    assert why(Schedule(cron=("0 9 * * *",)), "2026-06-06T09:00:00.5Z") == ["line 0 9 * * *: it names whole seconds"]
    assert why(Schedule(cron=("0 9 * * *",)), "2026-06-06T09:00:00Z") == []


def test_the_other_pass_and_the_bounds_are_told() -> None:
    assert why(new_york("30 1 * * *"), "2026-11-01T06:30:00Z") == [
        "line 30 1 * * *: 01:30 comes twice, this is the second pass, and repeat rule first runs the other"
    ]
    bounded = Schedule(cron=("0 9 * * *",), start_us=us("2026-06-02T00:00:00Z"), end_us=us("2026-07-01T00:00:00Z"))
    assert why(bounded, "2026-06-01T09:00:00Z") == ["the schedule starts at 2026-06-02T00:00:00+00:00"]
    assert why(bounded, "2026-07-01T09:00:00Z") == ["the schedule ends at 2026-07-01T00:00:00+00:00"]
    assert why(bounded, "2026-06-05T09:00:00Z", "2026-06-04T09:00:00Z") == [
        "the last occurrence that its number of runs allows is at 2026-06-04T09:00:00+00:00"
    ]
