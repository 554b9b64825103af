"""`tidewheel run ...`: reads and cancels runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tools.cli.commands import Call, client_command, group
from tools.cli.exits import usage
from tools.cli.instants import read_instant
from tools.cli.printing import Column

app = group("Read and cancel runs.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="Id of the run.", show_default=False)]


@client_command(app, "get")
async def get(call: Call, run_id: RunArgument) -> None:
    """Show a run, and why it is in its state."""
    from tidewheel.v1 import run_service_pb2

    from tools.cli import run_views

    request = run_service_pb2.GetRunRequest(namespace=call.namespace, run_id=run_id)
    run_views.show_run(call, await call.api.runs("GetRun", request))


@client_command(app, "list")
async def list_runs(
    call: Call,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Name of the job.", show_default=False)] = None,
    job_id: Annotated[str, typer.Option("--id", help="Job id instead of the name; for deleted jobs.")] = "",
    since: Annotated[str | None, typer.Option(help="scheduled_for at or after: RFC 3339, or `2h ago`.")] = None,
    until: Annotated[str | None, typer.Option(help="scheduled_for before: RFC 3339, or `now`.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="Only runs in this state; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 100,
) -> None:
    """List the runs of one job, newest first."""
    from tidewheel.schedules import timestamp
    from tidewheel.v1 import run_service_pb2

    from tools.cli import api, run_views

    if bool(job) == bool(job_id):
        raise usage("give either the job's name or --id", "runs are listed by job")
    request = run_service_pb2.ListRunsRequest(
        namespace=call.namespace,
        job=job or "",
        job_id=job_id,
        states=[run_views.state_name(word) for word in state or ()],
    )
    if since:
        # `from` is a keyword of Python: the field can only be reached by its name.
        getattr(request, "from").CopyFrom(timestamp("since", read_instant(since, "--since", call.now)))
    if until:
        request.to.CopyFrom(timestamp("until", read_instant(until, "--until", call.now)))
    answer = await api.all_pages(call.api.runs, "ListRuns", request, "runs", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("SCHEDULED FOR", least=20),
        Column("STATE", least=9),
        Column("ATTEMPT", 3, right=True),
        Column("LATE", 2, right=True),
        Column("TOOK", 4, right=True),
        Column("RUN ID", 1, least=36),
        Column("WORKER", 5),
        Column("ERROR", 6, least=20),
    ]
    call.printer.table(columns, [run_views.row(run) for run in answer.runs], empty=f"no runs of {job or job_id}")


@client_command(app, "attempts")
async def attempts(call: Call, run_id: RunArgument) -> None:
    """List a run's attempts, the open one last."""
    from tidewheel.v1 import run_service_pb2

    from tools.cli import run_views

    request = run_service_pb2.ListAttemptsRequest(namespace=call.namespace, run_id=run_id)
    answer = await call.api.runs("ListAttempts", request)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("ATTEMPT", right=True),
        Column("OUTCOME", least=9),
        Column("START", 1, least=20),
        Column("TOOK", 2, right=True),
        Column("WORKER", 3),
        Column("ERROR", 1, least=20),
    ]
    rows = [run_views.attempt_row(attempt) for attempt in answer.attempts]
    call.printer.table(columns, rows, empty="no attempt yet")


@client_command(app, "cancel")
async def cancel(
    call: Call,
    run_id: RunArgument,
    note: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    request_id: Annotated[
        str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.")
    ] = None,
) -> None:
    """Cancel a run that waits, or tell the worker of one that runs to stop."""
    from tidewheel.v1 import run_service_pb2

    from tools.cli import api, run_views

    request = run_service_pb2.CancelRunRequest(
        namespace=call.namespace, run_id=run_id, request_id=api.request_id(request_id), note=note
    )
    run_views.show_change(call, "cancel accepted", await call.api.runs("CancelRun", request))
