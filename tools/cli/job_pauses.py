"""`tidewheel job pause` and `resume`: of one job by its name, or of many by their labels or all of a namespace.

Called by main.py, which puts the commands into the group of the jobs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tools.cli import bulk
from tools.cli.commands import Call, client_command
from tools.cli.exits import usage
from tools.cli.jobs import EtagOption, NoteOption, OptionalName, RequestIdOption, steer

MANY = "Many jobs"

LabelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Every job that has all of these labels; repeatable.", rich_help_panel=MANY),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every job of the namespace.", rich_help_panel=MANY)]
YesOption = Annotated[bool, typer.Option("--yes", help="Ask nothing beforehand.", rich_help_panel=MANY)]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until all of them are changed.", rich_help_panel=MANY)
]
CatchUpOption = Annotated[
    bool, typer.Option("--catch-up", help="Let the catch-up policy decide about what became due during the pause.")
]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the jobs."""
    client_command(app, "pause")(pause)
    client_command(app, "resume")(resume)


async def pause(
    call: Call,
    name: OptionalName = None,
    label: LabelOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    wait: WaitOption = True,
    etag: EtagOption = "",
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Stop a job's schedule for a while: what becomes due meanwhile is not run. Triggers still work."""
    if _one(name, label, everything, etag):
        await steer(call, "PauseJob", "paused", name or "", etag, note, request_id)
    else:
        await bulk.pause_many(call, label or [], note=note, yes=yes, wait=wait, request_id=request_id)


async def resume(
    call: Call,
    name: OptionalName = None,
    catch_up: CatchUpOption = False,
    label: LabelOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    wait: WaitOption = True,
    etag: EtagOption = "",
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """End a pause. What became due meanwhile is recorded as skipped, or caught up with as the job's policy says."""
    from tidewheel.v1 import job_service_pb2

    if not _one(name, label, everything, etag):
        await bulk.resume_many(
            call, label or [], catch_up=catch_up, note=note, yes=yes, wait=wait, request_id=request_id
        )
        return
    choice = job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP if catch_up else job_service_pb2.PAUSED_OCCURRENCES_SKIP
    await steer(call, "ResumeJob", "resumed", name or "", etag, note, request_id, paused=choice)


def _one(name: str | None, labels: list[str] | None, everything: bool, etag: str) -> bool:
    """Whether one job is meant; else many. Raises Failure(USAGE) unless it is said in exactly one way."""
    if [bool(name), bool(labels), everything].count(True) != 1:
        raise usage("which jobs? give a name, --label, or --all", "exactly one of them")
    if etag and not name:
        raise usage("--etag goes with one job's name")
    return bool(name)
