"""`tidewheel calendar import FILE.ics --name NAME`: makes a calendar of an iCalendar file.

Each event is accounted for, with the line on which it begins. What can be kept is kept; exit code 1 says that
something could not be.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.commands import Call
from tools.cli.exits import ExitCode, Failure, usage

if TYPE_CHECKING:
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.ical import Kept, Problem, ReadCalendar

_YEARS_AHEAD = 5


class WindowWish(StrEnum):
    """What becomes of occurrences inside events that have a time of day."""

    SKIP = "skip"
    DEFER = "defer"


async def import_ical(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="iCalendar file (.ics).", show_default=False)],
    name: Annotated[str, typer.Option(help="Name of the calendar.", show_default=False)] = "",
    windows: Annotated[
        WindowWish | None, typer.Option(help="Keep events that have a time of day, as maintenance windows.")
    ] = None,
    zone: Annotated[str, typer.Option(help="Zone of times that name none.")] = "",
    until_year: Annotated[
        int | None, typer.Option(min=1970, max=2199, help="Expand recurrences to the end of this year.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Replace the calendar if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made; asks no server.")] = False,
    note: Annotated[str, typer.Option(help="Why, for the calendar's history.")] = "",
) -> None:
    """Make a calendar of an iCalendar file: events of whole days become days off."""
    from core.zones import use_pinned_tzdata
    from core.zones import zone as checked_zone
    from tools.ical import Problem, ReadOptions, Wanted, read_ical

    if not name:
        raise usage("the calendar needs a name", "--name holidays")
    use_pinned_tzdata()
    if zone:
        checked_zone(zone, field="--zone")
    wanted = Wanted.DAYS_OFF if windows is None else Wanted.WINDOWS
    options = ReadOptions(wanted, zone, call.now.year, until_year or call.now.year + _YEARS_AHEAD)
    try:
        read = read_ical(_text(file), options)
    except ValueError as error:
        raise usage(f"{file}: {error}") from error
    outcome = await _brought_in(call, read, name, windows, update=update, dry_run=dry_run, note=note)
    _show(call, read, outcome)
    lost = sum(isinstance(result, Problem) for result in read.results)
    if lost:
        raise Failure(ExitCode.FAILED, f"{lost} of {len(read.results)} events could not be kept")


async def _brought_in(
    call: Call, read: ReadCalendar, name: str, windows: WindowWish | None, *, update: bool, dry_run: bool, note: str
) -> str:
    """What became of the calendar, in a word."""
    from tidewheel.errors import NotFound
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api

    calendar = _calendar(read, windows)
    calendar.namespace, calendar.name = call.namespace, name
    if calendar.WhichOneof("content") is None:
        return "nothing to make"
    if dry_run:
        return "would create or update" if update else "would create"
    if update:
        try:
            request = pb.GetCalendarRequest(namespace=call.namespace, name=name)
            present = await call.api.calendars("GetCalendar", request)
        except NotFound:
            pass
        else:
            if (present.days_off, present.windows) == (calendar.days_off, calendar.windows):
                return "unchanged"
            calendar.etag, calendar.description = present.etag, calendar.description or present.description
            change = pb.UpdateCalendarRequest(calendar=calendar, request_id=api.request_id(None), note=note)
            await call.api.calendars("UpdateCalendar", change)
            return "updated"
    creation = pb.CreateCalendarRequest(calendar=calendar, request_id=api.request_id(None), note=note)
    await call.api.calendars("CreateCalendar", creation)
    return "created"


def _calendar(read: ReadCalendar, windows: WindowWish | None) -> pb.Calendar:
    from tidewheel.v1 import calendar_service_pb2 as pb

    from controlplane.api.calendar_content import encode_content
    from core.calendars import DaysOff, WindowAction, Windows

    calendar = pb.Calendar(description=read.title)
    if windows is None and read.days:
        encode_content(calendar, DaysOff(days=read.days))
    elif windows is not None and read.windows:
        encode_content(calendar, Windows(WindowAction[windows.name], read.windows))
    return calendar


def _show(call: Call, read: ReadCalendar, outcome: str) -> None:
    from tools.cli.plain_text import one_line
    from tools.ical import Kept

    if call.as_json:
        call.printer.document({"calendar": outcome, "events": [_document(result) for result in read.results]})
        return
    for result in read.results:
        where = f"line {result.line_no}: "
        if isinstance(result, Kept):
            entries = ", ".join(result.entries[:3]) + (", ..." if len(result.entries) > 3 else "")
            call.printer.line(one_line(f"{where}kept {result.name}: {entries}".replace(" : ", ": ")))
            for note in result.notes:
                call.printer.line(one_line(f"{where}not kept: {note}"))
        else:
            call.printer.line(one_line(f"{where}failed {result.name}: {result.reason}".replace(" : ", ": ")))
    kept = sum(isinstance(result, Kept) for result in read.results)
    call.printer.line(f"{outcome}: {kept} of {len(read.results)} events kept")


def _document(result: Kept | Problem) -> dict[str, Any]:
    from tools.ical import Problem

    if isinstance(result, Problem):
        return {"line": result.line_no, "name": result.name, "outcome": "failed", "reason": result.reason}
    entries, notes = list(result.entries), list(result.notes)
    return {"line": result.line_no, "name": result.name, "outcome": "kept", "entries": entries, "notes": notes}


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise usage(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise usage(f"{file}: is not UTF-8 text") from error
