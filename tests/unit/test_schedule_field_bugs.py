"""The cases of the field bug log about cron lines, clock changes and jitter, under the default rules and the others."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from core.errors import Invalid
from core.intervals import Every
from core.marks import Mark
from core.occurrences import Occurrences
from core.schedule import Schedule
from tests.support.instants import rfc3339, us
from tests.support.processor_time import least_ms


@dataclass(frozen=True)
class Case:
    """One line of the log: what follows after an instant, and what follows instead under another rule."""

    id: str
    line: str
    zone: str
    after: str
    want: str
    rules: str = ""


CASES = [
    Case("B01", "30 2 * * *", "America/New_York", "2026-03-08T06:30:00Z",
         "2026-03-08T07:00:00Z 2026-03-09T06:30:00Z 2026-03-10T06:30:00Z"),
    Case("B01", "30 2 * * *", "America/New_York", "2026-03-08T06:30:00Z",
         "2026-03-08T07:30:00Z 2026-03-09T06:30:00Z 2026-03-10T06:30:00Z", "gap=shift"),
    Case("B01", "30 2 * * *", "America/New_York", "2026-03-08T06:30:00Z",
         "2026-03-09T06:30:00Z 2026-03-10T06:30:00Z 2026-03-11T06:30:00Z", "gap=skip"),
    Case("B02", "0 2 * * *", "America/Los_Angeles", "2025-03-08T12:00:00Z",
         "2025-03-09T10:00:00Z 2025-03-10T09:00:00Z"),
    Case("B02", "0 2 * * *", "America/Los_Angeles", "2025-03-08T12:00:00Z",
         "2025-03-09T10:00:00Z 2025-03-10T09:00:00Z", "gap=shift"),
    Case("B02", "0 2 * * *", "America/Los_Angeles", "2025-03-08T12:00:00Z",
         "2025-03-10T09:00:00Z 2025-03-11T09:00:00Z", "gap=skip"),
    Case("B03", "30 2 * * *", "America/Chicago", "2016-03-13T07:55:00Z",
         "2016-03-13T08:00:00Z 2016-03-14T07:30:00Z"),
    Case("B03", "30 2 * * *", "America/Chicago", "2016-03-13T07:55:00Z",
         "2016-03-13T08:30:00Z 2016-03-14T07:30:00Z", "gap=shift"),
    Case("B03", "30 2 * * *", "America/Chicago", "2016-03-13T07:55:00Z",
         "2016-03-14T07:30:00Z 2016-03-15T07:30:00Z", "gap=skip"),
    Case("B05", "0 1-23/2 * * *", "Europe/London", "2024-10-26T23:00:00Z",
         "2024-10-27T00:00:00Z 2024-10-27T03:00:00Z 2024-10-27T05:00:00Z 2024-10-27T07:00:00Z"),
    Case("B05", "0 1-23/2 * * *", "Europe/London", "2024-10-26T23:00:00Z",
         "2024-10-27T01:00:00Z 2024-10-27T03:00:00Z 2024-10-27T05:00:00Z 2024-10-27T07:00:00Z", "repeat=second"),
    Case("B05", "0 1-23/2 * * *", "Europe/London", "2024-10-26T23:00:00Z",
         "2024-10-27T00:00:00Z 2024-10-27T01:00:00Z 2024-10-27T03:00:00Z 2024-10-27T05:00:00Z", "repeat=both"),
    Case("B06", "0 0 * * 1-5", "America/Chicago", "2021-03-12T06:00:00Z",
         "2021-03-15T05:00:00Z 2021-03-16T05:00:00Z"),
    Case("B06", "0 0 * * 0-4", "America/Chicago", "2021-03-12T06:00:00Z",
         "2021-03-14T06:00:00Z 2021-03-15T05:00:00Z 2021-03-16T05:00:00Z"),
    Case("B07", "0 * * * *", "America/Los_Angeles", "2026-11-01T08:00:00Z",
         "2026-11-01T09:00:00Z 2026-11-01T10:00:00Z 2026-11-01T11:00:00Z"),
    Case("B08", "0 12 * * 1", "Europe/Amsterdam", "2013-10-21T10:00:00Z",
         "2013-10-28T11:00:00Z 2013-11-04T11:00:00Z"),
    Case("B11", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z",
         "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z 2026-04-06T15:15:00Z"),
    Case("B11", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z",
         "2026-04-04T15:15:00Z 2026-04-05T15:15:00Z 2026-04-06T15:15:00Z", "repeat=second"),
    Case("B11", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z",
         "2026-04-04T14:45:00Z 2026-04-04T15:15:00Z 2026-04-05T15:15:00Z", "repeat=both"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-23T01:45:10Z",
         "2026-02-23T02:05:00Z 2027-02-23T02:05:00Z"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-23T01:45:10Z",
         "2025-02-23T02:05:00Z 2026-02-23T02:05:00Z", "repeat=second"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-23T01:45:10Z",
         "2025-02-23T02:05:00Z 2026-02-23T02:05:00Z", "repeat=both"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-22T12:00:00Z",
         "2025-02-23T01:05:00Z 2026-02-23T02:05:00Z"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-22T12:00:00Z",
         "2025-02-23T02:05:00Z 2026-02-23T02:05:00Z", "repeat=second"),
    Case("B13", "5 2 23 2 *", "Africa/Casablanca", "2025-02-22T12:00:00Z",
         "2025-02-23T01:05:00Z 2025-02-23T02:05:00Z", "repeat=both"),
    Case("B14", "0 1 4 11 *", "America/Sao_Paulo", "2018-11-04T02:00:00Z",
         "2018-11-04T03:00:00Z 2019-11-04T04:00:00Z"),
    Case("B14", "0 1 * * 0", "America/Sao_Paulo", "2018-11-04T02:00:00Z",
         "2018-11-04T03:00:00Z 2018-11-11T03:00:00Z"),
    Case("B14", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
         "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z 2018-11-06T02:00:00Z"),
    Case("B14", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
         "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z 2018-11-06T02:00:00Z", "gap=shift"),
    Case("B14", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
         "2018-11-05T02:00:00Z 2018-11-06T02:00:00Z 2018-11-07T02:00:00Z", "gap=skip"),
    Case("B16", "* * * * *", "America/Sao_Paulo", "2016-02-21T02:00:00Z",
         "2016-02-21T02:01:00Z 2016-02-21T02:02:00Z"),
    Case("B16", "30 23 * * *", "America/Sao_Paulo", "2016-02-20T12:00:00Z",
         "2016-02-21T01:30:00Z 2016-02-22T02:30:00Z 2016-02-23T02:30:00Z"),
    Case("B16", "30 23 * * *", "America/Sao_Paulo", "2016-02-20T12:00:00Z",
         "2016-02-21T02:30:00Z 2016-02-22T02:30:00Z 2016-02-23T02:30:00Z", "repeat=second"),
    Case("B16", "30 23 * * *", "America/Sao_Paulo", "2016-02-20T12:00:00Z",
         "2016-02-21T01:30:00Z 2016-02-21T02:30:00Z 2016-02-22T02:30:00Z", "repeat=both"),
    Case("B16", "0 0 * * *", "America/Sao_Paulo", "2016-02-20T12:00:00Z",
         "2016-02-21T03:00:00Z 2016-02-22T03:00:00Z"),
    Case("B17", "0 6 * * *", "America/Santiago", "2018-08-12T06:00:00Z",
         "2018-08-12T09:00:00Z 2018-08-13T09:00:00Z"),
    Case("B17", "0 0 * * *", "America/Santiago", "2018-08-11T12:00:00Z",
         "2018-08-12T04:00:00Z 2018-08-13T03:00:00Z"),
    Case("B17", "0 0 * * *", "America/Santiago", "2018-08-11T12:00:00Z",
         "2018-08-12T04:00:00Z 2018-08-13T03:00:00Z", "gap=shift"),
    Case("B17", "0 0 * * *", "America/Santiago", "2018-08-11T12:00:00Z",
         "2018-08-13T03:00:00Z 2018-08-14T03:00:00Z", "gap=skip"),
    Case("B18", "0 12 * * 0", "Europe/Berlin", "2022-03-24T11:00:00Z",
         "2022-03-27T10:00:00Z 2022-04-03T10:00:00Z"),
    Case("B20", "* * * */3 *", "America/New_York", "2015-02-15T05:00:00Z", "2015-04-01T04:00:00Z"),
    Case("B21", "0 20 * * *", "Europe/Paris", "2022-10-29T22:00:00Z",
         "2022-10-30T19:00:00Z 2022-10-31T19:00:00Z 2022-11-01T19:00:00Z"),
    Case("B22", "5 2 * * *", "Europe/Dublin", "2025-10-24T12:00:00Z",
         "2025-10-25T01:05:00Z 2025-10-26T02:05:00Z 2025-10-27T02:05:00Z"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2025-10-25T12:00:00Z",
         "2025-10-26T00:30:00Z 2025-10-27T01:30:00Z"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2025-10-25T12:00:00Z",
         "2025-10-26T01:30:00Z 2025-10-27T01:30:00Z", "repeat=second"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2025-10-25T12:00:00Z",
         "2025-10-26T00:30:00Z 2025-10-26T01:30:00Z", "repeat=both"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2026-03-28T12:00:00Z",
         "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2026-03-28T12:00:00Z",
         "2026-03-29T01:30:00Z 2026-03-30T00:30:00Z", "gap=shift"),
    Case("B22", "30 1 * * *", "Europe/Dublin", "2026-03-28T12:00:00Z",
         "2026-03-30T00:30:00Z 2026-03-31T00:30:00Z", "gap=skip"),
    Case("B24", "0 */2 * * *", "America/Toronto", "2023-03-12T04:00:00Z",
         "2023-03-12T05:00:00Z 2023-03-12T08:00:00Z 2023-03-12T10:00:00Z 2023-03-12T12:00:00Z"),
    Case("B26", "1 12 * * *", "Europe/Rome", "2021-04-08T00:00:00Z", "2021-04-08T10:01:00Z 2021-04-09T10:01:00Z"),
    Case("B27", "0 6 * * *", "America/Los_Angeles", "2025-05-20T00:00:00Z",
         "2025-05-20T13:00:00Z 2025-05-21T13:00:00Z"),
    Case("B28", "0 * * * *", "Asia/Kolkata", "2026-02-17T12:00:00Z", "2026-02-17T12:30:00Z 2026-02-17T13:30:00Z"),
    Case("B28", "0 * * * *", "Asia/Kathmandu", "2026-02-17T12:00:00Z", "2026-02-17T12:15:00Z 2026-02-17T13:15:00Z"),
    Case("B29", "0 9 * * *", "EST", "2020-09-17T00:00:00Z", "2020-09-17T14:00:00Z"),
    Case("B29", "0 9 * * *", "America/New_York", "2020-09-17T00:00:00Z", "2020-09-17T13:00:00Z"),
    Case("B30", "0 9 * * *", "Etc/GMT-3", "2026-01-01T00:00:00Z", "2026-01-01T06:00:00Z"),
    Case("B30", "0 9 * * *", "Etc/GMT+3", "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z"),
    Case("B33", "0 0 31 2 0", "UTC", "2026-01-01T00:00:00Z",
         "2026-02-01T00:00:00Z 2026-02-08T00:00:00Z 2026-02-15T00:00:00Z 2026-02-22T00:00:00Z"),
    Case("B33", "0 0 31 4 0", "UTC", "2026-01-01T00:00:00Z",
         "2026-04-05T00:00:00Z 2026-04-12T00:00:00Z 2026-04-19T00:00:00Z"),
    Case("B34", "0 0 1-31 * 4", "UTC", "2024-12-01T00:00:00Z",
         "2024-12-02T00:00:00Z 2024-12-03T00:00:00Z 2024-12-04T00:00:00Z"),
    Case("B34", "0 0 * * 4", "UTC", "2024-12-01T00:00:00Z",
         "2024-12-05T00:00:00Z 2024-12-12T00:00:00Z 2024-12-19T00:00:00Z"),
    Case("B35", "0 9 29 2 *", "UTC", "2016-02-29T09:00:00Z", "2020-02-29T09:00:00Z 2024-02-29T09:00:00Z"),
    Case("B35", "0 9 29 2 *", "UTC", "2096-02-29T09:00:00Z", "2104-02-29T09:00:00Z"),
    Case("B38", "*/30 * * * * *", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-01T00:00:30Z 2026-01-01T00:01:00Z 2026-01-01T00:01:30Z"),
    Case("B39", "0 22-2 * * *", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-01T01:00:00Z 2026-01-01T02:00:00Z 2026-01-01T22:00:00Z 2026-01-01T23:00:00Z 2026-01-02T00:00:00Z "
         "2026-01-02T01:00:00Z"),
    Case("B39", "0 0 * * sat-sun", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-10T00:00:00Z 2026-01-11T00:00:00Z"),
    Case("B39", "0 0 * * 5-7", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"),
    Case("B39", "0 0 * * FRI-MON", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-05T00:00:00Z 2026-01-09T00:00:00Z"),
    Case("B41", "0 12 15W * *", "UTC", "2024-05-15T12:00:00Z",
         "2024-06-14T12:00:00Z 2024-07-15T12:00:00Z 2024-08-15T12:00:00Z"),
    Case("B41", "0 12 1W * *", "UTC", "2026-07-15T12:00:00Z", "2026-08-03T12:00:00Z"),
    Case("B42", "0 9 * * mon#5", "UTC", "2024-10-22T09:00:00Z",
         "2024-12-30T09:00:00Z 2025-03-31T09:00:00Z 2025-06-30T09:00:00Z"),
    Case("B43", "59 23 L * *", "Europe/Helsinki", "2024-03-20T10:13:14Z",
         "2024-03-31T20:59:00Z 2024-04-30T20:59:00Z"),
    Case("B44", "0 0 */2 * *", "UTC", "2017-01-28T12:00:00Z",
         "2017-01-29T00:00:00Z 2017-01-31T00:00:00Z 2017-02-01T00:00:00Z 2017-02-03T00:00:00Z"),
    Case("B44", "0 1 10/10 * *", "UTC", "2021-05-01T00:00:00Z",
         "2021-05-10T01:00:00Z 2021-05-20T01:00:00Z 2021-05-30T01:00:00Z 2021-06-10T01:00:00Z"),
    Case("B46", "0 4 1 * *", "UTC", "2026-01-02T00:00:00Z", "2026-02-01T04:00:00Z"),
    Case("B46", "0 9 1 3 *", "UTC", "2026-01-02T00:00:00Z", "2026-03-01T09:00:00Z"),
    Case("B115", "0 */5 * * *", "UTC", "2026-01-01T00:00:00Z",
         "2026-01-01T05:00:00Z 2026-01-01T10:00:00Z 2026-01-01T15:00:00Z 2026-01-01T20:00:00Z 2026-01-02T00:00:00Z"),
    Case("B133", "48 17 * * 3", "America/Phoenix", "2021-12-01T12:00:00Z", "2021-12-02T00:48:00Z"),
    Case("B133", "37 20 2 5 *", "America/Santiago", "2022-05-02T12:00:00Z", "2022-05-03T00:37:00Z"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.line}-{case.zone}-{case.rules}")
def test_follows_the_field_bug_log(case: Case) -> None:
    schedule = Schedule(cron=(case.line,), zone=case.zone, **dict(rule.split("=") for rule in case.rules.split()))
    want = [us(text) for text in case.want.split()]
    found = [us(case.after)]
    for _ in want:  # each answer is fed back
        at = schedule.next_after(found[-1])
        assert at is not None
        found.append(at)
    assert [rfc3339(at) for at in found[1:]] == case.want.split()
    assert schedule.between(us(case.after) + 1, want[-1] + 1, 100) == tuple(want), "a range agrees with next"
    assert all(schedule.matches(at) for at in want), "match agrees with next"
    backwards = [schedule.prev_before(at) for at in want[1:]]
    assert backwards == want[:-1], "previous agrees with next"
    occurrences = Occurrences(schedule)
    assert [each.nominal_us for each in occurrences.between(us(case.after) + 1, want[-1] + 1, 100)] == want
    shown = occurrences.entries(us(case.after) + 1, want[-1] + 1, 1000)
    assert [entry.nominal_us for entry in shown if not entry.excluded_by] == want, "the preview agrees with next"
    restarted = Schedule.from_json(schedule.to_json())
    assert [restarted.next_after(at) for at in found[:-1]] == want, "the same after a restart"


def occurrences(line: str, zone: str, from_text: str, to_text: str) -> tuple[int, ...]:
    return Schedule(cron=(line,), zone=zone).between(us(from_text), us(to_text), 1000)


def test_b02_a_time_that_is_skipped_because_it_does_not_exist_is_shown() -> None:
    day = (us("2025-03-09T08:00:00Z"), us("2025-03-10T07:00:00Z"))  # 9 March in Los Angeles
    runs = {}
    for gap in ("end", "shift", "skip"):
        schedule = Schedule(cron=("0 2 * * *",), zone="America/Los_Angeles", gap=gap)  # type: ignore[arg-type]
        (entry,) = Occurrences(schedule).entries(*day, 10)
        assert Mark.GAP in entry.marks
        assert rfc3339(entry.nominal_us) == "2025-03-09T10:00:00Z"
        runs[gap] = entry.excluded_by == ""
    assert runs == {"end": True, "shift": True, "skip": False}
    assert entry.excluded_by == "gap rule skip"
    assert "nonexistent local time" in entry.notes[0]


def test_b03_a_line_whose_time_is_missing_does_not_disturb_another_one() -> None:
    assert len(occurrences("*/5 * * * *", "UTC", "2016-03-13T07:55:00.000001Z", "2016-03-13T09:00:01Z")) == 13


def test_b07_hourly_runs_follow_real_hours_on_both_change_days() -> None:
    long_day = occurrences("0 * * * *", "America/Los_Angeles", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z")
    short_day = occurrences("0 * * * *", "America/Los_Angeles", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z")
    assert (len(long_day), len(short_day)) == (25, 23)


def test_b08_one_run_on_the_day_after_the_change() -> None:
    day = occurrences("0 12 * * 1", "Europe/Amsterdam", "2013-10-28T00:00:00Z", "2013-10-29T00:00:00Z")
    assert [rfc3339(at) for at in day] == ["2013-10-28T11:00:00Z"]


def test_b17_a_missing_midnight_is_answered_at_once() -> None:
    def ask() -> None:
        for gap in ("end", "shift", "skip"):
            Schedule(cron=("0 0 * * *",), zone="America/Santiago", gap=gap).next_after(us("2018-08-11T12:00:00Z"))  # type: ignore[arg-type]

    assert least_ms(ask) < 500, "the figure is 50 ms"


def test_b22_the_offset_of_yesterday_is_not_kept() -> None:
    schedule = Schedule(cron=("5 2 * * *",), zone="Europe/Dublin")
    assert schedule.next_after(us("2026-03-28T12:00:00Z")) == us("2026-03-29T01:05:00Z")
    assert schedule.next_after(us("2025-10-26T12:00:00Z")) == us("2025-10-27T02:05:00Z")


def test_b26_b27_a_schedule_knows_no_zone_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        rome = occurrences("1 12 * * *", "Europe/Rome", "2021-04-08T00:00:00Z", "2021-04-09T00:00:00Z")
        assert [rfc3339(at) for at in rome] == ["2021-04-08T10:01:00Z"]
        angeles = occurrences("0 6 * * *", "America/Los_Angeles", "2025-05-20T00:00:00Z", "2025-05-22T00:00:00Z")
        assert len(angeles) == 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_b37_previous_looks_strictly_before() -> None:
    schedule = Schedule(cron=("0 10 * * *",))
    fire, day_before = us("2018-01-02T10:00:00Z"), us("2018-01-01T10:00:00Z")
    assert schedule.prev_before(us("2018-01-02T10:00:00.500Z")) == fire
    assert schedule.prev_before(fire + 1) == fire
    assert schedule.prev_before(fire) == day_before
    assert schedule.next_after(fire) == us("2018-01-03T10:00:00Z")
    assert schedule.next_after(fire - 1) == fire


def test_b38_a_year_in_the_sixth_field_is_never_read_as_seconds() -> None:
    with pytest.raises(Invalid) as refusal:
        Schedule(cron=("0 6 2 2 * 2030",))
    assert refusal.value.field == "schedule.cron[0].day_of_week"
    assert Schedule(cron=("0 0 6 2 2 ? 2030",)).between(0, us("2199-01-01T00:00:00Z"), 9) == (
        us("2030-02-02T06:00:00Z"),
    )


def test_b39_a_wrapped_range_of_hours_never_covers_the_day() -> None:
    day = occurrences("0 22-2 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert [at // 3_600_000_000 % 24 for at in day] == [0, 1, 2, 22, 23]


def test_b46_a_one_off_years_ahead_waits() -> None:
    once = Schedule(at_us=(us("2031-01-01T00:00:00Z"),))
    assert once.next_after(us("2026-01-02T00:00:00Z")) == us("2031-01-01T00:00:00Z")
    assert once.next_after(us("2031-01-01T00:00:00Z")) is None


@pytest.mark.parametrize("offset_us", [0, 1, 17_300_000, 120_000_000])
def test_b47_jitter_never_runs_before_the_slot_and_never_twice(offset_us: int) -> None:
    hourly = Occurrences(Schedule(cron=("0 * * * *",), jitter_us=120_000_000), offset_us=offset_us)
    start = us("2026-01-01T00:00:00Z")
    fired, at = [], hourly.next_after(start - 1)
    while at is not None and at.nominal_us < start + 24 * 3_600_000_000:
        fired.append(at)
        at = hourly.next_after(at.nominal_us)  # from the slot, not from the delayed start
    assert [each.nominal_us for each in fired] == [start + hour * 3_600_000_000 for hour in range(24)]
    assert all(0 <= each.due_us - each.nominal_us <= 120_000_000 for each in fired)


@pytest.mark.parametrize("offset_us", [0, 30_000_000, 59_000_000])
def test_b49_jitter_loses_no_slot_and_stays_before_the_end(offset_us: int) -> None:
    start = us("2026-01-01T00:00:00Z")
    minutely = Schedule(cron=("* * * * *",), jitter_us=59_000_000)
    hour = Occurrences(minutely, offset_us=offset_us).between(start, start + 3_600_000_000, 100)
    assert [each.nominal_us for each in hour] == [start + minute * 60_000_000 for minute in range(60)]
    end = us("2026-01-01T00:30:00Z")
    bounded = Occurrences(replace(minutely, end_us=end), offset_us=offset_us).between(start, start + 3_600_000_000, 100)
    assert [each.nominal_us for each in bounded] == [start + minute * 60_000_000 for minute in range(30)], (
        "00:29 is last"
    )
    assert all(each.nominal_us <= each.due_us < end for each in bounded)
    ends_early = Occurrences(replace(minutely, end_us=end - 50_000_000), offset_us=offset_us)
    last = ends_early.prev_before(end)
    assert last is not None
    assert last.nominal_us <= last.due_us < end - 50_000_000, "cut, not lost"


def test_b53_an_interval_keeps_its_anchor() -> None:
    daily = Schedule(every=(Every(elapsed_us=86_400_000_000),), anchor_us=us("2018-11-15T00:00:00Z"))
    assert daily.prev_before(us("2018-11-19T09:00:00Z")) == us("2018-11-19T00:00:00Z")
    assert daily.next_after(us("2018-11-19T09:00:00Z")) == us("2018-11-20T00:00:00Z")


def test_b56_a_late_run_does_not_move_the_interval() -> None:
    daily = Schedule(every=(Every(elapsed_us=86_400_000_000),), anchor_us=us("2026-01-01T23:55:00Z"))
    assert daily.next_after(us("2026-01-04T00:05:00Z")) == us("2026-01-04T23:55:00Z")


def test_b57_an_interval_longer_than_the_time_between_restarts_fires() -> None:
    registered = us("2026-01-01T05:17:03.250Z")
    text = Schedule(cron=("@every 24h",), anchor_us=registered).to_json()
    fired = []
    for restart in range(12):  # a process that lives six hours, twelve times in a row
        from_us = registered + restart * 6 * 3_600_000_000
        fired += Schedule.from_json(text).between(from_us + 1, from_us + 6 * 3_600_000_000 + 1, 10)
    assert fired == [registered + days * 86_400_000_000 for days in (1, 2, 3)]


def test_b05_b21_feeding_answers_back_and_asking_anew_agree() -> None:
    schedule = Schedule(cron=("0 20 * * *",), zone="Europe/Paris")
    walked = schedule.between(us("2022-10-29T22:00:00Z"), us("2022-11-10T00:00:00Z"), 100)
    assert list(walked) == sorted(set(walked))
    fresh = [Schedule(cron=("0 20 * * *",), zone="Europe/Paris").next_after(at - 1) for at in walked]
    assert fresh == list(walked)
