"""JobService: registers and steers jobs. The contract is proto/tidewheel/v1/job_service.proto."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from tidewheel.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc, run_pb2

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Calls, Origin
from controlplane.api.decode import JOB_PATHS, WantedJob, decode_job, decode_mask
from controlplane.api.encode import encode_job
from controlplane.api.etags import check_etag
from controlplane.api.occurrences import Occurrences
from controlplane.api.triggers import Triggers
from controlplane.api.violations import Violations
from controlplane.hints import HintSink
from core.errors import Conflict, Invalid
from core.jobspec import JobSpec, check_job_name, check_namespace
from core.rand import Rand
from core.states import JOB_TRANSITIONS, JobEvent, JobState
from core.store.audit import Call
from core.store.job_changes import Changed, JobChanges, NextVersion
from core.store.jobs import JobRecord, Jobs

Context = grpc.aio.ServicerContext[Any, Any]
Steering = job_service_pb2.PauseJobRequest | job_service_pb2.ResumeJobRequest | job_service_pb2.DeleteJobRequest
Decide = Callable[[JobRecord, int], NextVersion | None]

SERVICE = "tidewheel.v1.JobService"


@dataclass(frozen=True, slots=True)
class JobStore:
    """The part of the store that this service uses."""

    reads: Jobs
    changes: JobChanges


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Decodes, calls the store, encodes."""

    def __init__(
        self,
        calls: Calls,
        store: JobStore,
        occurrences: Occurrences,
        triggers: Triggers,
        rand: Rand,
        hints: HintSink,
    ) -> None:
        self._calls = calls
        self._store = store
        self._occurrences = occurrences
        self._triggers = triggers
        self._rand = rand
        self._hints = hints

    # --- the service -----------------------------------------------------------------------------------------------

    async def CreateJob(self, request: job_service_pb2.CreateJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/CreateJob", request, context, self._create)

    async def GetJob(self, request: job_service_pb2.GetJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/GetJob", request, context, self._get)

    async def ListJobs(
        self, request: job_service_pb2.ListJobsRequest, context: Context
    ) -> job_service_pb2.ListJobsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListJobs", request, context, self._list)

    async def UpdateJob(self, request: job_service_pb2.UpdateJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/UpdateJob", request, context, self._update)

    async def PauseJob(self, request: job_service_pb2.PauseJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/PauseJob", request, context, self._pause)

    async def ResumeJob(self, request: job_service_pb2.ResumeJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/ResumeJob", request, context, self._resume)

    async def DeleteJob(self, request: job_service_pb2.DeleteJobRequest, context: Context) -> job_pb2.Job:
        return await self._calls.answer(f"/{SERVICE}/DeleteJob", request, context, self._delete)

    async def TriggerJob(self, request: job_service_pb2.TriggerJobRequest, context: Context) -> run_pb2.Run:
        return await self._calls.answer(f"/{SERVICE}/TriggerJob", request, context, self._triggers.trigger)

    # --- reads -----------------------------------------------------------------------------------------------------

    async def _get(self, request: job_service_pb2.GetJobRequest, origin: Origin) -> job_pb2.Job:
        namespace = check_namespace(request.namespace)
        if bool(request.name) == bool(request.job_id):
            raise Invalid("name", "exactly one of name and job_id must be given")
        if request.job_id:
            return self._shown(await self._store.reads.by_id(namespace, fields.uuid(request.job_id, "job_id")))
        return self._shown(await self._store.reads.by_name(namespace, check_job_name(request.name)))

    async def _list(self, request: job_service_pb2.ListJobsRequest, origin: Origin) -> job_service_pb2.ListJobsResponse:
        faults = Violations()
        size, after = 0, ""
        with faults.noted():
            check_namespace(request.namespace)
        with faults.noted():
            size = fields.page_size(request.page_size)
        with faults.noted():
            fields.name_prefix(request.name_prefix)
        listing = (origin.method, request.namespace or "default", request.name_prefix)
        with faults.noted():
            key = page_tokens.decode(request.page_token, listing, shape=(str,))
            after = check_job_name(str(key[0]), "page_token") if key else ""
        faults.refuse()
        page = await self._store.reads.page(
            request.namespace or "default", prefix=request.name_prefix, after=after, size=size
        )
        return job_service_pb2.ListJobsResponse(
            jobs=[self._shown(job) for job in page.jobs],
            next_page_token=page_tokens.encode(listing, [page.more_after]) if page.more_after else "",
        )

    # --- changes ---------------------------------------------------------------------------------------------------

    async def _create(self, request: job_service_pb2.CreateJobRequest, origin: Origin) -> job_pb2.Job:
        job, faults = request.job, Violations()
        wanted, call = WantedJob(), None
        with faults.noted():
            check_namespace(job.namespace, "job.namespace")
        with faults.noted():
            check_job_name(job.name, "job.name")
        with faults.noted():
            wanted = self._decoded(job, JOB_PATHS)
        with faults.noted():
            call = self._calls.mutation(
                origin, request, namespace=job.namespace or "default", request_id=request.request_id, note=""
            )
        faults.refuse()
        assert call is not None, "nothing was wrong"

        def decide(cutover_us: int) -> NextVersion:
            spec = wanted.new_spec()
            first_us = self._occurrences.first_of(spec.schedule, cutover_us, newly_given=True)
            return NextVersion(spec, wanted.payload or b"", JobState.ACTIVE, first_us)

        changed = await self._store.changes.create(
            call, job_id=self._rand.uuid(), name=job.name, decide=decide, render=self._rendered
        )
        return self._answered(changed)

    async def _update(self, request: job_service_pb2.UpdateJobRequest, origin: Origin) -> job_pb2.Job:
        job, faults = request.job, Violations()
        wanted, call = WantedJob(), None
        with faults.noted():
            check_namespace(job.namespace, "job.namespace")
        with faults.noted():
            check_job_name(job.name, "job.name")
        with faults.noted():
            wanted = self._decoded(job, decode_mask(request.update_mask))
        with faults.noted():
            call = self._calls.mutation(
                origin, request, namespace=job.namespace or "default", request_id=request.request_id, note=request.note
            )
        faults.refuse()
        assert call is not None, "nothing was wrong"

        def decide(present: JobRecord, cutover_us: int) -> NextVersion:
            check_etag(job.etag, present)
            old = _readable(present)
            spec = wanted.edited_spec(old)
            payload = present.payload if wanted.payload is None else wanted.payload
            newly_given = spec.schedule != old.schedule
            first_us = self._occurrences.first_of(spec.schedule, cutover_us, newly_given=newly_given)
            active = present.state is JobState.ACTIVE
            return NextVersion(spec, payload, present.state, first_us if active else None)

        return await self._changed(call, "job.update", job.name, decide)

    async def _pause(self, request: job_service_pb2.PauseJobRequest, origin: Origin) -> job_pb2.Job:
        return await self._steer(request, origin, "job.pause", JobEvent.PAUSE)

    async def _resume(self, request: job_service_pb2.ResumeJobRequest, origin: Origin) -> job_pb2.Job:
        return await self._steer(request, origin, "job.resume", JobEvent.RESUME)

    async def _delete(self, request: job_service_pb2.DeleteJobRequest, origin: Origin) -> job_pb2.Job:
        return await self._steer(request, origin, "job.delete", JobEvent.DELETE)

    async def _steer(self, request: Steering, origin: Origin, action: str, event: JobEvent) -> job_pb2.Job:
        faults, call = Violations(), None
        with faults.noted():
            check_namespace(request.namespace)
        with faults.noted():
            check_job_name(request.name)
        with faults.noted():
            call = self._calls.mutation(
                origin,
                request,
                namespace=request.namespace or "default",
                request_id=request.request_id,
                note=request.note,
            )
        faults.refuse()
        assert call is not None, "nothing was wrong"

        def decide(present: JobRecord, cutover_us: int) -> NextVersion | None:
            check_etag(request.etag, present)
            state = JOB_TRANSITIONS.get((present.state, event))
            if state is None:  # paused already, or active already: what was asked for is so
                return None
            first_us = None
            if state is JobState.ACTIVE:
                schedule = _readable(present).schedule
                first_us = self._occurrences.first_of(schedule, cutover_us, newly_given=False)
            return NextVersion(present.spec, present.payload, state, first_us)

        return await self._changed(call, action, request.name, decide)

    async def _changed(self, call: Call, action: str, name: str, decide: Decide) -> job_pb2.Job:
        return self._answered(
            await self._store.changes.change(call, action=action, name=name, decide=decide, render=self._rendered)
        )

    def _decoded(self, job: job_pb2.Job, paths: frozenset[str] | tuple[str, ...]) -> WantedJob:
        hash_key = f"{job.namespace or 'default'}/{job.name}"
        return decode_job(job, paths, now_us=self._occurrences.now_us(), hash_key=hash_key)

    def _answered(self, changed: Changed) -> job_pb2.Job:
        if changed.landed_shard is not None:
            self._hints.landed(changed.landed_shard)
        return job_pb2.Job.FromString(changed.answer)

    def _rendered(self, job: JobRecord) -> bytes:
        return self._shown(job).SerializeToString()

    def _shown(self, job: JobRecord) -> job_pb2.Job:
        return encode_job(job, next_us=self._occurrences.next_of(job))


def _readable(job: JobRecord) -> JobSpec:
    if job.spec is None:
        raise Conflict(f"{job.fault}; delete the job and create it anew", field="name")
    return job.spec
