"""What a calendar says, from a file and from options. Called by calendars.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidewheel.schedules import timestamp
from tidewheel.v1 import calendar_service_pb2 as pb

from tools.cli.calendar_views import WEEKDAYS
from tools.cli.exits import usage
from tools.cli.instants import read_instant
from tools.cli.message_file import merge, read_document
from tools.cli.words import name_of, words_of

OUTPUT_ONLY = ("calendar_id", "version", "create_time", "update_time", "jobs", "author", "note")


@dataclass(frozen=True, slots=True)
class Additions:
    """What options add; None where they were not given."""

    days_off: Sequence[str] | None = None
    weekdays: Sequence[str] | None = None
    working: Sequence[str] | None = None
    windows: Sequence[str] | None = None
    action: str | None = None
    description: str | None = None


def read_calendar(file: Path) -> pb.Calendar:
    """The calendar that a file describes. Raises Failure(USAGE) that names the file, the field and the rule."""
    calendar = pb.Calendar()
    merge(calendar, read_document(file, "calendar"), str(file))
    for name in OUTPUT_ONLY:
        calendar.ClearField(name)
    return calendar


def add(calendar: pb.Calendar, options: Additions, now: datetime) -> None:
    """Add what the options say. Raises Failure(USAGE)."""
    if options.description is not None:
        calendar.description = options.description
    gives_days = any((options.days_off, options.weekdays, options.working))
    gives_windows = bool(options.windows or options.action)
    held = calendar.WhichOneof("content")
    if (gives_days and (gives_windows or held == "windows")) or (gives_windows and held == "days_off"):
        raise usage("a calendar holds either days off or windows", "make one of each")
    if gives_days:
        _add_days(calendar.days_off, options)
    if gives_windows:
        _add_windows(calendar.windows, options, now)


def remove(calendar: pb.Calendar, dates: Sequence[str]) -> None:
    """Take days off away, named as they stand there. Raises Failure(USAGE) for one that does not."""
    for date in dates:
        kept = [day for day in calendar.days_off.days if day.date != date]
        if len(kept) == len(calendar.days_off.days):
            raise usage(f"--remove: {date!r} is no day off of {calendar.name}", "`calendar get` shows them")
        del calendar.days_off.days[:]
        calendar.days_off.days.extend(kept)


def _add_days(content: pb.DaysOff, options: Additions) -> None:
    known = {day.date: day for day in content.days}
    for text in options.days_off or ():
        date, _, name = text.partition("=")
        day = known.get(date.strip())
        if day is None:
            content.days.add(date=date.strip(), name=name.strip())
        else:
            day.name = name.strip() or day.name
    for word in options.weekdays or ():
        number = _weekday(word)
        if number not in content.weekdays:
            content.weekdays.append(number)
    content.working.extend(date for date in options.working or () if date not in content.working)


def _weekday(word: str) -> int:
    short = word.strip().lower()[:3]
    if short in WEEKDAYS:
        return WEEKDAYS.index(short)
    if word.strip() in "0123456" and len(word.strip()) == 1:
        return int(word)
    raise usage(f"--weekday: {word!r} is no day of the week", ", ".join(WEEKDAYS))


def _add_windows(content: pb.Windows, options: Additions, now: datetime) -> None:
    if options.action is not None:
        name = name_of(pb.WindowAction.DESCRIPTOR, options.action)
        if name is None:
            words = " or ".join(words_of(pb.WindowAction.DESCRIPTOR))
            raise usage(f"--action: must be {words}, not {options.action!r}")
        content.action = pb.WindowAction.DESCRIPTOR.values_by_name[name].number  # type: ignore[assignment]
    for text in options.windows or ():
        begin, separator, end = text.partition("/")
        if not separator:
            raise usage(f"--window: {text!r} is not FROM/TO", "for example 2030-01-31T22:00:00Z/2030-02-01T02:00:00Z")
        window = content.windows.add()
        # `from` is a keyword of Python: the field can only be reached by its name.
        getattr(window, "from").CopyFrom(timestamp("from", read_instant(begin, "--window", now)))
        window.to.CopyFrom(timestamp("to", read_instant(end, "--window", now)))
