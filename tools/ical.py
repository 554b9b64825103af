"""Reads iCalendar files (RFC 5545): each event becomes days off or windows, or a problem. Pure: text in, values out.

Events of whole days are days off; what recurs every year on the same day is kept as such, other recurrences are
expanded up to the end of a year (tools/ical_recurrence.py). Events with a time of day are maintenance windows, if the
caller wants those, and refused otherwise. Nothing is dropped without a word: each event has its result, with the line
on which it begins. Called by `tidewheel calendar import`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

from icalendar import Calendar

from core.calendars import DayOff, Window
from tools.ical_recurrence import occurrences_of_event, window_line, yearly_days
from tools.ical_values import MAX_NAME_CHARS, IcalEvent, Span, Timed, Unkept, instant_us, span_of

_MOST_DAYS = 5_000
_BEGIN = re.compile(r"BEGIN:([A-Z-]+)\s*\Z", re.IGNORECASE)
_END = re.compile(r"END:([A-Z-]+)\s*\Z", re.IGNORECASE)
# Parts of a calendar that say nothing about when: left out without a word.
_SILENT = frozenset({"VTIMEZONE", "VALARM"})


class Wanted(StrEnum):
    """What is made of the file."""

    DAYS_OFF = "days off"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is read. `zone` is for times that name none; recurrences are expanded over [from_year, until_year]."""

    wanted: Wanted
    zone: str
    from_year: int
    until_year: int


