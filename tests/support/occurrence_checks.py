"""Calendars and schedules for tests of occurrences, and the agreement of every question about them."""

from __future__ import annotations

from itertools import pairwise

from core.calendars import Window, WindowAction, Windows
from core.occurrences import Occurrence, Occurrences
from core.schedule import Schedule
from tests.support.instants import rfc3339, us

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
NOON = us("2026-06-01T12:00:00Z")  # a Monday
HOURLY = Schedule(cron=("0 * * * *",), windows=("skip", "defer"))


def window(from_text: str, to_text: str, name: str = "") -> Window:
    return Window(from_us=us(from_text), to_us=us(to_text), name=name)


def nightly(line: str, hours: int, zone: str = "UTC") -> Window:
    return Window(cron=line, zone=zone, duration_us=hours * HOUR_US)


def skipping(*windows: Window) -> Windows:
    return Windows(WindowAction.SKIP, windows)


def deferring(*windows: Window) -> Windows:
    return Windows(WindowAction.DEFER, windows)


def shown(found: tuple[Occurrence, ...]) -> list[str]:
    """Hour and minute of each nominal instant, with the due one where it differs."""
    return [
        f"{rfc3339(each.nominal_us)[11:16]}"
        + (f">{rfc3339(each.due_us)[11:16]}" if each.due_us != each.nominal_us else "")  # type: ignore[index]
        for each in found
    ]


def day_of(occurrences: Occurrences) -> list[str]:
    return shown(occurrences.between(us("2026-06-02T00:00:00Z"), us("2026-06-03T00:00:00Z"), 100))


def checked(occurrences: Occurrences, from_us: int, to_us: int) -> tuple[Occurrence, ...]:
    """The occurrences of a range, after every question about them was seen to agree."""
    found = occurrences.between(from_us, to_us, 10_000)
    assert all(early.nominal_us < late.nominal_us and early.due_us <= late.due_us for early, late in pairwise(found))
    assert [occurrences.prev_before(late.nominal_us) for late in found[1:]] == list(found[:-1])
    assert all(occurrences.at(each.nominal_us) == each for each in found)
    for asked_us in {each.due_us + nudge for each in found for nudge in (-1, 0, 1)}:
        later = [each for each in found if each.due_us >= asked_us]
        earlier = [each for each in found if each.due_us < asked_us]
        if later and earlier:
            assert occurrences.first_due_from(asked_us) == later[0], rfc3339(asked_us)
            assert occurrences.last_due_before(asked_us) == earlier[-1], rfc3339(asked_us)
    return found
