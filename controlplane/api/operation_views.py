"""Operations as messages, and the one that a call has just asked for, after its first step."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tidewheel.v1 import operation_pb2

from controlplane.api.decode_schedule import timestamp
from controlplane.operations.runner import OperationRunner
from core.errors import OutcomeUnknown, Unavailable
from core.states import OperationKind, OperationState
from core.store.backfill_records import BackfillProgress
from core.store.operation_records import OperationRecord

_KINDS: Final = {
    OperationKind.BACKFILL: operation_pb2.OPERATION_KIND_BACKFILL,
    OperationKind.PAUSE_JOBS: operation_pb2.OPERATION_KIND_PAUSE_JOBS,
    OperationKind.RESUME_JOBS: operation_pb2.OPERATION_KIND_RESUME_JOBS,
    OperationKind.CALENDAR_CHANGE: operation_pb2.OPERATION_KIND_CALENDAR_CHANGE,
}
_STATES: Final = {
    OperationState.RUNNING: operation_pb2.OPERATION_STATE_RUNNING,
    OperationState.SUCCEEDED: operation_pb2.OPERATION_STATE_SUCCEEDED,
    OperationState.CANCELING: operation_pb2.OPERATION_STATE_CANCELING,
    OperationState.CANCELED: operation_pb2.OPERATION_STATE_CANCELED,
    OperationState.FAILED: operation_pb2.OPERATION_STATE_FAILED,
}


class OperationViews:
    """Shows operations to those who asked for them."""

    def __init__(self, runner: OperationRunner) -> None:
        self._runner = runner

    async def begun(self, answered: operation_pb2.Operation) -> operation_pb2.Operation:
        """The operation that a call's answer names as it stands after a step; a repeated call gets it likewise."""
        try:
            return encode_operation(await self._runner.begin(answered.namespace, UUID(answered.operation_id)))
        except (Unavailable, OutcomeUnknown):
            # It is written down, and will be gone on with: that is what the caller was to learn.
            return answered


def encode_operation(operation: OperationRecord) -> operation_pb2.Operation:
    """The operation as it stands."""
    message = operation_pb2.Operation(
        namespace=operation.namespace,
        operation_id=str(operation.operation_id),
        kind=_KINDS[operation.kind],
        state=_STATES[operation.state],
        subject=operation.subject,
        description=describe(operation),
        done=operation.done,
        total=operation.total,
        unchanged=operation.unchanged,
        create_time=timestamp(operation.created_us),
        update_time=timestamp(operation.updated_us),
        author=operation.author,
        note=operation.note,
        error=operation.error,
    )
    if operation.ended_us:
        message.end_time.CopyFrom(timestamp(operation.ended_us))
    return message


def describe(operation: OperationRecord) -> str:
    """One line in words: what the operation does. A spec that is not readable is said to be so (field bug B116)."""
    try:
        return _described(operation)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"what it does cannot be read: {error}"


def _described(operation: OperationRecord) -> str:
    spec = operation.spec
    match operation.kind:
        case OperationKind.BACKFILL:
            return _backfill(operation)
        case OperationKind.PAUSE_JOBS:
            return f"pause {_jobs(operation)}"
        case OperationKind.RESUME_JOBS:
            fate = "catch up on" if spec["caught_up"] else "skip"
            return f"resume {_jobs(operation)}, and {fate} what fell into their pause"
        case OperationKind.CALENDAR_CHANGE:
            return f"carry version {spec['version']} of calendar {operation.subject!r} to its jobs"


def _jobs(operation: OperationRecord) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(operation.spec["labels"].items()))
    of = f"of namespace {operation.namespace!r}"
    return f"the jobs {of} with {labels}" if labels else f"every job {of}"


def _backfill(operation: OperationRecord) -> str:
    spec, progress = operation.spec, BackfillProgress.of(operation)
    bounds = " to ".join(timestamp(spec[name]).ToJsonString() for name in ("from_us", "to_us"))
    manner = "one after the other" if spec["gated"] else "side by side"
    words = [
        f"run job {operation.subject!r} for {bounds}",
        f"at most {spec['per_s']:g} a second, {manner}",
    ]
    if progress.made:
        words.append(f"{progress.made} runs made")
    if progress.taken_back:
        words.append(f"{progress.taken_back} of them taken back")
    return ", ".join(words)
