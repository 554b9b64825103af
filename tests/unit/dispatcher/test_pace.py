"""The pace of late runs: so many a second for each namespace, in the order of asking, within bounds."""

from __future__ import annotations

from heapq import heappop, heappush
from uuid import UUID

import pytest

from core.clock import US_PER_S
from dispatcher.pace import HORIZON_US, Pace
from tests.support.dispatcher_parts import NOW_US, new_id


class Crowd:
    """Chains of one namespace that ask again whenever they are told to, until they may run."""

    def __init__(self, pace: Pace, namespace: str, count: int, since_us: int = NOW_US) -> None:
        self.pace = pace
        self.namespace = namespace
        self.waiting: list[tuple[int, int, UUID]] = [(since_us, n, new_id()) for n in range(count)]
        self.made_us: list[int] = []
        self.order: list[int] = []
        self.asked = 0

    def until(self, end_us: int) -> Crowd:
        while self.waiting and self.waiting[0][0] <= end_us:
            now_us, number, chain = heappop(self.waiting)
            self.asked += 1
            again_us = self.pace.ask(self.namespace, chain, now_us)
            if again_us <= now_us:
                self.made_us.append(now_us)
                self.order.append(number)
            else:
                heappush(self.waiting, (again_us, number, chain))
        return self


def test_after_a_rest_a_second_s_worth_is_made_at_once_and_the_rest_at_the_pace() -> None:
    crowd = Crowd(Pace(100), "a", 1_000).until(NOW_US + 60 * US_PER_S)
    assert crowd.waiting == []
    assert crowd.made_us.count(NOW_US) == 100
    for begin_us in crowd.made_us[100:]:
        within = [at for at in crowd.made_us if begin_us <= at < begin_us + US_PER_S]
        assert len(within) <= 100
    assert crowd.made_us[-1] <= NOW_US + 16 * US_PER_S, "no longer than its pace takes, by much"


def test_whoever_asked_first_is_served_first_and_nobody_asks_over_and_over() -> None:
    crowd = Crowd(Pace(100), "a", 5_000).until(NOW_US + 60 * US_PER_S)
    assert crowd.order[:300] == list(range(300))
    out_of_place = [abs(place - number) for place, number in enumerate(crowd.order)]
    assert max(out_of_place) <= 2 * 100 * HORIZON_US // US_PER_S
    assert crowd.asked <= 3 * 5_000


def test_namespaces_have_paces_of_their_own() -> None:
    pace = Pace(10)
    busy = Crowd(pace, "busy", 500).until(NOW_US)
    calm = Crowd(pace, "calm", 5).until(NOW_US)
    assert (len(busy.made_us), len(calm.made_us)) == (10, 5)


def test_a_slow_pace_is_kept_too() -> None:
    crowd = Crowd(Pace(0.1), "a", 3).until(NOW_US + 120 * US_PER_S)
    assert crowd.made_us[0] == NOW_US
    assert all(
        later - earlier >= 10 * US_PER_S for earlier, later in zip(crowd.made_us, crowd.made_us[1:], strict=False)
    )
    assert len(crowd.made_us) == 3


def test_a_turn_is_kept_for_whoever_was_given_it() -> None:
    pace, first, second = Pace(1), new_id(), new_id()
    assert pace.ask("a", new_id(), NOW_US) == NOW_US
    turn_us = pace.ask("a", first, NOW_US)
    assert turn_us == NOW_US + US_PER_S
    assert pace.ask("a", second, turn_us) > turn_us, "a newcomer does not take it"
    assert pace.ask("a", first, turn_us - 1) == turn_us
    assert pace.ask("a", first, turn_us) == turn_us


@pytest.mark.parametrize("waiting", [1, 100], ids=["soon", "beyond the horizon"])
def test_no_turn_is_taken_that_comes_after_what_goes_first(waiting: int) -> None:
    pace, yields_us = Pace(1), NOW_US + US_PER_S // 2
    for _ in range(waiting):
        pace.ask("a", new_id(), NOW_US)
    given = len(pace)
    assert pace.ask("a", new_id(), NOW_US, yields_us) == yields_us
    assert len(pace) == given


def test_turns_in_memory_are_those_of_the_next_seconds_however_many_wait() -> None:
    pace = Pace(100)
    Crowd(pace, "a", 20_000).until(NOW_US)
    assert 0 < len(pace) <= 100 * HORIZON_US // US_PER_S + 1


def test_turns_that_nobody_takes_lapse_and_memory_has_its_bounds() -> None:
    pace = Pace(100, max_turns=50, max_namespaces=3)
    for n in range(10):
        Crowd(pace, f"namespace-{n}", 120).until(NOW_US)
    assert len(pace) == 50
    pace.ask("another", new_id(), NOW_US + 120 * US_PER_S)
    assert len(pace) == 0
