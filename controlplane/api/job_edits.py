"""JobService's changes of one job: create, update, restore, pause, resume, delete.

Decodes what is asked for; what the next version is to be is decided by controlplane/next_version.py, in the
transaction of core/store/job_changes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from tidewheel.v1 import job_pb2, job_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.decode import JOB_PATHS, WantedJob, decode_job, decode_mask
from controlplane.api.etags import check_etag
from controlplane.api.job_views import JobViews
from controlplane.api.naming import faults_of_name
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from controlplane.hints import HintSink
from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Resume, readable_spec
from core.enumerator import Enumerator
from core.errors import Conflict
from core.jobspec import JobSpec
from core.rand import Rand
from core.store.audit import Call
from core.store.job_changes import Changed, Decision, JobChanges, NextVersion
from core.store.job_versions import JobVersions
from core.store.jobs import JobRecord, Jobs
from core.store.surroundings import Surroundings, Wishes

PAUSED_CHOICES: Final = {
    job_service_pb2.PAUSED_OCCURRENCES_UNSPECIFIED: PausedOccurrences.SKIP,
    job_service_pb2.PAUSED_OCCURRENCES_SKIP: PausedOccurrences.SKIP,
    job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP: PausedOccurrences.CATCH_UP,
}
Named = (
    job_service_pb2.PauseJobRequest
    | job_service_pb2.ResumeJobRequest
    | job_service_pb2.DeleteJobRequest
    | job_service_pb2.RestoreJobVersionRequest
)

Telling = job_service_pb2.CreateJobRequest | job_service_pb2.UpdateJobRequest
Told = tuple[WantedJob, Call]


@dataclass(frozen=True, slots=True)
class JobStore:
    """The part of the store that changes of jobs use."""

    reads: Jobs
    versions: JobVersions
    changes: JobChanges


class JobEdits:
    """Changes jobs one by one."""

    def __init__(
        self, calls: Calls, store: JobStore, views: JobViews, enumerator: Enumerator, rand: Rand, hints: HintSink
    ) -> None:
        self._calls = calls
        self._store = store
        self._views = views
        self._enumerator = enumerator
        self._rand = rand
        self._hints = hints

    def handlers(self) -> Handlers:
        """The methods that are answered here."""
        return {
            "CreateJob": self.create,
            "UpdateJob": self.update,
            "RestoreJobVersion": self.restore,
            "PauseJob": self.pause,
            "ResumeJob": self.resume,
            "DeleteJob": self.delete,
        }

    async def create(self, request: job_service_pb2.CreateJobRequest, origin: Origin) -> job_pb2.Job:
        """Register a job."""
        wanted, call = self._decoded(request, lambda: JOB_PATHS, "", origin)
        job_id = self._rand.uuid()
        decision = Creation(job_id, wanted.new_spec(), wanted.payload or b"", self._enumerator)
        return self._answered(
            await self._store.changes.create(
                call, job_id=job_id, name=request.job.name, decision=decision, render=self._views.rendered
            )
        )

    async def update(self, request: job_service_pb2.UpdateJobRequest, origin: Origin) -> job_pb2.Job:
        """Change what the mask names, from now on."""
        wanted, call = self._decoded(request, lambda: decode_mask(request.update_mask), request.note, origin)

        def edited(present: JobRecord) -> tuple[JobSpec, bytes]:
            payload = present.payload if wanted.payload is None else wanted.payload
            return wanted.edited_spec(readable_spec(present)), payload

        decision = Edit(edited, self._enumerator)
        return await self._changed(call, "job.update", request.job.name, request.job.etag, decision)

    async def restore(self, request: job_service_pb2.RestoreJobVersionRequest, origin: Origin) -> job_pb2.Job:
        """Edit the job to what an older version said."""
        faults = faults_of_name(request.namespace, request.name)
        if request.version < 1:
            faults.add("version", "must be 1 or greater: the versions of a job count from 1")
        call = self._checked(request, origin, faults)
        present = await self._store.reads.by_name(call.key.namespace, request.name)
        old = await self._store.versions.get(present.job_id, request.version)
        if old.spec is None:
            raise Conflict(f"version {old.version} cannot be restored: {old.fault}", field="version")
        said = old.spec, old.payload

        def edited(job: JobRecord) -> tuple[JobSpec, bytes]:
            if job.job_id != present.job_id:
                raise Conflict("the job was deleted and created anew in between", field="name")
            return said

        decision = Edit(edited, self._enumerator, restored=True)
        return await self._changed(call, "job.restore", request.name, request.etag, decision)

    async def pause(self, request: job_service_pb2.PauseJobRequest, origin: Origin) -> job_pb2.Job:
        """Run no occurrence from now on."""
        call = self._named(request, origin)
        return await self._changed(call, "job.pause", request.name, request.etag, Pause())

    async def resume(self, request: job_service_pb2.ResumeJobRequest, origin: Origin) -> job_pb2.Job:
        """End a pause."""
        faults = faults_of_name(request.namespace, request.name)
        if request.paused not in PAUSED_CHOICES:
            faults.add("paused", "is not a known choice")
        call = self._checked(request, origin, faults)
        decision = Resume(PAUSED_CHOICES[request.paused], self._enumerator)
        return await self._changed(call, "job.resume", request.name, request.etag, decision)

    async def delete(self, request: job_service_pb2.DeleteJobRequest, origin: Origin) -> job_pb2.Job:
        """End the job and free its name."""
        call = self._named(request, origin)
        return await self._changed(call, "job.delete", request.name, request.etag, Deletion(self._enumerator))

    # --- what they share -------------------------------------------------------------------------------------------

    def _decoded(self, request: Telling, paths: Callable[[], Collection[str]], note: str, origin: Origin) -> Told:
        """What a creation or an update asks for. Raises BadRequest with every fault."""
        job, wanted = request.job, WantedJob()
        faults = faults_of_name(job.namespace, job.name, "job.")
        hash_key = f"{job.namespace or 'default'}/{job.name}"
        with faults.noted():
            wanted = decode_job(job, paths(), now_us=self._views.now_us(), hash_key=hash_key)
        return wanted, self._calls.mutation(origin, request, faults, namespace=job.namespace, note=note)

    def _named(self, request: Named, origin: Origin) -> Call:
        """The call of a request that names a job and says no more. Raises BadRequest with every fault."""
        return self._checked(request, origin, faults_of_name(request.namespace, request.name))

    def _checked(self, request: Named, origin: Origin, faults: Violations) -> Call:
        return self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)

    async def _changed(self, call: Call, action: str, name: str, etag: str, decision: Decision) -> job_pb2.Job:
        changed = await self._store.changes.change(
            call, action=action, name=name, decision=Checked(etag, decision), render=self._views.rendered
        )
        return self._answered(changed)

    def _answered(self, changed: Changed) -> job_pb2.Job:
        if changed.landed_shard is not None:
            self._hints.landed(changed.landed_shard)
        return job_pb2.Job.FromString(changed.answer)


@dataclass(frozen=True, slots=True)
class Checked:
    """A decision that is refused where the job is at another version than the caller's etag says."""

    etag: str
    decision: Decision

    def wishes(self, present: JobRecord | None) -> Wishes:
        assert present is not None, "only a job that is there has an etag"
        check_etag(self.etag, present)
        return self.decision.wishes(present)

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return self.decision.minutes(present, around, at_us)

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        return self.decision.version(present, around, at_us)
