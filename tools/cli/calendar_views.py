"""How calendars are shown: one, as a cell in a list, a version among others, and what a change did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.schedules import to_datetime, to_timedelta
from tidewheel.v1 import calendar_service_pb2 as pb

from tools.cli.instants import write_instant, write_length
from tools.cli.words import word_of

if TYPE_CHECKING:
    from tools.cli.commands import Call

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def show(call: Call, calendar: pb.Calendar) -> None:
    """Everything about one calendar."""
    if call.as_json:
        call.printer.message(calendar)
        return
    call.printer.facts(
        [
            ("calendar", calendar.name),
            ("description", calendar.description),
            ("jobs", calendar.jobs),
            ("version", f"{calendar.version} (etag {calendar.etag})"),
            ("updated", f"{write_instant(to_datetime(calendar.update_time))} by {calendar.author}"),
            ("note", calendar.note),
            ("calendar id", calendar.calendar_id),
        ]
    )
    for line in lines(calendar):
        call.printer.line(line)


def show_change(call: Call, done: str, calendar: pb.Calendar) -> None:
    """One line about a change, or the calendar as JSON."""
    if call.as_json:
        call.printer.message(calendar)
        return
    call.printer.facts([(done, f"{calendar.name}, version {calendar.version}"), ("says", summary(calendar))])


def row(calendar: pb.Calendar) -> list[str]:
    """The cells of one calendar in a list."""
    updated = write_instant(to_datetime(calendar.update_time))
    return [calendar.name, str(calendar.version), str(calendar.jobs), updated, calendar.description]


def version_row(calendar: pb.Calendar) -> list[str]:
    """The cells of one version."""
    made = write_instant(to_datetime(calendar.update_time))
    return [str(calendar.version), made, calendar.author, summary(calendar), calendar.note]


def summary(calendar: pb.Calendar) -> str:
    """What it says, in a few words."""
    if calendar.HasField("windows"):
        count = len(calendar.windows.windows)
        action = word_of(pb.WindowAction.DESCRIPTOR, calendar.windows.action)
        return f"{count} window{'s' if count != 1 else ''}, {action}"
    days = calendar.days_off
    words = [WEEKDAYS[day] if day < len(WEEKDAYS) else str(day) for day in days.weekdays]
    if days.days:
        words.append(f"{len(days.days)} entr{'ies' if len(days.days) != 1 else 'y'} of days off")
    if days.working:
        words.append(f"{len(days.working)} worked all the same")
    return ", ".join(words)


def lines(calendar: pb.Calendar) -> list[str]:
    """What it says, one line an entry."""
    from tools.cli.plain_text import one_line

    if calendar.HasField("windows"):
        action = word_of(pb.WindowAction.DESCRIPTOR, calendar.windows.action)
        return [one_line(f"{action:8}  {_window(window)}") for window in calendar.windows.windows]
    days = calendar.days_off
    shown = [f"off       every {WEEKDAYS[day]}" for day in days.weekdays]
    shown += [one_line(f"off       {day.date}  {day.name}".rstrip()) for day in days.days]
    return [*shown, *(one_line(f"working   {day}") for day in days.working)]


def _window(window: pb.Window) -> str:
    if window.cron:
        length = write_length(to_timedelta(window.duration))
        text = f"{window.cron} in {window.zone or 'UTC'} for {length}"
    else:
        begin, end = (to_datetime(getattr(window, name)) for name in ("from", "to"))
        text = f"{write_instant(begin)}/{write_instant(end)}"
    return f"{text}  {window.name}".rstrip()
