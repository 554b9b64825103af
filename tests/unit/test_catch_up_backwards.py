"""Catching up with the newest first, and what is done where a search gives up, decision by decision."""

from __future__ import annotations

import pytest

from core.catch_up import Back, CatchUpDecision, Span, Waypoint, decide_catch_up
from core.occurrences import Occurrence
from core.policy import CatchUp, CatchUpMode, CatchUpOrder
from tests.support.listed_occurrences import Listed

SKIP, LATEST, ALL = CatchUpMode.SKIP, CatchUpMode.LATEST, CatchUpMode.ALL
NEWEST = CatchUpOrder.NEWEST_FIRST
LISTED = Listed(Occurrence(at, at) for at in range(10, 101, 10))


def test_newest_first_lets_go_first_what_becomes_due_meanwhile() -> None:
    policy = CatchUp(ALL, grace_us=0, max_runs=3, order=NEWEST)
    first = decide_catch_up(policy, LISTED, 10, 55)
    assert first.run == (50, 50)
    assert first.skipped == Span(10, 20)
    assert (first.next, first.back) == ((60, 60), Back(40, 30))
    on_time = decide_catch_up(policy, LISTED, 60, 60, first.back)
    assert (on_time.run, on_time.next, on_time.back, on_time.late) == ((60, 60), (70, 70), Back(40, 30), False)
    second = decide_catch_up(policy, LISTED, 70, 61, on_time.back)
    assert (second.run, second.next, second.back) == ((40, 40), (70, 70), Back(30, 30))
    last = decide_catch_up(policy, LISTED, 70, 62, second.back)
    assert (last.run, last.next, last.back) == ((30, 30), (70, 70), None)


def test_newest_first_goes_on_after_the_schedule_has_ended() -> None:
    policy = CatchUp(ALL, grace_us=0, max_runs=3, order=NEWEST)
    first = decide_catch_up(policy, LISTED, 80, 105)
    assert (first.run, first.next, first.back) == ((100, 100), Waypoint(101, 101), Back(90, 80))
    second = decide_catch_up(policy, LISTED, 101, 106, first.back)
    assert (second.run, second.next, second.back) == ((90, 90), Waypoint(101, 101), Back(80, 80))
    last = decide_catch_up(policy, LISTED, 101, 107, second.back)
    assert (last.run, last.next, last.back) == ((80, 80), None, None)


def test_newest_first_skips_what_the_window_leaves_out_by_the_time_of_its_turn() -> None:
    policy = CatchUp(ALL, grace_us=0, window_us=30, order=NEWEST)
    some = decide_catch_up(policy, LISTED, 70, 65, Back(50, 20))
    assert (some.run, some.skipped, some.back) == ((50, 50), Span(20, 30), Back(40, 31))
    last = decide_catch_up(policy, LISTED, 70, 66, some.back)
    assert (last.run, last.back) == ((40, 40), None)
    none = decide_catch_up(policy, LISTED, 100, 95, Back(50, 20))
    assert none == CatchUpDecision(skipped=Span(20, 50), next=Occurrence(100, 100))


def test_a_second_downtime_takes_from_what_the_first_one_left() -> None:
    """Cap 4: three were left, two more were missed; of the older ones two are kept, and those go last."""
    policy = CatchUp(ALL, grace_us=5, max_runs=4, order=NEWEST)
    first = decide_catch_up(policy, LISTED, 60, 79, Back(40, 20))
    assert (first.run, first.skipped, first.back) == ((60, 60), Span(20, 20), Back(40, 30))
    second = decide_catch_up(policy, LISTED, 70, 79, first.back)
    assert (second.run, second.skipped, second.next, second.back) == ((70, 70), None, (80, 80), Back(40, 30))
    third = decide_catch_up(policy, LISTED, 80, 79, second.back)
    assert (third.run, third.back) == ((40, 40), Back(30, 30))


def test_a_second_downtime_that_fills_the_cap_ends_the_first_catch_up() -> None:
    policy = CatchUp(ALL, grace_us=5, max_runs=4, order=NEWEST)
    first = decide_catch_up(policy, LISTED, 60, 99, Back(40, 20))
    assert first == CatchUpDecision(skipped=Span(20, 40), next=Occurrence(60, 60))
    second = decide_catch_up(policy, LISTED, 60, 99)
    assert (second.run, second.skipped, second.back) == ((90, 90), None, Back(80, 60))


# --- searches that give up ---


def test_a_waypoint_makes_neither_a_run_nor_a_skip_and_the_search_goes_on_from_it() -> None:
    gap = Listed([Occurrence(10, 10), Occurrence(90, 90)], range(20, 80), patience=25)
    made = decide_catch_up(CatchUp(), gap, 10, 10)
    assert (made.run, made.next) == ((10, 10), Waypoint(45, 45))
    on = decide_catch_up(CatchUp(), gap, 45, 45)
    assert on == CatchUpDecision(next=Waypoint(71, 71))
    assert decide_catch_up(CatchUp(), gap, 71, 71) == CatchUpDecision(next=Occurrence(90, 90))


def test_from_a_waypoint_too_what_is_due_goes_before_what_is_left() -> None:
    policy = CatchUp(ALL, grace_us=30, order=NEWEST)
    due = decide_catch_up(policy, LISTED, 55, 65, Back(30, 20))
    assert due == CatchUpDecision(next=Occurrence(60, 60), back=Back(30, 20))
    not_due = decide_catch_up(policy, LISTED, 55, 59, Back(30, 20))
    assert (not_due.run, not_due.next, not_due.back) == ((30, 30), (60, 60), Back(20, 20))


@pytest.mark.parametrize(
    ("policy", "runs", "skipped"),
    [
        (CatchUp(LATEST, 0), [30], {10, 20}),
        (CatchUp(ALL, 0, max_runs=2), [20, 30], {10}),
        (CatchUp(SKIP, 0), [], {10, 20, 30}),
    ],
    ids=["LATEST", "ALL", "SKIP"],
)
def test_a_newest_missed_one_that_is_not_found_is_met_going_forward(
    policy: CatchUp, runs: list[int], skipped: set[int]
) -> None:
    hidden = Listed([Occurrence(at, at) for at in (10, 20, 30)], range(40, 3000), patience=20)
    ran, left_out, head = [], set(), 10
    while head < 100:
        made = decide_catch_up(policy, hidden, head, 2990)
        ran += [] if made.run is None else [made.run.nominal_us]
        left_out |= set() if made.skipped is None else {*range(made.skipped.first_us, made.skipped.last_us + 1, 10)}
        assert made.next is not None
        head = made.next.nominal_us
    assert (ran, left_out) == (runs, skipped)
