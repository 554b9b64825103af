"""RunService: reads runs and cancels them. The contract is proto/tidewheel/v1/run_service.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import grpc
from tidewheel.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Calls, Origin
from controlplane.api.encode import RUN_STATES, encode_attempt
from controlplane.api.naming import faults_of_namespace
from controlplane.api.run_views import RunViews
from controlplane.api.violations import Violations
from controlplane.hints import HintSink
from core.civil import END_US
from core.errors import Invalid
from core.jobspec import check_job_name, check_namespace
from core.states import RunState
from core.store.jobs import Jobs
from core.store.run_changes import RunChanges
from core.store.runs import RunKey, RunQuery, Runs

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "tidewheel.v1.RunService"
_STATES = {number: state for state, number in RUN_STATES.items()}


@dataclass(frozen=True, slots=True)
class RunStore:
    """The part of the store that this service uses."""

    jobs: Jobs
    reads: Runs
    changes: RunChanges


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Decodes, calls the store, encodes."""

    def __init__(self, calls: Calls, store: RunStore, views: RunViews, hints: HintSink) -> None:
        self._calls = calls
        self._store = store
        self._views = views
        self._hints = hints

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: Context) -> run_pb2.Run:
        return await self._calls.answer(f"/{SERVICE}/GetRun", request, context, self._get)

    async def ListRuns(
        self, request: run_service_pb2.ListRunsRequest, context: Context
    ) -> run_service_pb2.ListRunsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListRuns", request, context, self._list)

    async def ListAttempts(
        self, request: run_service_pb2.ListAttemptsRequest, context: Context
    ) -> run_service_pb2.ListAttemptsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListAttempts", request, context, self._attempts)

    async def CancelRun(self, request: run_service_pb2.CancelRunRequest, context: Context) -> run_pb2.Run:
        return await self._calls.answer(f"/{SERVICE}/CancelRun", request, context, self._cancel)

    async def _get(self, request: run_service_pb2.GetRunRequest, origin: Origin) -> run_pb2.Run:
        return self._views.shown(await self._store.reads.get(*_named(request)))

    async def _list(self, request: run_service_pb2.ListRunsRequest, origin: Origin) -> run_service_pb2.ListRunsResponse:
        wish = _wish(request, origin.method)
        job_id = wish.job_id
        if job_id is None:
            job_id = (await self._store.jobs.by_name(wish.namespace, request.job)).job_id
        else:
            await self._store.jobs.by_id(wish.namespace, job_id)
        query = RunQuery(job_id, wish.from_us, wish.to_us, wish.states)
        page = await self._store.reads.page(wish.namespace, query, after=wish.after, size=wish.size)
        return run_service_pb2.ListRunsResponse(
            runs=[self._views.shown(run) for run in page.runs],
            next_page_token=page_tokens.following(wish.listing, page.more_after),
        )

    async def _attempts(
        self, request: run_service_pb2.ListAttemptsRequest, origin: Origin
    ) -> run_service_pb2.ListAttemptsResponse:
        attempts = await self._store.reads.attempts(*_named(request))
        return run_service_pb2.ListAttemptsResponse(attempts=[encode_attempt(attempt) for attempt in attempts])

    async def _cancel(self, request: run_service_pb2.CancelRunRequest, origin: Origin) -> run_pb2.Run:
        faults, named = Violations(), None
        with faults.noted():
            named = _named(request)
        call = self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)
        assert named is not None, "nothing was wrong"
        changed = await self._store.changes.cancel(call, named[1], self._views.rendered)
        if changed.shard is not None and changed.canceled is not None:
            self._hints.canceled(changed.shard, changed.canceled)
        return run_pb2.Run.FromString(changed.answer)


@dataclass(frozen=True, slots=True)
class _Wish:
    """A listing as it was asked for; `job_id` None: by the job's name."""

    namespace: str
    job_id: UUID | None
    from_us: int
    to_us: int
    states: frozenset[RunState]
    size: int
    listing: tuple[object, ...]
    after: RunKey | None


def _wish(request: run_service_pb2.ListRunsRequest, method: str) -> _Wish:
    faults = faults_of_namespace(request.namespace)
    job_id, from_us, to_us = None, 0, END_US
    with faults.noted():
        job_id = _job_id(request)
    with faults.noted():
        from_us = fields.instant_us(getattr(request, "from"), "from") if request.HasField("from") else 0
    with faults.noted():
        to_us = fields.instant_us(request.to, "to") if request.HasField("to") else END_US
    states = frozenset(_STATES[number] for number in request.states if number in _STATES)
    if any(number not in _STATES for number in request.states):
        faults.add("states", "has a state that runs do not have")
    namespace = request.namespace or "default"
    listing = (method, namespace, request.job, job_id, from_us, to_us, sorted(states))
    size, after = page_tokens.page(request, listing, faults, (int, str), page_tokens.instant_and_id)
    return _Wish(namespace, job_id, from_us, to_us, states, size, listing, after)


def _job_id(request: run_service_pb2.ListRunsRequest) -> UUID | None:
    if bool(request.job) == bool(request.job_id):
        raise Invalid("job", "exactly one of job and job_id must be given: runs are listed by job")
    if request.job_id:
        return fields.uuid(request.job_id, "job_id")
    check_job_name(request.job, "job")
    return None


def _named(
    request: run_service_pb2.GetRunRequest | run_service_pb2.ListAttemptsRequest | run_service_pb2.CancelRunRequest,
) -> tuple[str, UUID]:
    return check_namespace(request.namespace), fields.uuid(request.run_id, "run_id")
