"""`tidewheel calendar ...`: days off and maintenance windows, shared by the jobs of a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.calendar_import import import_ical
from tools.cli.commands import Call, client_command, group
from tools.cli.exits import usage
from tools.cli.printing import Column

if TYPE_CHECKING:
    from tidewheel.v1 import calendar_service_pb2 as pb

app = group("Keep days off and maintenance windows.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the calendar.", show_default=False)]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the calendar.", show_default=False)]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="Calendar as .json or .toml, in the form of `calendar get -o json`.")
]
DayOffOption = Annotated[
    list[str] | None,
    typer.Option("--day-off", help="DATE or DATE=NAME: 2026-12-24, 2026-12-24/2027-01-02, *-12-25; may be repeated."),
]
WeekdayOption = Annotated[list[str] | None, typer.Option(help="sun, mon, ... are off; may be repeated.")]
WorkingOption = Annotated[list[str] | None, typer.Option(help="Date that is worked all the same; may be repeated.")]
WindowOption = Annotated[list[str] | None, typer.Option(help="FROM/TO, RFC 3339 each; may be repeated.")]
ActionOption = Annotated[str | None, typer.Option(help="What windows do: skip or defer.")]
DescriptionOption = Annotated[str | None, typer.Option(help="For people.")]
EtagOption = Annotated[str, typer.Option(help="Refuse if somebody changed the calendar since it was read.")]
NoteOption = Annotated[str, typer.Option(help="Why, for the calendar's history.")]
RequestIdOption = Annotated[str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.")]

client_command(app, "import")(import_ical)


@client_command(app, "create")
async def create(
    call: Call,
    name: OptionalName = None,
    file: FileOption = None,
    day_off: DayOffOption = None,
    weekday: WeekdayOption = None,
    working: WorkingOption = None,
    window: WindowOption = None,
    action: ActionOption = None,
    description: DescriptionOption = None,
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Make a calendar, from a file, from options, or from both."""
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api, calendar_options, calendar_views

    calendar = calendar_options.read_calendar(file) if file else pb.Calendar()
    calendar.namespace = calendar.namespace or call.namespace
    calendar.name = name or calendar.name
    if not calendar.name:
        raise usage("the calendar needs a name", "tidewheel calendar create NAME ..., or `name` in the file")
    options = calendar_options.Additions(day_off, weekday, working, window, action, description)
    calendar_options.add(calendar, options, call.now)
    request = pb.CreateCalendarRequest(calendar=calendar, request_id=api.request_id(request_id), note=note)
    calendar_views.show_change(call, "created", await call.api.calendars("CreateCalendar", request))


@client_command(app, "get")
async def get(
    call: Call,
    name: NameArgument,
    version: Annotated[int, typer.Option(min=0, help="An older version. Default: the present one.")] = 0,
) -> None:
    """Show a calendar and everything it says."""
    from tools.cli import calendar_views

    calendar_views.show(call, await _found(call, name, version))


@client_command(app, "list")
async def list_calendars(
    call: Call, limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 0
) -> None:
    """List calendars by name, and how many jobs refer to each."""
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api, calendar_views

    request = pb.ListCalendarsRequest(namespace=call.namespace)
    answer = await api.all_pages(call.api.calendars, "ListCalendars", request, "calendars", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("NAME", least=12),
        Column("VERSION", 1, right=True),
        Column("JOBS", right=True),
        Column("UPDATED", 2, least=20),
        Column("DESCRIPTION", 3, least=20),
    ]
    rows = [calendar_views.row(calendar) for calendar in answer.calendars]
    call.printer.table(columns, rows, empty=f"no calendars in namespace {call.namespace}")


@client_command(app, "update")
async def update(
    call: Call,
    name: OptionalName = None,
    file: FileOption = None,
    day_off: DayOffOption = None,
    weekday: WeekdayOption = None,
    working: WorkingOption = None,
    window: WindowOption = None,
    action: ActionOption = None,
    description: DescriptionOption = None,
    remove: Annotated[list[str] | None, typer.Option(help="Date that is no longer off, as it stands there.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the change has reached every job.")] = False,
    etag: EtagOption = "",
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Change a calendar. A file replaces what it says; options add to it. The change then reaches its jobs."""
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api, calendar_options, calendar_views, operation_views

    if file:
        calendar = calendar_options.read_calendar(file)
        calendar.namespace, calendar.name = calendar.namespace or call.namespace, name or calendar.name
        if not calendar.name:
            raise usage("which calendar? its name is missing", "tidewheel calendar update NAME ...")
    elif name:
        calendar = await _found(call, name, 0)
    else:
        raise usage("which calendar? its name is missing", "tidewheel calendar update NAME ...")
    calendar.etag = etag or calendar.etag
    before = calendar.SerializeToString(deterministic=True)
    options = calendar_options.Additions(day_off, weekday, working, window, action, description)
    calendar_options.remove(calendar, remove or [])
    calendar_options.add(calendar, options, call.now)
    if not file and calendar.SerializeToString(deterministic=True) == before:
        raise usage("nothing to change was given", "see `tidewheel calendar update --help`")
    request = pb.UpdateCalendarRequest(calendar=calendar, request_id=api.request_id(request_id), note=note)
    answer = await call.api.calendars("UpdateCalendar", request)
    if wait and answer.HasField("operation"):
        answer.operation.CopyFrom(await operation_views.followed(call, answer.operation))
    if call.as_json:
        call.printer.message(answer)
        return
    calendar_views.show_change(call, "updated", answer.calendar)
    if answer.HasField("operation"):
        call.printer.facts(
            [
                ("jobs", f"{operation_views.steps(answer.operation)} reached"),
                ("operation", f"{answer.operation.operation_id} ({operation_views.state(answer.operation)})"),
            ]
        )


@client_command(app, "delete")
async def delete(
    call: Call, name: NameArgument, etag: EtagOption = "", note: NoteOption = "", request_id: RequestIdOption = None
) -> None:
    """Delete a calendar to which no job refers."""
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api, calendar_views

    request = pb.DeleteCalendarRequest(
        namespace=call.namespace, name=name, etag=etag, note=note, request_id=api.request_id(request_id)
    )
    calendar_views.show_change(call, "deleted", await call.api.calendars("DeleteCalendar", request))


@client_command(app, "versions")
async def versions(
    call: Call,
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 100,
) -> None:
    """List the versions of a calendar, newest first: who made each, and why."""
    from tidewheel.v1 import calendar_service_pb2 as pb

    from tools.cli import api, calendar_views

    request = pb.ListCalendarVersionsRequest(namespace=call.namespace, name=name)
    answer = await api.all_pages(call.api.calendars, "ListCalendarVersions", request, "versions", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("VERSION", right=True),
        Column("MADE", least=20),
        Column("AUTHOR", 3),
        Column("SAYS", 1, least=20),
        Column("NOTE", 2, least=10),
    ]
    call.printer.table(columns, [calendar_views.version_row(each) for each in answer.versions])


async def _found(call: Call, name: str, version: int) -> pb.Calendar:
    from tidewheel.v1 import calendar_service_pb2 as pb

    request = pb.GetCalendarRequest(namespace=call.namespace, name=name, version=version)
    found: pb.Calendar = await call.api.calendars("GetCalendar", request)
    return found
