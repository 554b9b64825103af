"""`tidewheel schedule ...`: shows what a schedule means before anything runs by it.

A draft that names no calendar is previewed right here, by the code that servers use: no server is needed. Called by
main.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.commands import Call, client_command, group
from tools.cli.exits import usage
from tools.cli.option_fields import takes_options
from tools.cli.printing import Column
from tools.cli.schedule_options import FIELDS

if TYPE_CHECKING:
    from tidewheel.v1 import job_pb2, schedule_service_pb2

app = group("Show what schedules mean.")

VersionOption = Annotated[int, typer.Option(min=0, help="Version of the job. Default: the present one.")]


@client_command(app, "preview")
@takes_options(FIELDS)
async def preview(
    call: Call,
    given: dict[str, Any],
    job: Annotated[str, typer.Option(help="A job's schedule instead of a draft; asks the server.")] = "",
    version: VersionOption = 0,
    after: Annotated[str | None, typer.Option(help="Occurrences later than this. Default: now.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Occurrences at or after this.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Occurrences before this.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 10,
    include_excluded: Annotated[bool, typer.Option("--include-excluded", help="Also what is taken away.")] = False,
) -> None:
    """List the occurrences of a draft, or of a job: local time, instant, and what shapes them."""
    from tidewheel.schedules import timestamp
    from tidewheel.v1 import schedule_service_pb2

    from tools.cli.instants import read_instant

    request = schedule_service_pb2.PreviewScheduleRequest(
        namespace=call.namespace, count=count, include_excluded=include_excluded
    )
    for field, text, flag in (("after", after, "--after"), ("from", since, "--from"), ("to", until, "--to")):
        if text is not None:
            getattr(request, field).CopyFrom(timestamp(field, read_instant(text, flag, call.now)))
    if job and given:
        raise usage("give either --job or a draft", "`schedule compare NAME` shows what a draft would change")
    if version and not job:
        raise usage("--version needs --job")
    if job:
        request.schedule.job, request.schedule.version = job, version
    else:
        request.schedule.draft.CopyFrom(_draft(given, call))
    _show_preview(call, await _answer(call, request))


@client_command(app, "compare")
@takes_options(FIELDS)
async def compare(
    call: Call,
    given: dict[str, Any],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)],
    version: VersionOption = 0,
    to_version: Annotated[int | None, typer.Option(min=0, help="Compare with this version; 0: the present.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Where to begin. Default: now.")] = None,
    span: Annotated[str | None, typer.Option(help="How far to look, such as 90d. Default: 30d.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many changes.")] = 100,
) -> None:
    """Show which occurrences of a job an update with these options, or another version, gains, loses and moves."""
    from tidewheel.schedules import duration, timestamp
    from tidewheel.v1 import schedule_service_pb2

    from tools.cli.instants import read_instant, read_length

    if bool(given) == (to_version is not None):
        raise usage("give either what to change or --to-version", "for example --cron '0 3 * * *'")
    request = schedule_service_pb2.CompareSchedulesRequest(namespace=call.namespace, limit=limit)
    request.before.job, request.before.version = name, version
    if to_version is not None:
        request.after.job, request.after.version = name, to_version
    else:
        request.after.draft.CopyFrom(_draft(given, call, await _present(call, name)))
    if since is not None:
        getattr(request, "from").CopyFrom(timestamp("from", read_instant(since, "--from", call.now)))
    if span is not None:
        request.span.CopyFrom(duration(read_length(span, "--span")))
    _show_comparison(call, await call.api.schedules("CompareSchedules", request))


async def _present(call: Call, name: str) -> job_pb2.Schedule:
    """What an update would change: the present schedule of a job."""
    from tidewheel.v1 import job_pb2, job_service_pb2

    job = await call.api.jobs("GetJob", job_service_pb2.GetJobRequest(namespace=call.namespace, name=name))
    assert isinstance(job, job_pb2.Job)
    return job.schedule


def _draft(given: dict[str, Any], call: Call, base: job_pb2.Schedule | None = None) -> job_pb2.Schedule:
    """What the options say, as a schedule of their own, or as `job update` would change `base`."""
    from tidewheel.v1 import job_pb2

    from tools.cli.option_fields import Reader
    from tools.cli.schedule_options import fill_schedule

    made = job_pb2.Schedule()
    if base is not None:
        made.CopyFrom(base)
    fill_schedule(made, Reader(given, call.now))
    return made


async def _answer(
    call: Call, request: schedule_service_pb2.PreviewScheduleRequest
) -> schedule_service_pb2.PreviewScheduleResponse:
    """The server's answer where only it can give one: for jobs, and for drafts that name calendars."""
    draft = request.schedule.draft
    if request.schedule.job or draft.exclude.calendars or draft.windows:
        answer: schedule_service_pb2.PreviewScheduleResponse = await call.api.schedules("PreviewSchedule", request)
        return answer
    from tools.cli.local_preview import preview_here

    return preview_here(request, call.now)


def _show_preview(call: Call, answer: schedule_service_pb2.PreviewScheduleResponse) -> None:
    from google.protobuf.json_format import MessageToDict
    from tidewheel.schedules import to_datetime

    from tools.cli.instants import write_instant

    if call.as_json:
        call.printer.document([MessageToDict(one) for one in answer.occurrences])
        return
    columns = [
        Column("LOCAL", least=25),
        Column("AT (UTC)", least=20),
        Column("DUE (UTC)", 3, least=20),
        Column("MARKS", 1),
        Column("NOTES", 2, least=20),
    ]
    rows = [
        (
            one.local,
            write_instant(to_datetime(one.at)),
            write_instant(to_datetime(one.due_at)) if one.due_at != one.at else "",
            _marks(one),
            "; ".join(one.notes),
        )
        for one in answer.occurrences
    ]
    call.printer.table(columns, rows, empty="no occurrence")
    if call.printer.terminal:
        words = answer.notes if answer.more else [*answer.notes, "There is none after these."]
        call.printer.facts(("", note) for note in words)


def _show_comparison(call: Call, answer: schedule_service_pb2.CompareSchedulesResponse) -> None:
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import schedule_service_pb2

    from tools.cli.instants import write_instant
    from tools.cli.words import word_of

    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("CHANGE"),
        Column("BEFORE", least=25),
        Column("AFTER", least=25),
        Column("BEFORE (UTC)", 2, least=20),
        Column("AFTER (UTC)", 1, least=20),
    ]
    rows = [
        (
            word_of(schedule_service_pb2.ScheduleChangeKind.DESCRIPTOR, change.kind),
            change.before.local,
            change.after.local,
            write_instant(to_datetime(change.before.at)) if change.HasField("before") else "",
            write_instant(to_datetime(change.after.at)) if change.HasField("after") else "",
        )
        for change in answer.changes
    ]
    call.printer.table(columns, rows, empty="no difference")
    if call.printer.terminal:
        part = " of a part of the span: it holds more than can be compared" if answer.partial else ""
        counted = f"{answer.gained} gained, {answer.lost} lost, {answer.moved} moved, {answer.unchanged} unchanged"
        call.printer.line(f"{counted}{part}")


def _marks(one: schedule_service_pb2.Occurrence) -> str:
    from tidewheel.v1 import schedule_service_pb2

    from tools.cli.words import word_of

    return " ".join(word_of(schedule_service_pb2.Mark.DESCRIPTOR, mark) for mark in one.marks)
