"""`tidewheel operation ...`: looks at work over many jobs or occurrences, waits for it, cancels it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tools.cli.commands import Call, client_command, group
from tools.cli.printing import Column

app = group("Look at operations, wait for them, cancel them.")

IdArgument = Annotated[str, typer.Argument(metavar="OPERATION_ID", help="Id of the operation.", show_default=False)]


@client_command(app, "get")
async def get(call: Call, operation_id: IdArgument) -> None:
    """Show an operation: what it does, how far it came, what it met."""
    from tools.cli import operation_views

    operation_views.show(call, await _found(call, operation_id))


@client_command(app, "list")
async def list_operations(
    call: Call, limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 100
) -> None:
    """List operations, newest first."""
    from tidewheel.v1 import operation_service_pb2

    from tools.cli import api, operation_views

    request = operation_service_pb2.ListOperationsRequest(namespace=call.namespace)
    answer = await api.all_pages(call.api.operations, "ListOperations", request, "operations", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("OPERATION", least=36),
        Column("KIND", 1, least=11),
        Column("STATE", least=9),
        Column("DONE", least=8),
        Column("ABOUT", 3),
        Column("BEGAN", 4, least=20),
        Column("WHAT", 2, least=20),
    ]
    rows = [operation_views.row(call, operation) for operation in answer.operations]
    call.printer.table(columns, rows, empty=f"no operations in namespace {call.namespace}")


@client_command(app, "cancel")
async def cancel(
    call: Call,
    operation_id: IdArgument,
    note: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    request_id: Annotated[
        str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.")
    ] = None,
) -> None:
    """Stop what has not been done. Runs of a backfill that have not started are canceled."""
    from tidewheel.v1 import operation_service_pb2

    from tools.cli import api, operation_views

    request = operation_service_pb2.CancelOperationRequest(
        namespace=call.namespace, operation_id=operation_id, request_id=api.request_id(request_id), note=note
    )
    operation_views.show(call, await call.api.operations("CancelOperation", request))


@client_command(app, "wait")
async def wait(
    call: Call,
    operation_id: IdArgument,
    longest: Annotated[str | None, typer.Option("--for", help="At most so long, such as 10m; else for ever.")] = None,
) -> None:
    """Wait until an operation has ended. Exit code 1 if it failed or was canceled, or goes on."""
    from tools.cli import operation_views
    from tools.cli.instants import read_length

    longest_s = read_length(longest, "--for").total_seconds() if longest else None
    operation = await operation_views.followed(call, await _found(call, operation_id), longest_s)
    operation_views.show(call, operation)
    operation_views.check_success(operation)


async def _found(call: Call, operation_id: str) -> Any:
    from tidewheel.v1 import operation_service_pb2

    request = operation_service_pb2.GetOperationRequest(namespace=call.namespace, operation_id=operation_id)
    return await call.api.operations("GetOperation", request)
