"""What one step of each kind of operation is: which jobs it picks, and what is decided about them.

The specs that operations keep are made and read here. Called by runner.py; the transactions are in core/store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from controlplane.next_version import Pause, PausedOccurrences, Repinning, Resume
from core.enumerator import Enumerator
from core.states import JobState, OperationEvent, OperationKind, OperationState
from core.store.backfills import Backfills
from core.store.job_batches import JobBatches, JobSketch
from core.store.operation_records import Moved, OperationRecord, Stepped
from core.store.operations import Operations


@dataclass(frozen=True, slots=True)
class Selection:
    """Jobs of a namespace that have all of `labels`, and are in the state that is to change."""

    labels: Mapping[str, str]
    state: JobState

    def picks(self, job: JobSketch) -> bool:
        """Whether the job is one of them."""
        return job.state is self.state and all(job.labels.get(key) == value for key, value in self.labels.items())


def bulk_spec(labels: Mapping[str, str], *, request_id: str, trace: str, caught_up: bool = False) -> dict[str, Any]:
    """The spec of an operation that pauses or resumes jobs."""
    return {"labels": dict(labels), "caught_up": caught_up, "request_id": request_id, "trace": trace}


class OperationSteps:
    """Takes operations one step further."""

    def __init__(
        self, operations: Operations, batches: JobBatches, backfills: Backfills, enumerator: Enumerator
    ) -> None:
        self._operations = operations
        self._batches = batches
        self._backfills = backfills
        self._enumerator = enumerator

    async def step(self, operation: OperationRecord) -> Stepped:
        """One step. Raises Conflict, Invalid or NotFound where the operation cannot go on; Unavailable,
        OutcomeUnknown."""
        if operation.kind is OperationKind.BACKFILL:
            return await self._backfills.step(operation)
        if operation.state is OperationState.CANCELING:
            stop = Moved(operation.progress, event=OperationEvent.CONFIRM_CANCEL)
            return Stepped(await self._operations.settle(operation, stop))
        if operation.kind is OperationKind.CALENDAR_CHANGE:
            return await self._batches.step_by_calendar(
                operation,
                UUID(operation.spec["calendar_id"]),
                decision=Repinning(self._enumerator),
                action="job.calendar",
            )
        if operation.kind is OperationKind.PAUSE_JOBS:
            picks = Selection(operation.spec["labels"], JobState.ACTIVE).picks
            return await self._batches.step_by_name(operation, picks=picks, decision=Pause(), action="job.pause")
        paused = PausedOccurrences.CATCH_UP if operation.spec["caught_up"] else PausedOccurrences.SKIP
        picks = Selection(operation.spec["labels"], JobState.PAUSED).picks
        resume = Resume(paused, self._enumerator)
        return await self._batches.step_by_name(operation, picks=picks, decision=resume, action="job.resume")
