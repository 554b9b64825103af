"""How fast schedules are read and walked, on one core: `python -m tools.bench.firetimes`.

Prints a JSON list of {"name", "value", "unit", "runs", "detail"}, the form of build/bench.json. The cases:
schedule_next_shared_per_s (the midnight crowd: many jobs, few expressions, one instant), schedule_next_distinct_per_s
(every job has its own expression; read beforehand, as a dispatcher does), the same two through the occurrences of jobs
(occurrence_next_shared_per_s, occurrence_next_distinct_per_s, with jitter), occurrence_next_excluded_per_s (each with
exclusions, a calendar of days off and a maintenance window), and schedule_read_distinct_per_s (text to first
occurrence, for schedules never seen before).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from core.calendars import DayOff, DaysOff, Window, WindowAction, Windows
from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.occurrences import Occurrences
from core.schedule import Schedule
from core.zones import use_pinned_tzdata, zone_table
from tools.bench.figures import Figure, figure

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago")
START_US = 1_767_225_600 * US_PER_S  # 2026-01-01
HOUR_US = 3600 * US_PER_S
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


def occurrences_shared() -> Figure:
    """The same crowd, asked as the jobs that it is: each has a share of jitter of its own."""
    texts = [Schedule(cron=(f"{n} 0 * * *",), zone="Europe/Berlin").to_json() for n in range(50)]
    enumerator = Enumerator()
    crowd = [Occurrences(enumerator.read(texts[n % 50]), offset_us=n, enumerator=enumerator) for n in range(100_000)]

    def case() -> None:
        for occurrences in crowd:
            occurrences.next_after(START_US)

    return measure("occurrence_next_shared_per_s", "100,000 jobs of 50 expressions, one instant", len(crowd), case)


def occurrences_distinct() -> Figure:
    """20,000 jobs with schedules of their own, ten occurrences each."""
    enumerator = Enumerator()
    jobs = [
        Occurrences(enumerator.read(text), offset_us=n, enumerator=enumerator)
        for n, text in enumerate(distinct_texts(20_000))
    ]
    return measure(
        "occurrence_next_distinct_per_s", "20,000 jobs, 10 occurrences each", 200_000, lambda: walk_all(jobs)
    )


def occurrences_excluded() -> Figure:
    """5,000 jobs of their own that leave out lines, days off and nights: about half of what they name."""
    holidays = DaysOff(weekdays=(0, 6), days=tuple(DayOff(f"2026-{1 + n % 12:02}-{1 + n % 28:02}") for n in range(200)))
    nights = Windows(WindowAction.DEFER, (Window(cron="0 22 * * *", zone="Europe/Berlin", duration_us=6 * HOUR_US),))
    jobs = []
    for n, text in enumerate(distinct_texts(5_000)):
        schedule = replace(
            Schedule.from_json(text),
            exclude_dates=("*-12-25", "2026-02-01/2026-02-14"),
            exclude_cron=("* 8-12 * 1-4 *",),
            exclude_calendars=("holidays",),
            windows=("nights",),
        )
        jobs.append(Occurrences(schedule, {"holidays": holidays, "nights": nights}, offset_us=n))
    return measure("occurrence_next_excluded_per_s", "5,000 jobs, 10 occurrences each", 50_000, lambda: walk_all(jobs))


def walk_all(jobs: list[Occurrences]) -> None:
    """Ten occurrences of each job, one after the other."""
    for occurrences in jobs:
        at_us = START_US
        for _ in range(10):
            found = occurrences.next_after(at_us)
            at_us = START_US if found is None else found.nominal_us


def read_distinct() -> Figure:
    """Read 5,000 schedules never seen before and find the first occurrence of each."""
    texts = distinct_texts(5_000)

    def case() -> None:
        enumerator = Enumerator()
        for text in texts:
            enumerator.next_after(enumerator.read(text), START_US)

    return measure("schedule_read_distinct_per_s", "JSON to first occurrence, 5,000 schedules", len(texts), case)


def all_cases() -> list[Figure]:
    """The figures."""
    use_pinned_tzdata()
    for name in ZONES:
        zone_table(name)
    cases = (shared, distinct, occurrences_shared, occurrences_distinct, occurrences_excluded, read_distinct)
    return [case() for case in cases]


def main() -> None:
    json.dump([each.to_json() for each in all_cases()], sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
