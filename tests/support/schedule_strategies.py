"""Random whole schedules with their calendars, each for the product and for the naive oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from random import Random

from core.calendars import CalendarContent, DayOff, DaysOff, Window, WindowAction, Windows
from core.errors import Invalid
from core.intervals import Every
from core.occurrences import Occurrences
from core.schedule import Schedule
from core.zones import zone
from tests.support.cron_strategies import ZONES, random_line
from tests.support.naive_cron import NaiveLine, NaiveWalk
from tests.support.naive_schedule import NaiveEvery, NaiveSchedule, anchor_wall
from tests.support.naive_schedule import Windows as NaiveWindows

US_PER_S = 1_000_000
DAY_S = 86_400
MINUTE_ZONES = tuple(name for name in ZONES if name != "Africa/Monrovia")  # half a minute off until 1972


@dataclass
class Shaped:
    """One drawn schedule around [from_s, to_s); the windows of the oracle are complete up to `sure_s`."""

    occurrences: Occurrences
    naive: NaiveSchedule
    skip: NaiveWindows
    defer: NaiveWindows
    end_s: int | None
    offset_us: int
    sure_s: int
    text: str


def random_shaped(draw: Random, name: str, from_s: int, to_s: int) -> Shaped | None:
    """A schedule of a few parts with exclusions and calendars; None where what was drawn never fires."""
    gap, repeat = draw.choice(("end", "shift", "skip")), draw.choice(("first", "second", "both"))
    naive = NaiveSchedule(zone(name), gap, repeat)
    texts = _random_lines(draw, naive)
    every = _random_intervals(draw, naive, from_s, to_s)
    excluded = _random_exclusions(draw, naive, texts)
    dates, days_off = _random_days(draw, naive, from_s)
    skip, naive_skip = _random_windows(draw, WindowAction.SKIP, from_s, to_s)
    defer, naive_defer = _random_windows(draw, WindowAction.DEFER, from_s, to_s)
    end_s = draw.choice((None, None, to_s - draw.randrange(DAY_S)))
    contents: dict[str, CalendarContent] = {}
    for key, content in (("days", days_off), ("skip", skip), ("defer", defer)):
        if content is not None:
            contents[key] = content
    offset_us = draw.choice((0, 1, 59_000_000, 3_600_000_000))
    try:
        schedule = Schedule(
            every=every,
            cron=tuple(texts),
            zone=name,
            end_us=None if end_s is None else end_s * US_PER_S,
            gap=gap,  # type: ignore[arg-type]
            repeat=repeat,  # type: ignore[arg-type]
            exclude_dates=dates,
            exclude_cron=tuple(excluded),
            exclude_calendars=("days",) if days_off else (),
            windows=tuple(key for key in ("skip", "defer") if key in contents),
        )
    except Invalid as refusal:
        if "never fires" in refusal.rule:
            return None
        raise
    occurrences = Occurrences(schedule, contents, offset_us=offset_us)
    text = f"{schedule.to_json()} {contents} offset {offset_us}"
    return Shaped(occurrences, naive, naive_skip, naive_defer, end_s, offset_us, to_s + 2 * DAY_S, text)


def _random_lines(draw: Random, naive: NaiveSchedule) -> list[str]:
    texts = []
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        text, line = random_line(draw)
        texts.append(text)
        naive.lines.append(line)
    return texts


def _random_intervals(draw: Random, naive: NaiveSchedule, from_s: int, to_s: int) -> tuple[Every, ...]:
    intervals = []
    for _ in range(draw.choice((0, 1, 2)) if naive.lines else 1):
        anchor_s = max(0, draw.randint(from_s - 200 * DAY_S, to_s) // 60 * 60)
        kind = draw.choice(("elapsed", "days", "months"))
        if kind == "elapsed":
            period_s = 60 * draw.choice((1, 7, 60, 90, 1440))
            intervals.append(Every(elapsed_us=period_s * US_PER_S, anchor_us=anchor_s * US_PER_S))
            naive.elapsed.append((anchor_s, period_s))
            continue
        days, months = (draw.choice((1, 1, 2, 7)), None) if kind == "days" else (None, draw.choice((1, 1, 2, 3)))
        intervals.append(Every(days=days, months=months, anchor_us=anchor_s * US_PER_S))
        naive.every.append((anchor_s, NaiveEvery(anchor_wall(anchor_s, naive.zone), days, months)))
    return tuple(intervals)


def _random_exclusions(draw: Random, naive: NaiveSchedule, texts: list[str]) -> list[str]:
    excluded = []
    for _ in range(draw.choice((0, 1, 2))):
        text, line = random_line(draw)
        if texts and draw.random() < 0.5:  # the times of day of a line of the schedule, on other days
            index = draw.randrange(len(texts))
            kept = naive.lines[index]
            text = " ".join([*texts[index].split()[:2], *text.split()[2:]])
            line = replace(line, minutes=kept.minutes, hours=kept.hours, wildcard=kept.wildcard)
        try:
            Schedule(cron=(text,))
        except Invalid:
            continue  # the drawn days never exist
        excluded.append(text)
        naive.exclude.append(line)
    return excluded


def _random_days(draw: Random, naive: NaiveSchedule, from_s: int) -> tuple[tuple[str, ...], DaysOff | None]:
    around = datetime.fromtimestamp(from_s, UTC).date()
    near = [around + timedelta(days=days) for days in range(-2, 5)]
    texts, rules = [], []
    for _ in range(draw.choice((0, 0, 1, 2))):
        text, rule = _random_date(draw, near)
        texts.append(text)
        rules.append(rule)
    days_off = None
    if draw.random() < 0.4:
        days = [_random_date(draw, near) for _ in range(draw.choice((0, 1, 3)))]
        weekdays = tuple(draw.sample(range(7), draw.choice((0, 1, 2, 4))))
        working = draw.sample(near, draw.choice((0, 1, 2)))
        if days or weekdays or working:
            days_off = DaysOff(weekdays, tuple(DayOff(text) for text, _ in days), tuple(map(str, working)))
            rules.append(
                lambda day: (
                    day not in working and (day.isoweekday() % 7 in weekdays or any(rule(day) for _, rule in days))
                )
            )
    naive.off = lambda day: any(rule(day) for rule in rules)
    return tuple(texts), days_off


def _random_date(draw: Random, near: list[date]) -> tuple[str, Callable[[date], bool]]:
    one, other = sorted(draw.sample(near, 2))
    kind = draw.choice(("single", "range", "yearly"))
    if kind == "single":
        return str(one), lambda day: day == one
    if kind == "range":
        return f"{one}/{other}", lambda day: one <= day <= other
    return f"*-{one:%m-%d}", lambda day: (day.month, day.day) == (one.month, one.day)


def _random_windows(draw: Random, action: WindowAction, from_s: int, to_s: int) -> tuple[Windows | None, NaiveWindows]:
    windows: list[Window] = []
    naive: NaiveWindows = []
    for _ in range(draw.choice((0, 0, 1, 2))):
        if draw.random() < 0.5:
            start = draw.randint(from_s - DAY_S, to_s)
            end = start + draw.choice((1, 60, 3600, 20 * 3600))
            if start >= 0:
                windows.append(Window(from_us=start * US_PER_S, to_us=end * US_PER_S))
                naive.append((start, end))
            continue
        text, line = random_line(draw)
        duration_s = draw.choice((30, 60, 90, 3600, 7 * 3600))
        try:
            Schedule(cron=(text,))
        except Invalid:
            continue
        name = draw.choice(MINUTE_ZONES)
        windows.append(Window(cron=text, zone=name, duration_us=duration_s * US_PER_S))
        naive += _recurring(line, name, from_s, to_s, duration_s)
    return (Windows(action, tuple(windows)) if windows else None), naive


def _recurring(line: NaiveLine, name: str, from_s: int, to_s: int, duration_s: int) -> NaiveWindows:
    walk = NaiveWalk(zone(name), max(0, from_s - 8 * 3600) // 60 * 60, to_s + 2 * DAY_S)
    return [(at, at + duration_s) for at in walk.occurrences(line)]
