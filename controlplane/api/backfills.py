"""JobService.BackfillJob: runs for occurrences of the past, as an operation."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel.v1 import job_pb2, job_service_pb2, operation_pb2

from controlplane.api import fields
from controlplane.api.calls import Calls, Origin
from controlplane.api.naming import faults_of_name
from controlplane.api.operation_views import OperationViews, encode_operation
from controlplane.next_version import readable_spec
from core.clock import Clock
from core.errors import Conflict, Invalid
from core.rand import Rand
from core.states import OperationKind
from core.store.audit import Call
from core.store.backfill_records import BackfillSpec
from core.store.backfills import Backfills
from core.store.jobs import JobRecord, Jobs
from core.store.operation_records import NewOperation, OperationRecord, new_record
from core.store.operations import Operations

Handler = Callable[[Any, Origin], Awaitable[Any]]

_MOST_RUNS = 100_000
_DEFAULT_RUNS = 1_000
_MOST_PER_S = 1_000.0
_DEFAULT_PER_S = 10.0
_GATED = {
    job_pb2.OVERLAP_POLICY_UNSPECIFIED: True,
    job_pb2.OVERLAP_POLICY_BUFFER_ALL: True,
    job_pb2.OVERLAP_POLICY_ALLOW: False,
}


@dataclass(frozen=True, slots=True)
class BackfillStore:
    """The part of the store that backfills use."""

    jobs: Jobs
    operations: Operations
    backfills: Backfills


@dataclass(frozen=True, slots=True)
class _Wish:
    call: Call
    from_us: int
    to_us: int
    most: int
    per_s: float
    gated: bool


class BackfillRequests:
    """Counts what a backfill would make, and begins it."""

    def __init__(self, calls: Calls, store: BackfillStore, views: OperationViews, clock: Clock, rand: Rand) -> None:
        self._calls = calls
        self._store = store
        self._views = views
        self._clock = clock
        self._rand = rand

    def handlers(self) -> Mapping[str, Handler]:
        """The methods of JobService that are answered here."""
        return {"BackfillJob": self.backfill}

    async def backfill(self, request: job_service_pb2.BackfillJobRequest, origin: Origin) -> operation_pb2.Operation:
        """The operation, after its first step."""
        wish = self._decoded(request, origin)
        stored = None if request.validate_only else await self._store.operations.recalled(wish.call)
        if stored is None:
            job = await self._store.jobs.by_name(wish.call.key.namespace, request.name)
            count = await self._store.backfills.count(
                job.job_id,
                readable_spec(job),
                from_us=wish.from_us,
                to_us=wish.to_us,
                include_run=request.include_run,
                most=wish.most,
            )

            def check() -> None:
                if count > wish.most:
                    raise Conflict(
                        f"the range holds more than {wish.most} occurrences to run: take a smaller one, "
                        "or raise max_runs",
                        field="max_runs",
                    )

            operation = self._new(wish, job, count, include_run=request.include_run)
            if request.validate_only:
                check()
                return _only_counted(new_record(wish.call, operation, self._clock.now_us()))
            stored = await self._store.operations.begin(
                wish.call,
                operation,
                action="job.backfill",
                check=check,
                render=lambda record: encode_operation(record).SerializeToString(),
            )
        return await self._views.begun(operation_pb2.Operation.FromString(stored))

    def _new(self, wish: _Wish, job: JobRecord, count: int, *, include_run: bool) -> NewOperation:
        spec = BackfillSpec(
            job_id=str(job.job_id),
            version=job.version,
            from_us=wish.from_us,
            to_us=wish.to_us,
            per_s=wish.per_s,
            gated=wish.gated,
            include_run=include_run,
            trace=wish.call.trace,
        )
        return NewOperation(self._rand.uuid(), OperationKind.BACKFILL, job.name, spec.to_json(), count)

    def _decoded(self, request: job_service_pb2.BackfillJobRequest, origin: Origin) -> _Wish:
        faults = faults_of_name(request.namespace, request.name)
        from_us = to_us = 0
        for name in ("from", "to"):
            if not request.HasField(name):
                faults.add(name, "is required")
        with faults.noted():
            from_us = fields.instant_us(getattr(request, "from"), "from")
        with faults.noted():
            to_us = fields.instant_us(request.to, "to")
            if request.HasField("to") and to_us > self._clock.now_us():
                raise Invalid("to", "must not lie in the future")
            if request.HasField("from") and request.HasField("to") and to_us <= from_us:
                raise Invalid("to", "must be later than from")
        if not 0 <= request.max_runs <= _MOST_RUNS:
            faults.add("max_runs", f"must lie within 0 and {_MOST_RUNS}")
        if not (math.isfinite(request.runs_per_second) and 0 <= request.runs_per_second <= _MOST_PER_S):
            faults.add("runs_per_second", f"must be above 0 and at most {_MOST_PER_S:g}; 0 means {_DEFAULT_PER_S:g}")
        if request.overlap not in _GATED:
            faults.add("overlap", "must be allow or buffer all")
        call = self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)
        return _Wish(
            call,
            from_us,
            to_us,
            request.max_runs or _DEFAULT_RUNS,
            request.runs_per_second or _DEFAULT_PER_S,
            _GATED[request.overlap],
        )


def _only_counted(record: OperationRecord) -> operation_pb2.Operation:
    """What would be done; it has no id, no state and no times, since it was never begun."""
    shown = encode_operation(record)
    for name in ("operation_id", "state", "create_time", "update_time"):
        shown.ClearField(name)
    return shown
