"""The Schedule value: kinds, bounds, unions, JSON, and the bound on the work that any input can cause."""

from __future__ import annotations

import contextlib
import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.civil import END_US
from core.errors import Invalid
from core.firetimes import GapRule, RepeatRule
from core.intervals import Every
from core.schedule import Schedule
from tests.support.instants import rfc3339, us
from tests.support.processor_time import least_ms

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
NOON = us("2026-06-01T12:00:00Z")


def refused(**parts: object) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        Schedule(**parts)  # type: ignore[arg-type]
    return refusal.value


def test_a_one_off_fires_once() -> None:
    once = Schedule(at_us=(NOON,))
    assert (once.next_after(NOON - 1), once.next_after(NOON)) == (NOON, None)
    assert (once.prev_before(NOON + 1), once.prev_before(NOON)) == (NOON, None)
    assert once.matches(NOON)
    assert not once.matches(NOON + 1)
    assert once.between(0, END_US, 10) == (NOON,)
    assert not once.recurring


def test_an_interval_counts_elapsed_time_from_its_anchor() -> None:
    every = Schedule(every=(Every(elapsed_us=90_000_000),), anchor_us=NOON)
    assert every.next_after(0) == NOON, "the anchor is the first occurrence"
    assert every.between(NOON, NOON + 270_000_001, 10) == tuple(NOON + n * 90_000_000 for n in range(4))
    assert every.prev_before(NOON) is None
    assert every.prev_before(NOON + 1) == NOON
    assert every.prev_before(NOON + 90_000_000) == NOON
    assert every.recurring


def test_every_lines_count_from_the_anchor_beside_other_lines() -> None:
    both = Schedule(cron=("@every 8h", "0 0 * * *"), anchor_us=NOON)
    assert [rfc3339(at) for at in both.between(NOON, NOON + 2 * DAY_US, 10)] == [
        "2026-06-01T12:00:00Z", "2026-06-01T20:00:00Z", "2026-06-02T00:00:00Z", "2026-06-02T04:00:00Z",
        "2026-06-02T12:00:00Z", "2026-06-02T20:00:00Z", "2026-06-03T00:00:00Z", "2026-06-03T04:00:00Z",
    ]  # fmt: skip


def test_equal_instants_of_several_lines_are_one_occurrence() -> None:
    union = Schedule(cron=("0 */6 * * *", "0 0,12 * * *", "30 12 * * *"))
    hours = [
        (at - us("2026-06-01T00:00:00Z")) / HOUR_US
        for at in union.between(us("2026-06-01T00:00:00Z"), us("2026-06-02T00:00:00Z"), 10)
    ]
    assert hours == [0, 6, 12, 12.5, 18]
    assert union.prev_before(us("2026-06-02T00:00:00Z")) == us("2026-06-01T18:00:00Z")


def test_several_missing_times_of_one_gap_are_one_occurrence() -> None:
    half_hours = Schedule(cron=("0,30 2,3 * * *",), zone="America/New_York")
    assert [rfc3339(at) for at in half_hours.between(us("2026-03-08T05:00:00Z"), us("2026-03-08T12:00:00Z"), 9)] == [
        "2026-03-08T07:00:00Z",  # 02:00 and 02:30 do not exist, and 03:00 is the same instant
        "2026-03-08T07:30:00Z",
    ]


def test_a_skipped_day_fires_at_its_end_or_not_at_all() -> None:
    rules = {
        gap: [rfc3339(at) for at in Schedule(cron=("0 10 * * *",), zone="Pacific/Apia", gap=gap).between(
            us("2011-12-29T00:00:00Z"), us("2012-01-01T00:00:00Z"), 9)]
        for gap in GapRule
    }  # fmt: skip
    before, after = "2011-12-29T20:00:00Z", ["2011-12-30T20:00:00Z", "2011-12-31T20:00:00Z"]
    assert rules == {
        "end": [before, "2011-12-30T10:00:00Z", *after],  # 30 December was left out
        "shift": [before, *after],  # 10:00 on the 30th, carried over a day, is 10:00 on the 31st
        "skip": [before, *after],
    }


def test_bounds_include_the_start_and_exclude_the_end() -> None:
    bounded = Schedule(cron=("0 * * * *",), start_us=NOON, end_us=NOON + 3 * HOUR_US)
    want = (NOON, NOON + HOUR_US, NOON + 2 * HOUR_US)
    assert bounded.between(0, END_US, 10) == want
    assert bounded.next_after(-5) == bounded.next_after(0) == NOON
    assert bounded.next_after(want[-1]) is None
    assert bounded.prev_before(END_US) == want[-1]
    assert bounded.prev_before(NOON + 1) == NOON
    assert bounded.prev_before(NOON) is None
    assert not bounded.matches(NOON - HOUR_US)
    assert not bounded.matches(NOON + 3 * HOUR_US)


