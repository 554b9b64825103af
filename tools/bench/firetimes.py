"""How fast schedules are read and walked, on one core: `python -m tools.bench.firetimes`.

Prints a JSON list of {"name", "value", "unit", "runs", "detail"}, the form of build/bench.json. Three cases:
schedule_next_shared_per_s (the midnight crowd: many jobs, few expressions, one instant), schedule_next_distinct_per_s
(every job has its own expression; read beforehand, as a dispatcher does) and schedule_read_distinct_per_s (text to
first occurrence, for schedules never seen before).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter

from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.schedule import Schedule
from core.zones import use_pinned_tzdata, zone_table
from tools.bench.figures import Figure, figure

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago")
START_US = 1_767_225_600 * US_PER_S  # 2026-01-01
ROUNDS = 5


def distinct_texts(count: int) -> list[str]:
    """Schedules that differ in expression or zone, of the kinds that crontabs hold."""
    shapes = ("{m} {h} * * *", "{m} {h} * * 1-5", "{m} {h} {d} * *", "{m}-59/7 {h} * * mon,thu", "*/{s} {h} * 1-6 *")
    return [
        Schedule(
            cron=(shapes[n % 5].format(m=n % 60, h=n // 60 % 24, d=n // 7 % 28 + 1, s=n % 58 + 2),),
            zone=ZONES[n // 11 % len(ZONES)],
            end_us=START_US + 10**15 + n,  # so that no two are the same series
        ).to_json()
        for n in range(count)
    ]


def measure(name: str, detail: str, count: int, case: Callable[[], None]) -> Figure:
    """Time `case`, which does `count` things, a few times."""
    runs = []
    for _ in range(ROUNDS):
        started = perf_counter()
        case()
        runs.append(round(count / (perf_counter() - started)))
    return figure(name, "1/s", runs, detail)


def shared() -> Figure:
    """A crowd of 100,000 jobs of 50 expressions asks for what follows midnight."""
    texts = [Schedule(cron=(f"{n} 0 * * *",), zone="Europe/Berlin").to_json() for n in range(50)]
    enumerator = Enumerator()
    crowd = [enumerator.read(texts[n % 50]) for n in range(100_000)]

    def case() -> None:
        for schedule in crowd:
            enumerator.next_after(schedule, START_US)

    return measure("schedule_next_shared_per_s", "100,000 jobs of 50 expressions, one instant", len(crowd), case)


def distinct() -> Figure:
    """20,000 schedules of their own, ten occurrences each, one after the other."""
    enumerator = Enumerator()
    schedules = [enumerator.read(text) for text in distinct_texts(20_000)]

    def case() -> None:
        for schedule in schedules:
            at: int | None = START_US
            for _ in range(10):
                at = enumerator.next_after(schedule, at or START_US)

    return measure("schedule_next_distinct_per_s", "20,000 expressions, 10 occurrences each", 200_000, case)


def read_distinct() -> Figure:
    """Read 5,000 schedules never seen before and find the first occurrence of each."""
    texts = distinct_texts(5_000)

    def case() -> None:
        enumerator = Enumerator()
        for text in texts:
            enumerator.next_after(enumerator.read(text), START_US)

    return measure("schedule_read_distinct_per_s", "JSON to first occurrence, 5,000 schedules", len(texts), case)


def all_cases() -> list[Figure]:
    """The three figures."""
    use_pinned_tzdata()
    for name in ZONES:
        zone_table(name)
    return [shared(), distinct(), read_distinct()]


def main() -> None:
    json.dump([asdict(each) for each in all_cases()], sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
