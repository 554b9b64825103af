"""How operations are shown, and waited for: a line that grows on a terminal, silence in a pipe."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tidewheel.schedules import to_datetime
from tidewheel.v1 import operation_pb2, operation_service_pb2

from tools.cli.exits import ExitCode, Failure
from tools.cli.instants import write_age, write_instant
from tools.cli.progress_bar import ProgressBar
from tools.cli.words import word_of

if TYPE_CHECKING:
    from tools.cli.commands import Call

_LOOK_EVERY_S = 0.5
_OPEN = (operation_pb2.OPERATION_STATE_RUNNING, operation_pb2.OPERATION_STATE_CANCELING)


def is_open(operation: operation_pb2.Operation) -> bool:
    """Whether something may be left to do."""
    return operation.state in _OPEN


def state(operation: operation_pb2.Operation) -> str:
    """Its state in a word."""
    return word_of(operation_pb2.OperationState.DESCRIPTOR, operation.state)


def kind(operation: operation_pb2.Operation) -> str:
    """What it is in a word."""
    return word_of(operation_pb2.OperationKind.DESCRIPTOR, operation.kind)


def steps(operation: operation_pb2.Operation) -> str:
    """How far it came."""
    unchanged = f" ({operation.unchanged} unchanged)" if operation.unchanged else ""
    return f"{operation.done} of {operation.total}{unchanged}"


def show(call: Call, operation: operation_pb2.Operation) -> None:
    """Everything about one operation."""
    if call.as_json:
        call.printer.message(operation)
        return
    call.printer.facts(
        [
            ("operation", operation.operation_id),
            ("does", operation.description),
            ("state", state(operation)),
            ("done", steps(operation)),
            ("error", operation.error),
            ("note", operation.note),
            ("author", operation.author),
            ("began", _when(call, operation, "create_time")),
            ("ended", _when(call, operation, "end_time")),
        ]
    )


def row(call: Call, operation: operation_pb2.Operation) -> list[str]:
    """The cells of one operation in a list."""
    return [
        operation.operation_id,
        kind(operation),
        state(operation),
        steps(operation),
        operation.subject,
        write_instant(to_datetime(operation.create_time)),
        operation.error or operation.description,
    ]


async def followed(call: Call, operation: operation_pb2.Operation, longest_s: float | None = None) -> Any:
    """The operation when it has ended. On a terminal its progress is shown meanwhile.

    Raises Failure(FAILED) when it has not ended after `longest_s`.
    """
    given_up_s = None if longest_s is None else time.monotonic() + longest_s
    with ProgressBar(call) as bar:
        while is_open(operation):
            bar.show(kind(operation), operation.done, operation.total)
            if given_up_s is not None and time.monotonic() >= given_up_s:
                raise Failure(
                    ExitCode.FAILED,
                    f"operation {operation.operation_id} goes on: {steps(operation)}",
                    f"tidewheel operation wait {operation.operation_id}",
                )
            await asyncio.sleep(_LOOK_EVERY_S)
            request = operation_service_pb2.GetOperationRequest(
                namespace=operation.namespace, operation_id=operation.operation_id
            )
            operation = await call.api.operations("GetOperation", request)
        bar.show(kind(operation), operation.done, operation.total)
    return operation


def check_success(operation: operation_pb2.Operation) -> None:
    """Raises Failure(FAILED) for an operation that ended otherwise."""
    if not is_open(operation) and operation.state != operation_pb2.OPERATION_STATE_SUCCEEDED:
        reason = f": {operation.error}" if operation.error else ""
        raise Failure(ExitCode.FAILED, f"operation {operation.operation_id} is {state(operation)}{reason}")


def _when(call: Call, operation: operation_pb2.Operation, name: str) -> str:
    if not operation.HasField(name):
        return ""
    instant = to_datetime(getattr(operation, name))
    # What happened while this command ran needs no age, and has none by the clock that the command began with.
    return (
        f"{write_instant(instant)} ({write_age(instant, call.now)})" if instant < call.now else write_instant(instant)
    )