def test_bounds_between_whole_seconds() -> None:
    bounded = Schedule(cron=("* * * * * *",), start_us=NOON + 1, end_us=NOON + 2_000_001)
    assert bounded.between(0, END_US, 10) == (NOON + 1_000_000, NOON + 2_000_000)


def test_a_range_is_half_open_and_limited() -> None:
    hourly = Schedule(cron=("0 * * * *",))
    assert hourly.between(NOON, NOON + 2 * HOUR_US, 10) == (NOON, NOON + HOUR_US)
    assert hourly.between(NOON, END_US, 1) == (NOON,)
    assert hourly.between(NOON, END_US, 0) == ()
    assert hourly.between(NOON, NOON, 10) == ()


def test_nothing_happens_before_1970_nor_after_2199() -> None:
    yearly = Schedule(cron=("0 0 1 1 *",), zone="Asia/Tokyo")
    assert yearly.next_after(-(10**15)) == us("1970-12-31T15:00:00Z"), "1970 began before the epoch in Tokyo"
    assert yearly.prev_before(10**18) == us("2198-12-31T15:00:00Z")
    assert yearly.next_after(us("2198-12-31T15:00:00Z")) is None
    assert yearly.prev_before(us("1970-12-31T15:00:00Z")) is None
    assert Schedule(every=(Every(elapsed_us=DAY_US),), anchor_us=END_US - 1).between(0, END_US * 2, 9) == (END_US - 1,)


def test_empty_zone_is_utc_and_is_echoed() -> None:
    schedule = Schedule(cron=(" 0\t 9  * * *",), zone="")
    assert schedule.zone == "UTC"
    assert schedule.cron == ("0 9 * * *",)
    assert schedule == Schedule(cron=("0 9 * * *",))


def test_rules_can_be_given_as_words() -> None:
    schedule = Schedule(cron=("0 9 * * *",), gap="shift", repeat="both")  # type: ignore[arg-type]
    assert (schedule.gap, schedule.repeat) == (GapRule.SHIFT, RepeatRule.BOTH)


def test_is_immutable_and_usable_as_a_key() -> None:
    schedule = Schedule(cron=("0 9 * * *",))
    with pytest.raises(FrozenInstanceError):
        schedule.zone = "Europe/Berlin"  # type: ignore[misc]
    assert {schedule: 1}[Schedule(cron=("0 9 * * *",))] == 1


