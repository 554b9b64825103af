"""Catching up, decision by decision: each mode and order with its cap and window, over real schedules.

The instants are those of the field bug log where a test carries a case's id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from core.catch_up import LATE_AFTER_US, Back, CatchUpDecision, Span, decide_catch_up
from core.clock import US_PER_S
from core.intervals import Every
from core.occurrences import Occurrence, Occurrences
from core.policy import CatchUp, CatchUpMode, CatchUpOrder
from core.schedule import Schedule
from tests.support.instants import rfc3339, us
from tests.support.listed_occurrences import Listed

MINUTE_US = 60 * US_PER_S
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
SKIP, LATEST, ALL = CatchUpMode.SKIP, CatchUpMode.LATEST, CatchUpMode.ALL
NEWEST = CatchUpOrder.NEWEST_FIRST
MINUTELY = Schedule(cron=("* * * * *",))


@dataclass
class Chain:
    """A chain that is decided about until nothing of it is due: what it ran, skipped, and where it stands."""

    occurrences: Occurrences
    head: str
    back: Back | None = None
    runs: list[str] = field(default_factory=list)
    skips: list[tuple[str, str]] = field(default_factory=list)
    decisions: list[CatchUpDecision] = field(default_factory=list)

    def at(self, now: str, policy: CatchUp) -> Chain:
        """Go on at `now` until the chain stands in the future."""
        while self.head and (self.back is not None or us(self.head) <= us(now)):
            made = decide_catch_up(policy, self.occurrences, us(self.head), us(now), self.back)
            self.decisions.append(made)
            if made.run is not None:
                self.runs.append(_text(made.run.nominal_us))
            if made.skipped is not None:
                self.skips.append((_text(made.skipped.first_us), _text(made.skipped.last_us)))
            self.back = made.back
            self.head = "" if made.next is None else _text(made.next.nominal_us)
        return self


def _text(instant_us: int) -> str:
    return rfc3339(instant_us) or ""


def chain(schedule: Schedule, head: str, *, offset_us: int = 0) -> Chain:
    return Chain(Occurrences(schedule, offset_us=offset_us), head)


def minutes(first: str, count: int) -> list[str]:
    return [_text(us(first) + n * MINUTE_US) for n in range(count)]


# --- B50: a night without schedulers, 480 slots of a minutely job missed ---


NIGHT = ("2026-01-10T22:01:00Z", "2026-01-11T06:00:30Z")


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (CatchUp(SKIP, grace_us=0), []),
        (CatchUp(LATEST, grace_us=0), ["2026-01-11T06:00:00Z"]),
        (CatchUp(ALL, grace_us=0), minutes("2026-01-11T05:55:00Z", 6)),
        (CatchUp(ALL, grace_us=0, max_runs=480), minutes("2026-01-10T22:01:00Z", 480)),
        (CatchUp(ALL, grace_us=0, max_runs=480, order=NEWEST), minutes("2026-01-10T22:01:00Z", 480)[::-1]),
        (CatchUp(ALL, grace_us=0, order=NEWEST), minutes("2026-01-11T05:55:00Z", 6)[::-1]),
        (CatchUp(ALL, grace_us=0, window_us=3 * MINUTE_US), minutes("2026-01-11T05:58:00Z", 3)),
        (CatchUp(LATEST, grace_us=0, window_us=20 * US_PER_S), []),
    ],
    ids=lambda value: value.mode.name if isinstance(value, CatchUp) else None,
)
def test_b50_after_a_night_each_mode_runs_what_it_promises_and_the_next_minute_goes_on(
    policy: CatchUp, runs: list[str]
) -> None:
    first, now = NIGHT
    caught_up = chain(MINUTELY, first).at(now, policy)
    assert caught_up.runs == runs
    assert caught_up.head == "2026-01-11T06:01:00Z"
    skipped = 480 - len(runs)
    expected = [(first, minutes(first, 480)[skipped - 1])] if skipped else []
    assert caught_up.skips == expected, "one range, with what is not run"


@pytest.mark.parametrize("order", CatchUpOrder)
def test_b50_with_the_default_grace_the_newest_slot_is_on_time_and_the_cap_counts_older_ones(
    order: CatchUpOrder,
) -> None:
    first, now = NIGHT
    caught_up = chain(MINUTELY, first).at(now, CatchUp(ALL, order=order))
    older = minutes("2026-01-11T05:54:00Z", 6)
    fresh = "2026-01-11T06:00:00Z"
    assert caught_up.runs == ([*older, fresh] if order is CatchUpOrder.OLDEST_FIRST else [fresh, *older[::-1]])
    assert caught_up.skips == [(first, "2026-01-11T05:53:00Z")]


@pytest.mark.parametrize("mode", [SKIP, LATEST])
def test_b50_what_is_on_time_replaces_the_latest_of_what_is_not(mode: CatchUpMode) -> None:
    first, now = NIGHT
    caught_up = chain(MINUTELY, first).at(now, CatchUp(mode))
    assert caught_up.runs == ["2026-01-11T06:00:00Z"]
    assert caught_up.skips == [(first, "2026-01-11T05:59:00Z")]
    assert len(caught_up.decisions) == 1


def test_a_year_of_a_minutely_job_is_one_range_and_few_searches() -> None:
    first_us, now_us = us("2025-01-01T00:01:00Z"), us("2026-01-01T00:00:30Z")
    counted = CountingOccurrences(MINUTELY)
    made = decide_catch_up(CatchUp(ALL, window_us=30 * DAY_US), counted, first_us, now_us)
    assert made.skipped == Span(first_us, us("2025-12-31T23:53:00Z"))
    assert made.run is not None
    assert made.run.nominal_us == us("2025-12-31T23:54:00Z")
    assert counted.searches <= 12


class CountingOccurrences(Occurrences):
    """Counts what it is asked."""

    searches = 0

    def next_after(self, nominal_us: int) -> Occurrence | None:
        self.searches += 1
        return super().next_after(nominal_us)

    def prev_before(self, nominal_us: int) -> Occurrence | None:
        self.searches += 1
        return super().prev_before(nominal_us)


# --- B52, B53, B55, B56, B57, B59 ---


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (CatchUp(LATEST, grace_us=0), ["2026-01-10T10:10:00Z"]),
        (CatchUp(SKIP, grace_us=0), []),
        (CatchUp(ALL, grace_us=0), minutes("2026-01-10T10:05:00Z", 6)),
    ],
    ids=["LATEST", "SKIP", "ALL"],
)
def test_b52_a_pause_that_counts_is_caught_up_on_like_a_downtime(policy: CatchUp, runs: list[str]) -> None:
    resumed = chain(MINUTELY, "2026-01-10T10:01:00Z").at("2026-01-10T10:10:30Z", policy)
    assert resumed.runs == runs
    assert resumed.head == "2026-01-10T10:11:00Z"


def test_b52_after_three_days_the_next_minute_goes_on() -> None:
    resumed = chain(MINUTELY, "2026-01-10T10:01:00Z").at("2026-01-13T10:10:30Z", CatchUp(LATEST, grace_us=0))
    assert resumed.runs == ["2026-01-13T10:10:00Z"]
    assert len(resumed.skips) == 1
    assert resumed.head == "2026-01-13T10:11:00Z"


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(every=(Every(elapsed_us=DAY_US),), anchor_us=us("2018-11-15T00:00:00Z")),
        Schedule(every=(Every(days=1),), anchor_us=us("2018-11-15T00:00:00Z")),
        Schedule(cron=("0 0 * * *",)),
    ],
    ids=["elapsed", "days", "cron"],
)
def test_b53_an_interval_catches_up_once_like_a_cron_line(schedule: Schedule) -> None:
    caught_up = chain(schedule, "2018-11-18T00:00:00Z").at("2018-11-19T09:00:00Z", CatchUp())
    assert caught_up.runs == ["2018-11-19T00:00:00Z"]
    assert caught_up.skips == [("2018-11-18T00:00:00Z", "2018-11-18T00:00:00Z")]
    assert caught_up.head == "2018-11-20T00:00:00Z"


def test_b55_four_minutes_and_forty_seconds_asleep_run_at_most_what_the_grace_holds() -> None:
    woken = chain(MINUTELY, "2026-01-10T10:01:00Z").at("2026-01-10T10:05:20Z", CatchUp(SKIP))
    assert woken.runs == ["2026-01-10T10:05:00Z"]
    assert woken.skips == [("2026-01-10T10:01:00Z", "2026-01-10T10:04:00Z")]


def test_b56_a_late_run_does_not_shift_an_interval() -> None:
    nightly = Schedule(every=(Every(elapsed_us=DAY_US),), anchor_us=us("2026-01-09T23:55:00Z"))
    late = chain(nightly, "2026-01-10T23:55:00Z").at("2026-01-11T00:05:00Z", CatchUp())
    assert late.runs == ["2026-01-10T23:55:00Z"]
    assert late.head == "2026-01-11T23:55:00Z"


def test_b57_an_interval_counts_from_its_anchor_however_often_it_is_looked_at() -> None:
    daily = chain(
        Schedule(every=(Every(elapsed_us=DAY_US),), anchor_us=us("2026-01-01T00:00:00Z")), "2026-01-02T00:00:00Z"
    )
    for hour in range(72):
        daily.at(_text(us("2026-01-02T00:00:01Z") + hour * HOUR_US), CatchUp())
    assert daily.runs == ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]


@pytest.mark.parametrize(
    ("late_by_us", "policy", "runs"),
    [
        (US_PER_S, CatchUp(), True),
        (US_PER_S, CatchUp(SKIP), True),
        (10 * MINUTE_US, CatchUp(), True),
        (10 * MINUTE_US, CatchUp(ALL), True),
        (10 * MINUTE_US, CatchUp(ALL, order=NEWEST), True),
        (10 * MINUTE_US, CatchUp(SKIP), False),
        (10 * MINUTE_US, CatchUp(window_us=5 * MINUTE_US), False),
        (HOUR_US, CatchUp(), True),
    ],
)
def test_b59_a_missed_one_off_runs_once_or_is_skipped_once_and_never_lingers(
    late_by_us: int, policy: CatchUp, runs: bool
) -> None:
    at = "2026-01-10T12:00:00Z"
    once = chain(Schedule(at_us=(us(at),)), at).at(_text(us(at) + late_by_us), policy)
    assert once.runs == ([at] if runs else [])
    assert once.skips == ([] if runs else [(at, at)])
    assert (once.head, once.back, len(once.decisions)) == ("", None, 1)


# --- days with a change of the clock: instants count, not wall times ---


@pytest.mark.parametrize(
    ("first", "now", "runs"),
    [
        # Berlin, 2026-03-29: 02:00 to 03:00 does not exist; 02:30 fires at 03:00 local, 01:00Z.
        ("2026-03-28T01:30:00Z", "2026-03-30T12:00:00Z", ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"]),
        # 2026-10-25: 02:30 exists twice, and fires at the first.
        ("2026-10-24T00:30:00Z", "2026-10-26T12:00:00Z", ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z"]),
    ],
    ids=["spring", "autumn"],
)
def test_days_with_a_change_of_the_clock_are_caught_up_on_as_they_would_have_fired(
    first: str, now: str, runs: list[str]
) -> None:
    daily = Schedule(cron=("30 2 * * *",), zone="Europe/Berlin")
    third = "2026-03-30T00:30:00Z" if first < "2026-04" else "2026-10-26T01:30:00Z"
    for order in CatchUpOrder:
        caught_up = chain(daily, first).at(now, CatchUp(ALL, order=order))
        assert caught_up.runs == ([*runs, third] if order is CatchUpOrder.OLDEST_FIRST else [third, *runs[::-1]])
        assert caught_up.skips == []


def test_both_passes_of_a_repeated_hour_are_occurrences_of_their_own() -> None:
    halves = Schedule(cron=("*/30 * * * *",), zone="Europe/Berlin")
    policy = CatchUp(ALL, grace_us=0, max_runs=4, order=NEWEST)
    caught_up = chain(halves, "2026-10-24T23:30:00Z").at("2026-10-25T01:40:00Z", policy)
    assert caught_up.runs == [
        "2026-10-25T01:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T00:00:00Z",
    ]
    assert caught_up.skips == [("2026-10-24T23:30:00Z", "2026-10-24T23:30:00Z")]


# --- lateness ---


def test_lateness_counts_from_the_due_time_of_an_occurrence_that_was_put_off() -> None:
    put_off = Occurrences(Schedule(cron=("0 * * * *",)), offset_us=10 * MINUTE_US)
    head_us, policy = us("2026-01-10T10:00:00Z"), CatchUp(SKIP)
    on_time = decide_catch_up(policy, put_off, head_us, us("2026-01-10T10:10:59Z"))
    assert on_time.run == Occurrence(head_us, us("2026-01-10T10:10:00Z"))
    late = decide_catch_up(policy, put_off, head_us, us("2026-01-10T10:11:01Z"))
    assert (late.run, late.skipped) == (None, Span(head_us, head_us))


def test_an_occurrence_at_the_very_end_of_the_grace_still_runs() -> None:
    policy, listed = CatchUp(SKIP, 60), Listed([Occurrence(40, 40), Occurrence(200, 200)])
    assert decide_catch_up(policy, listed, 40, 100).run == Occurrence(40, 40)
    assert decide_catch_up(policy, listed, 40, 101).run is None


def test_nothing_runs_before_it_is_due() -> None:
    listed = Listed([Occurrence(40, 70), Occurrence(200, 200)])
    early = decide_catch_up(CatchUp(ALL), listed, 40, 69)
    assert early == CatchUpDecision(next=Occurrence(40, 70))


def test_a_run_is_held_to_a_pace_only_when_a_minute_and_its_grace_have_gone_by() -> None:
    daily = Occurrences(Schedule(cron=("0 0 * * *",)))
    head_us = us("2026-01-10T00:00:00Z")
    for grace_us, paced_after_us in ((0, LATE_AFTER_US), (HOUR_US, HOUR_US)):
        policy = CatchUp(grace_us=grace_us)
        assert not decide_catch_up(policy, daily, head_us, head_us + paced_after_us).late
        assert decide_catch_up(policy, daily, head_us, head_us + paced_after_us + 1).late


@pytest.mark.parametrize(
    ("policy", "yields"),
    [
        (CatchUp(), "2026-01-11T00:00:00Z"),
        (CatchUp(ALL, order=NEWEST), "2026-01-11T00:00:00Z"),
        (CatchUp(ALL), None),
    ],
    ids=["LATEST", "NEWEST_FIRST", "OLDEST_FIRST"],
)
def test_what_waits_for_its_turn_lets_go_first_what_is_on_time_unless_that_waits_behind(
    policy: CatchUp, yields: str | None
) -> None:
    daily = Occurrences(Schedule(cron=("0 0 * * *",)))
    made = decide_catch_up(policy, daily, us("2026-01-08T00:00:00Z"), us("2026-01-10T09:00:00Z"))
    assert made.late
    assert rfc3339(made.yields_us) == yields
