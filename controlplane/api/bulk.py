"""JobService's PauseJobs and ResumeJobs: many jobs, as one operation that was counted and agreed to beforehand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidewheel.v1 import job_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.naming import faults_of_namespace
from controlplane.api.operation_views import OperationViews, encode_operation
from controlplane.operations.steps import Selection, bulk_spec
from core.errors import Invalid, StaleCount
from core.jobspec import JobSpec
from core.rand import Rand
from core.states import JobState, OperationKind
from core.store.audit import Call
from core.store.job_batches import JobBatches
from core.store.operation_records import NewOperation, OperationRecord
from core.store.operations import Operations

Wish = job_service_pb2.PauseJobsRequest | job_service_pb2.ResumeJobsRequest
Handler = Callable[[Any, Origin], Awaitable[Any]]

_SHOWN_NAMES = 20
_CAUGHT_UP = {
    job_service_pb2.PAUSED_OCCURRENCES_UNSPECIFIED: False,
    job_service_pb2.PAUSED_OCCURRENCES_SKIP: False,
    job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP: True,
}


class BulkChanges:
    """Counts the jobs that are meant, and begins the operation over them."""

    def __init__(
        self, calls: Calls, operations: Operations, batches: JobBatches, views: OperationViews, rand: Rand
    ) -> None:
        self._calls = calls
        self._operations = operations
        self._batches = batches
        self._views = views
        self._rand = rand

    def handlers(self) -> Mapping[str, Handler]:
        """The methods of JobService that are answered here."""
        return {"PauseJobs": self.pause, "ResumeJobs": self.resume}

    async def pause(
        self, request: job_service_pb2.PauseJobsRequest, origin: Origin
    ) -> job_service_pb2.ChangeJobsResponse:
        """Pause the active jobs of the selection."""
        call = self._decoded(request, origin)
        spec = bulk_spec(request.selector.labels, request_id=call.key.shown_id, trace=call.trace)
        return await self._change(call, request, OperationKind.PAUSE_JOBS, spec)

    async def resume(
        self, request: job_service_pb2.ResumeJobsRequest, origin: Origin
    ) -> job_service_pb2.ChangeJobsResponse:
        """Resume the paused jobs of the selection."""
        if request.paused not in _CAUGHT_UP:
            raise Invalid("paused", "is not a known choice")
        call = self._decoded(request, origin)
        spec = bulk_spec(
            request.selector.labels,
            request_id=call.key.shown_id,
            trace=call.trace,
            caught_up=_CAUGHT_UP[request.paused],
        )
        return await self._change(call, request, OperationKind.RESUME_JOBS, spec)

    async def _change(
        self, call: Call, request: Wish, kind: OperationKind, spec: Mapping[str, Any]
    ) -> job_service_pb2.ChangeJobsResponse:
        stored = None if request.validate_only else await self._operations.recalled(call)
        if stored is None:
            changes = JobState.ACTIVE if kind is OperationKind.PAUSE_JOBS else JobState.PAUSED
            count, names = await self._count(call.key.namespace, Selection(request.selector.labels, changes))
            if request.validate_only:
                return job_service_pb2.ChangeJobsResponse(count=count, names=names)

            def check() -> None:
                if count != request.expected_count:
                    raise StaleCount(
                        f"it is about {count} jobs now, not {request.expected_count}: look again, then decide",
                        field="expected_count",
                    )

            def render(operation: OperationRecord) -> bytes:
                return job_service_pb2.ChangeJobsResponse(
                    count=count, names=names, operation=encode_operation(operation)
                ).SerializeToString()

            wish = NewOperation(self._rand.uuid(), kind, "", spec, count)
            action = "jobs.pause" if kind is OperationKind.PAUSE_JOBS else "jobs.resume"
            stored = await self._operations.begin(call, wish, action=action, check=check, render=render)
        answer = job_service_pb2.ChangeJobsResponse.FromString(stored)
        answer.operation.CopyFrom(await self._views.begun(answer.operation))
        return answer

    async def _count(self, namespace: str, selection: Selection) -> tuple[int, list[str]]:
        """How many jobs are meant, and the names of the first. One page of the namespace after the other."""
        count, names, after, more = 0, list[str](), "", True
        while more:
            seen, more = await self._batches.walk(namespace, after)
            picked = [job.name for job in seen if selection.picks(job)]
            count += len(picked)
            names += picked[: _SHOWN_NAMES - len(names)]
            after = seen[-1].name if seen else after
        return count, names

    def _decoded(self, request: Wish, origin: Origin) -> Call:
        faults = faults_of_namespace(request.selector.namespace, "selector.")
        with faults.noted():
            _check_labels(request.selector.labels)
        if not request.validate_only:
            if not request.HasField("expected_count"):
                faults.add("expected_count", "is required: ask with validate_only first, and hand the count back")
            if not request.note.strip():
                faults.add("note", "is required: say why")
        return self._calls.mutation(origin, request, faults, namespace=request.selector.namespace, note=request.note)


def _check_labels(labels: Mapping[str, str]) -> None:
    try:
        JobSpec("any", labels=dict(labels))
    except Invalid as fault:
        raise Invalid(f"selector.{fault.field}", fault.rule) from None