def test_an_anchor_is_given_once() -> None:
    unanchored = {"cron": ("@every 1h",)}
    assert refused(**unanchored).field == "schedule.anchor_us"
    assert Schedule(cron=("0 9 * * *",)).anchored(5).anchor_us == 5
    assert Schedule(every=(Every(elapsed_us=HOUR_US),), anchor_us=7).anchored(5).anchor_us == 7


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({}, "schedule"),
        ({"cron": ()}, "schedule"),
        ({"at_us": 1}, "schedule.at_us"),
        ({"at_us": (-1,)}, "schedule.at_us[0]"),
        ({"at_us": (END_US,)}, "schedule.at_us[0]"),
        ({"at_us": (1, 1.5)}, "schedule.at_us[1]"),
        ({"at_us": (True,)}, "schedule.at_us[0]"),
        ({"at_us": ("1",)}, "schedule.at_us[0]"),
        ({"at_us": tuple(range(65))}, "schedule.at_us"),
        ({"every": (DAY_US,), "anchor_us": 0}, "schedule.every[0]"),
        ({"every": (Every(),), "anchor_us": 0}, "schedule.every[0]"),
        ({"every": (Every(days=1, months=1),), "anchor_us": 0}, "schedule.every[0]"),
        ({"every": (Every(elapsed_us=999_999),), "anchor_us": 0}, "schedule.every[0].elapsed_us"),
        ({"every": (Every(elapsed_us=366 * DAY_US + 1),), "anchor_us": 0}, "schedule.every[0].elapsed_us"),
        ({"every": (Every(elapsed_us=1.5),), "anchor_us": 0}, "schedule.every[0].elapsed_us"),  # type: ignore[arg-type]
        ({"every": (Every(days=1), Every(days=0)), "anchor_us": 0}, "schedule.every[1].days"),
        ({"every": (Every(days=7 * 3660 + 1),), "anchor_us": 0}, "schedule.every[0].days"),
        ({"every": (Every(months=1201),), "anchor_us": 0}, "schedule.every[0].months"),
        ({"every": (Every(days=1, anchor_us=-1),)}, "schedule.every[0].anchor_us"),
        ({"every": (Every(days=1),)}, "schedule.anchor_us"),
        ({"every": (Every(days=1),), "anchor_us": -1}, "schedule.anchor_us"),
        ({"every": (Every(days=1),) * 17, "anchor_us": 0}, "schedule.every"),
        ({"cron": ("0 9 * * *", "0 9 * *")}, "schedule.cron[1]"),
        ({"cron": ("0 25 * * *",)}, "schedule.cron[0].hour"),
        ({"cron": "0 9 * * *"}, "schedule.cron"),
        ({"cron": (b"0 9 * * *",)}, "schedule.cron[0]"),
        ({"cron": ("0 9 * * *",) * 17}, "schedule.cron"),
        ({"cron": ("0 9 * * *",), "zone": "PST"}, "schedule.zone"),
        ({"cron": ("0 9 * * *",), "zone": None}, "schedule.zone"),
        ({"at_us": (1,), "zone": "Mars/Olympus"}, "schedule.zone"),
        ({"cron": ("0 9 * * *",), "gap": "jump"}, "schedule.gap"),
        ({"cron": ("0 9 * * *",), "repeat": 1}, "schedule.repeat"),
        ({"cron": ("0 9 * * *",), "start_us": 5, "end_us": 5}, "schedule.end_us"),
        ({"cron": ("0 9 * * *",), "start_us": -5}, "schedule.start_us"),
        ({"cron": ("0 9 * * *",), "start_us": NOON, "end_us": NOON + HOUR_US}, "schedule"),
        ({"at_us": (NOON,), "end_us": NOON}, "schedule"),
        ({"cron": ("0 H * * *",)}, "schedule.cron[0].hour"),
        ({"cron": ("0 9 * * *",), "hash_key": "k" * 257}, "schedule.hash_key"),
        ({"cron": ("0 H * * *",), "hash_key": "\ud800"}, "schedule.hash_key"),
        ({"cron": ("0 30 2 8 3 ? 2026",), "zone": "America/New_York", "gap": "skip"}, "schedule"),
        ({"cron": ("0 9 * * *",), "max_runs": -1}, "schedule.max_runs"),
        ({"cron": ("0 9 * * *",), "max_runs": 100_001}, "schedule.max_runs"),
        ({"cron": ("0 9 * * *",), "max_runs": None}, "schedule.max_runs"),
        ({"cron": ("0 9 * * *",), "jitter_us": DAY_US + 1}, "schedule.jitter_us"),
        ({"cron": ("0 9 * * *",), "jitter_us": -1}, "schedule.jitter_us"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-12-24", "24.12.2026")}, "schedule.exclude_dates[1]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-02-30",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-1-03",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-W01-1",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("*-13-01",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2200-01-01",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-12-24/2026-12-23",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-12-24/",)}, "schedule.exclude_dates[0]"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("2026-12-24",) * 257}, "schedule.exclude_dates"),
        ({"cron": ("0 9 * * *",), "exclude_cron": ("0 9 1 * *", "0 9 1 13 *")}, "schedule.exclude_cron[1].month"),
        ({"cron": ("0 9 * * *",), "exclude_cron": ("@every 2h",)}, "schedule.exclude_cron[0]"),
        ({"cron": ("0 9 * * *",), "exclude_cron": ("0 9 1 * *",) * 9}, "schedule.exclude_cron"),
        ({"cron": ("0 9 * * *",), "exclude_cron": ("0 9 * * *",)}, "schedule"),
        ({"cron": ("0 9 * * *",), "exclude_dates": ("1970-01-01/2199-12-31",)}, "schedule"),
        ({"cron": ("* * * * *",), "exclude_cron": ("*/2 * * * *", "1-59/2 * * * *")}, "schedule"),
        ({"cron": ("0 9 * * *",), "exclude_calendars": ("a", "b", "a")}, "schedule.exclude_calendars[2]"),
        ({"cron": ("0 9 * * *",), "exclude_calendars": ("not a name",)}, "schedule.exclude_calendars[0]"),
        ({"cron": ("0 9 * * *",), "windows": tuple("abcdefghi")}, "schedule.windows"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refuses_and_names_the_field(parts: dict[str, object], field: str) -> None:
    assert refused(**parts).field == field


def test_json_is_canonical_and_comes_back_equal() -> None:
    assert Schedule(cron=("0  9 * * *",)).to_json() == '{"cron":["0 9 * * *"]}'
    full = Schedule(
        at_us=(NOON - 1, 7),
        every=(Every(days=2), Every(months=3, anchor_us=9)),
        cron=("H 9 * * *", "@every 2h"),
        exclude_dates=("2026-05-01", "*-12-25"),
        exclude_cron=("* 12  * * *",),
        exclude_calendars=("holidays",),
        windows=("patches", "nights"),
        max_runs=10,
        jitter_us=1,
        zone="Europe/Berlin",
        anchor_us=3,
        start_us=1,
        end_us=NOON,
        gap=GapRule.SKIP,
        repeat=RepeatRule.BOTH,
        hash_key="team/report",
    )
    for schedule in (full, Schedule(at_us=(NOON,)), Schedule(every=(Every(elapsed_us=DAY_US),), anchor_us=0)):
        again = Schedule.from_json(schedule.to_json())
        assert again == schedule
        assert again.to_json() == schedule.to_json()
    assert json.loads(full.to_json())["gap"] == "skip"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "schedule"), ("null", "schedule"), ("[]", "schedule"), ("{", "schedule"), ("[" * 100_000, "schedule"),
        ('{"at_us":[1],"at_us":[2]}', "schedule"), ('{"at_us":[NaN]}', "schedule"),
        ('{"at_us":[1e3]}', "schedule.at_us[0]"),
        ('{"at_us":1}', "schedule.at_us"), ('{"every_us":1}', "schedule.every_us"),
        ('{"every":{"days":1}}', "schedule.every"), ('{"every":[1]}', "schedule.every[0]"),
        ('{"every":[{"weeks":1}]}', "schedule.every[0]"),
        ('{"every":[{"days":1,"anchor_us":0},{"days":"1"}]}', "schedule.every[1].days"),
        ('{"crom":["* * * * *"]}', "schedule.crom"), ('{"\\ud800":1}', r"schedule.\ud800"),
        ('{"cron":"* * * * *"}', "schedule.cron"),
        ('{"cron":[["* * * * *"]]}', "schedule.cron[0]"), ('{"cron":["x"]}', "schedule.cron[0]"),
        ('{"cron":["* * * * *"],"zone":"Nowhere/Bad"}', "schedule.zone"),
        ('{"cron":["* * * * *"],"zone":["UTC"]}', "schedule.zone"),
        ('{"cron":["* * * * *"],"gap":[]}', "schedule.gap"), ('{"at_us":[' + "9" * 5000 + "]}", "schedule"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_json_is_read_strictly(text: str, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Schedule.from_json(text)
    assert refusal.value.field == field


@given(st.text(alphabet="0123456789*/-,LWH#?@()evrySUNmonjan \t", max_size=40))
def test_any_text_is_accepted_or_refused_with_a_field(text: str) -> None:
    try:
        schedule = Schedule(cron=(text,), anchor_us=0, hash_key="key")
    except Invalid as refusal:
        if not refusal.field.startswith("schedule"):
            raise
    else:
        first = schedule.next_after(-1)
        assert first is not None
        assert schedule.matches(first)


HARD_LINES = [
    "0 0 30 2 *", "0 0 */30 2 1#5", "0 0 29 2 1#5", "0 0 0 29 2 ? 2196", "59 59 23 31 12 ? 2199", "0 0 L-30 4 *",
    ",".join(["1W,LW,L-1"] * 20) + " 0 1 1 *", "0 0 " + ",".join(["1W", "LW"] * 40) + " * *",
    ",".join(str(n % 60) for n in range(85)) + " * * * *", "*/1,*/2,*/3,*/4,*/5 * * * *", "H,H,H,H,H,H,H,H H H H H",
    "0 0 * * " + ",".join(["1#5"] * 60), "((((((((((((((((((((" * 12, "1-" * 128, "@every " + "9" * 240,
]  # fmt: skip


@pytest.mark.parametrize("line", HARD_LINES, ids=lambda line: line[:30])
def test_any_line_is_checked_in_bounded_time(line: str) -> None:
    def check() -> None:
        with contextlib.suppress(Invalid):
            Schedule(cron=(line,), hash_key="key", anchor_us=0)

    assert least_ms(check) < 100, "the figure is 10 ms"


@pytest.mark.parametrize(
    ("line", "zone", "rules"),
    [
        ("30 2 * 3 SUN#2", "America/New_York", {"gap": "skip"}),  # from 2007 on always in the gap
        ("30 2 8 3 SUN#2", "America/New_York", {"gap": "skip"}),
        ("0 0 29 2 1#5", "Asia/Gaza", {}),
        ("59 59 23 31 12 ? 2199", "Pacific/Auckland", {}),
        ("0 0 0 1 1 ? 1970", "Europe/Berlin", {}),
    ],
)
def test_any_next_and_previous_is_found_in_bounded_time(line: str, zone: str, rules: dict[str, str]) -> None:
    schedule = Schedule(cron=(line, "0 0 0 1 1 ? 1999"), zone=zone, **rules)  # type: ignore[arg-type]
    for instant in (0, us("2026-01-01T00:00:00Z"), END_US):
        assert least_ms(lambda instant=instant: schedule.next_after(instant)) < 50, "the figure is 5 ms"
        assert least_ms(lambda instant=instant: schedule.prev_before(instant)) < 50, "the figure is 5 ms"