@dataclass(frozen=True, slots=True)
class Kept:
    """One event that can be kept: `entries` are what the calendar says for it, `notes` what of it is not kept."""

    line_no: int
    name: str
    entries: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One event that cannot be kept, and why; nothing is made of it."""

    line_no: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadCalendar:
    """What a file says. `title` is the calendar's own name, if it has one."""

    title: str
    days: tuple[DayOff, ...]
    windows: tuple[Window, ...]
    results: tuple[Kept | Problem, ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """A component of the file as text, with the line on which it begins."""

    kind: str
    line_no: int
    lines: tuple[str, ...]


@dataclass
class _Reader:
    options: ReadOptions
    zones: list[str]
    moved: dict[str, list[Any]]
    days: dict[str, str] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    results: list[Kept | Problem] = field(default_factory=list)


def read_ical(text: str, options: ReadOptions) -> ReadCalendar:
    """Read a file, in the order of its events. Raises ValueError where it is no iCalendar file at all."""
    lines = text.removeprefix("\ufeff").splitlines()
    blocks = list(_blocks(lines))
    if not any(_BEGIN.match(line) and "VCALENDAR" in line.upper() for line in lines):
        raise ValueError("is no iCalendar file: it has no BEGIN:VCALENDAR")
    zones = [line for block in blocks if block.kind == "VTIMEZONE" for line in block.lines]
    reader = _Reader(options, zones, _moved(blocks, zones))
    for block in blocks:
        _read(reader, block)
    return ReadCalendar(
        _title(lines),
        tuple(DayOff(day, name) for day, name in reader.days.items()),
        tuple(reader.windows),
        tuple(reader.results),
    )


def _read(reader: _Reader, block: _Block) -> None:
    if block.kind in _SILENT:
        return
    if block.kind != "VEVENT":
        reader.results.append(Problem(block.line_no, "", f"a {block.kind} is no event"))
        return
    event, name = None, ""
    try:
        event = _event(block, reader.zones)
        name = _name(event)
        entries, notes = _kept(reader, event, name)
        reader.results.append(Kept(block.line_no, name, tuple(entries), tuple(notes)))
    except Unkept as fault:
        reader.results.append(Problem(block.line_no, name, str(fault)))
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        reader.results.append(Problem(block.line_no, name, f"is not readable: {reason}"))


def _kept(reader: _Reader, event: IcalEvent, name: str) -> tuple[list[str], list[str]]:
    """What the calendar says for the event, noted in the reader as well, and what of the event is not kept."""
    if str(event.get("STATUS", "")).upper() == "CANCELLED":
        raise Unkept("is cancelled")
    if "RANGE" in getattr(event.get("RECURRENCE-ID"), "params", {}):
        raise Unkept("changes all later events of a series: RANGE=THISANDFUTURE is not kept")
    span = span_of(event, reader.options.zone)
    notes = ["alarms are not kept"] if event.walk("VALARM") else []
    wants_days = reader.options.wanted is Wanted.DAYS_OFF
    if isinstance(span, Timed) is wants_days:
        raise Unkept(
            "has a time of day: --windows skip or --windows defer would keep it as a maintenance window"
            if wants_days
            else "is a whole day: without --windows it would be kept as a day off"
        )
    moved = [] if "RECURRENCE-ID" in event else reader.moved.get(str(event.get("UID", "")), [])
    if isinstance(span, Timed):
        made = _windows(event, span, moved, name, reader.options, notes)
        reader.windows += made
        return [_shown(window) for window in made], notes
    days = _days(event, span, moved, reader.options, notes)
    for day in days:
        known = reader.days.get(day)
        both = name if known in (None, "", name) or not name else f"{known} / {name}"
        reader.days[day] = (both or known or "")[:MAX_NAME_CHARS]
    if len(reader.days) > _MOST_DAYS:
        raise Unkept(f"makes more than {_MOST_DAYS} days: a lower --until-year would do")
    return days, notes


def _days(event: IcalEvent, span: Span, moved: list[Any], options: ReadOptions, notes: list[str]) -> list[str]:
    if "RRULE" not in event and "RDATE" not in event:
        return [_range(span.first, span.last)]
    yearly = yearly_days(event, span, moved, options.from_year)
    if yearly:
        if span.first.year < options.from_year:
            notes.append(f"holds for every year, also before {span.first.year}")
        return yearly
    notes.append(f"its recurrence is kept for {options.from_year} to {options.until_year} only")
    length = span.last - span.first
    firsts = occurrences_of_event(event, datetime.combine(span.first, datetime.min.time()), moved, options.until_year)
    kept = [first.date() for first in firsts if first.year >= options.from_year]
    if not kept:
        raise Unkept(f"does not occur in {options.from_year} to {options.until_year}")
    return [_range(first, first + length) for first in kept]


def _windows(
    event: IcalEvent, span: Timed, moved: list[Any], name: str, options: ReadOptions, notes: list[str]
) -> list[Window]:
    duration = timedelta(microseconds=span.duration_us)
    if "RRULE" not in event and "RDATE" not in event:
        return [_window(span.begins, duration, span.zone, name)]
    line = window_line(event, span, moved, options.from_year)
    if line is not None:
        if span.begins.year < options.from_year:
            notes.append(f"holds always, also before {span.begins.year}")
        return [Window(cron=line, zone=span.zone, duration_us=span.duration_us, name=name)]
    notes.append(f"its recurrence is kept for {options.from_year} to {options.until_year} only")
    begins = occurrences_of_event(event, span.begins, moved, options.until_year, zone=span.zone)
    kept = [each for each in begins if each.year >= options.from_year]
    if not kept:
        raise Unkept(f"does not occur in {options.from_year} to {options.until_year}")
    return [_window(each, duration, span.zone, name) for each in kept]


def _window(begins: datetime, duration: timedelta, zone: str, name: str) -> Window:
    from_us = instant_us(begins, zone)
    return Window(from_us=from_us, to_us=from_us + duration // timedelta(microseconds=1), name=name)


def _shown(window: Window) -> str:
    if window.cron:
        minutes = (window.duration_us or 0) / 60_000_000
        return f"{window.cron} in {window.zone} for {minutes:g} min"
    ends = [datetime.fromtimestamp((each or 0) / 1_000_000, UTC) for each in (window.from_us, window.to_us)]
    return "/".join(each.strftime("%Y-%m-%dT%H:%M:%SZ") for each in ends)


def _range(first: date, last: date) -> str:
    return first.isoformat() if first == last else f"{first.isoformat()}/{last.isoformat()}"


def _moved(blocks: Iterable[_Block], zones: list[str]) -> dict[str, list[Any]]:
    """The instants of series whose events stand for themselves: by the series' UID."""
    moved: dict[str, list[Any]] = {}
    for block in blocks:
        if block.kind == "VEVENT" and any(line.upper().startswith("RECURRENCE-ID") for line in block.lines):
            try:
                event = _event(block, zones)
                moved.setdefault(str(event.get("UID", "")), []).append(event["RECURRENCE-ID"].dt)
            except (ValueError, KeyError, AttributeError):
                continue  # told where the event itself is read
    return moved


def _event(block: _Block, zones: list[str]) -> IcalEvent:
    """The block as an event, read by itself, so that a fault in one does not hide the others."""
    text = "\r\n".join(["BEGIN:VCALENDAR", *zones, *block.lines, "END:VCALENDAR", ""])
    event: IcalEvent
    (event,) = Calendar.from_ical(text).walk("VEVENT")
    for prop, error in event.errors:
        raise Unkept(f"{prop or 'a line'}: {error}")
    return event


def _name(event: IcalEvent) -> str:
    return " ".join(str(event.get("SUMMARY", "")).split())[:MAX_NAME_CHARS]


def _title(lines: Iterable[str]) -> str:
    for line in lines:
        if line.upper().startswith("X-WR-CALNAME"):
            return line.partition(":")[2].strip()
    return ""


def _blocks(lines: list[str]) -> Iterator[_Block]:
    """The components directly inside the calendar, each as it stands."""
    depth, kind, begin = 0, "", 0
    for number, line in enumerate(lines, start=1):
        begun, ended = _BEGIN.match(line), _END.match(line)
        if begun and begun[1].upper() != "VCALENDAR":
            if depth == 0:
                kind, begin = begun[1].upper(), number
            depth += 1
        elif ended and depth:
            depth -= 1
            if depth == 0:
                yield _Block(kind, begin, tuple(lines[begin - 1 : number]))
    if depth:
        yield _Block(f"{kind} without an end", begin, tuple(lines[begin - 1 :]))
