"""The enumerator answers what the schedule answers, shares the work among equal ones, and stays bounded."""

from __future__ import annotations

from random import Random

import pytest

from core.enumerator import Enumerator
from core.errors import Invalid
from core.schedule import Schedule
from core.search import SearchLimit
from tests.support.instants import us

NOON = us("2026-06-01T12:00:00Z")


def test_a_crowd_costs_one_computation() -> None:
    enumerator = Enumerator()
    crowd = [Schedule(cron=("0 0 * * *",), zone="Europe/Berlin", hash_key=f"job {n}") for n in range(100)]
    assert {enumerator.next_after(schedule, NOON) for schedule in crowd} == {us("2026-06-01T22:00:00Z")}
    assert (enumerator.misses, enumerator.hits) == (1, 99)


def test_texts_are_read_once() -> None:
    enumerator = Enumerator()
    text = Schedule(cron=("0 0 * * *",)).to_json()
    assert enumerator.read(text) is enumerator.read(text)
    with pytest.raises(Invalid):
        enumerator.read("{}")


def test_slots_and_anchors_are_not_mixed_up() -> None:
    enumerator = Enumerator()
    slots = [Schedule(cron=("H H * * *",), hash_key=f"job {n}") for n in range(20)]
    anchored = [Schedule(cron=("@every 1h",), anchor_us=n * 1_000_000) for n in range(20)]
    for schedule in slots + anchored:
        assert enumerator.next_after(schedule, NOON) == schedule.next_after(NOON)


def test_answers_are_those_of_the_schedule_in_any_order_and_memory_is_bounded() -> None:
    enumerator = Enumerator(max_entries=3)
    draw = Random(7)
    schedules = [
        Schedule(cron=(f"{minute} 1,2 * * *",), zone="Europe/Dublin", repeat=repeat, end_us=us("2026-10-26T00:00:00Z"))  # type: ignore[arg-type]
        for minute in (0, 30)
        for repeat in ("first", "second", "both")
    ]
    for _ in range(2000):
        schedule = draw.choice(schedules)
        instant = us("2026-10-24T20:00:00Z") + draw.randrange(36 * 3600) * 1_000_000
        assert enumerator.next_after(schedule, instant) == schedule.next_after(instant)
        assert enumerator.read(schedule.to_json()) == schedule
    assert len(enumerator._stretches) <= 3
    assert len(enumerator._schedules) <= 3


def test_what_calendars_say_is_prepared_once_and_kept_within_bounds() -> None:
    enumerator = Enumerator(max_compiled=2)
    built: list[str] = []

    def build(key: str) -> str:
        built.append(key)
        return key.upper()

    for key in ("a", "a", "b", "a", "c", "a"):
        assert enumerator.compiled(key, lambda key=key: build(key)) == key.upper()  # type: ignore[misc]
    assert built == ["a", "b", "c", "a"], "the oldest leaves first"
    assert len(enumerator._compiled) <= 2


def test_what_a_search_gave_up_on_is_not_remembered() -> None:
    enumerator = Enumerator()
    schedule = Schedule(
        cron=("* * * 1-5 *", "0 0 7 6 *"), exclude_cron=("* */2 * * 1-5 ? 2026", "* 1-59/2 * * 1-5 ? 2026")
    )
    for _ in range(2):
        with pytest.raises(SearchLimit):
            enumerator.next_after(schedule, us("2026-01-01T00:00:00Z"))
    assert enumerator.next_after(schedule, us("2026-06-01T00:00:00Z")) == us("2026-06-07T00:00:00Z")
