"""`tidewheel job backfill`: makes runs for occurrences of the past."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import usage


class Manner(StrEnum):
    """How the runs stand to each other, and to the schedule's own."""

    BUFFER_ALL = "buffer-all"
    ALLOW = "allow"


def register(job: typer.Typer) -> None:
    """Put the command into the group of jobs."""
    client_command(job, "backfill")(backfill)


async def backfill(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)],
    since: Annotated[str | None, typer.Option("--from", help="At or after this: RFC 3339, or `2d ago`.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Before this: RFC 3339, or `now`.")] = None,
    max_runs: Annotated[int, typer.Option(min=0, max=100_000, help="Refuse if it would make more. Default: 1000.")] = 0,
    rate: Annotated[float, typer.Option(min=0, help="Runs a second at which they become due. Default: 10.")] = 0.0,
    overlap: Annotated[
        Manner, typer.Option(help="buffer-all: one after the other; allow: side by side.")
    ] = Manner.BUFFER_ALL,
    include_run: Annotated[bool, typer.Option("--include-run", help="Also occurrences that have a run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many runs it would make.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until all of them have started.")] = False,
    note: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    request_id: Annotated[
        str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.")
    ] = None,
) -> None:
    """Make runs for occurrences of the past, by the job's present schedule. Cancel it with `operation cancel`."""
    from tidewheel.schedules import timestamp
    from tidewheel.v1 import job_pb2, job_service_pb2

    from tools.cli import api, operation_views
    from tools.cli.instants import read_instant

    if since is None or until is None:
        raise usage("--from and --to say which occurrences are meant", "for example --from '2d ago' --to now")
    policies = {Manner.BUFFER_ALL: job_pb2.OVERLAP_POLICY_BUFFER_ALL, Manner.ALLOW: job_pb2.OVERLAP_POLICY_ALLOW}
    request = job_service_pb2.BackfillJobRequest(
        namespace=call.namespace,
        name=name,
        max_runs=max_runs,
        runs_per_second=rate,
        overlap=policies[overlap],
        include_run=include_run,
        validate_only=dry_run,
        request_id=api.request_id(request_id),
        note=note,
    )
    # `from` is a keyword of Python: the field can only be reached by its name.
    getattr(request, "from").CopyFrom(timestamp("from", read_instant(since, "--from", call.now)))
    request.to.CopyFrom(timestamp("to", read_instant(until, "--to", call.now)))
    operation = await call.api.jobs("BackfillJob", request)
    if dry_run and not call.as_json:
        call.printer.line(f"would make {operation.total} runs: {operation.description}")
        return
    if wait and not dry_run:
        operation = await operation_views.followed(call, operation)
    operation_views.show(call, operation)
    operation_views.check_success(operation)
