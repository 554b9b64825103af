"""`tidewheel job versions`, `diff` and `restore`: what a job has been, who made it so, and the way back.

Called by main.py, which puts the commands into the group of the jobs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import usage
from tools.cli.jobs import EtagOption, NameArgument, NoteOption, OptionalName, RequestIdOption
from tools.cli.printing import Column

IdOption = Annotated[str, typer.Option("--id", help="Job id instead of the name; finds deleted jobs too.")]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the jobs."""
    client_command(app, "versions")(versions)
    client_command(app, "diff")(diff)
    client_command(app, "restore")(restore)


async def versions(
    call: Call,
    name: OptionalName = None,
    job_id: IdOption = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 100,
) -> None:
    """List the versions of a job, newest first: who made each, when, and why."""
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import job_pb2, job_service_pb2

    from tools.cli import api
    from tools.cli.instants import write_instant
    from tools.cli.schedule_words import schedule_line
    from tools.cli.words import word_of

    if bool(name) == bool(job_id):
        raise usage("give either a name or --id")
    request = job_service_pb2.ListJobVersionsRequest(namespace=call.namespace, name=name or "", job_id=job_id)
    answer = await api.all_pages(call.api.jobs, "ListJobVersions", request, "versions", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("VERSION", right=True),
        Column("STATE"),
        Column("SINCE (UTC)", least=20),
        Column("AUTHOR", 2),
        Column("NOTE", 1, least=16),
        Column("SCHEDULE", 3, least=16),
    ]
    rows = [
        (
            one.version,
            word_of(job_pb2.JobState.DESCRIPTOR, one.state),
            write_instant(to_datetime(one.cutover)),
            one.author,
            one.note,
            schedule_line(one.job.schedule) if one.job.HasField("schedule") else "when triggered",
        )
        for one in answer.versions
    ]
    call.printer.table(columns, rows)


async def diff(
    call: Call,
    name: NameArgument,
    from_version: Annotated[int, typer.Argument(metavar="FROM", min=1, help="A version.", show_default=False)],
    to_version: Annotated[
        int, typer.Argument(metavar="TO", min=0, help="Another one. Default: the present one.", show_default=False)
    ] = 0,
) -> None:
    """Show what differs between two versions of a job, field by field."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli.plain_text import one_line

    request = job_service_pb2.CompareJobVersionsRequest(
        namespace=call.namespace, name=name, from_version=from_version, to_version=to_version
    )
    answer = await call.api.jobs("CompareJobVersions", request)
    if call.as_json:
        call.printer.message(answer)
        return
    if not answer.changes:
        call.printer.line("no difference")
    for change in answer.changes:
        call.printer.line(one_line(change.path))
        for sign, value in (("-", getattr(change, "from")), ("+", change.to)):
            if value:
                call.printer.line(f"  {sign} {one_line(value)}")


async def restore(
    call: Call,
    name: NameArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="What to go back to.", show_default=False)],
    etag: EtagOption = "",
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Edit a job to what an older version said, from now on. It stays active or paused as it is."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api, job_views

    request = job_service_pb2.RestoreJobVersionRequest(
        namespace=call.namespace,
        name=name,
        version=version,
        etag=etag,
        request_id=api.request_id(request_id),
        note=note,
    )
    job_views.show_change(call, "restored", await call.api.jobs("RestoreJobVersion", request))
