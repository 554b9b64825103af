"""JobService.GetJob and ListJobs: jobs as they stand."""

from __future__ import annotations

from tidewheel.v1 import job_pb2, job_service_pb2

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Origin
from controlplane.api.job_views import JobViews
from controlplane.api.naming import faults_of_namespace
from controlplane.api.servicers import Handlers
from core.errors import Invalid
from core.jobspec import check_job_name, check_namespace
from core.store.jobs import JobRecord, Jobs


async def find_job(reads: Jobs, namespace: str, name: str, job_id: str) -> JobRecord:
    """The job that a request names: a live one by its name, or any by its id. Raises Invalid, NotFound."""
    namespace = check_namespace(namespace)
    if bool(name) == bool(job_id):
        raise Invalid("name", "exactly one of name and job_id must be given")
    if job_id:
        return await reads.by_id(namespace, fields.uuid(job_id, "job_id"))
    return await reads.by_name(namespace, check_job_name(name))


class JobReads:
    """Shows jobs."""

    def __init__(self, reads: Jobs, views: JobViews) -> None:
        self._reads = reads
        self._views = views

    def handlers(self) -> Handlers:
        """The methods that are answered here."""
        return {"GetJob": self.get, "ListJobs": self.list}

    async def get(self, request: job_service_pb2.GetJobRequest, origin: Origin) -> job_pb2.Job:
        """One job by name, or by id, deleted or not."""
        job = await find_job(self._reads, request.namespace, request.name, request.job_id)
        return self._views.shown(job, await self._reads.contents_of([job]))

    async def list(self, request: job_service_pb2.ListJobsRequest, origin: Origin) -> job_service_pb2.ListJobsResponse:
        """A page of live jobs by name."""
        faults = faults_of_namespace(request.namespace)
        with faults.noted():
            fields.name_prefix(request.name_prefix)
        listing = (origin.method, request.namespace or "default", request.name_prefix)
        size, after = page_tokens.page(request, listing, faults, (str,), page_tokens.name)
        page = await self._reads.page(
            request.namespace or "default", prefix=request.name_prefix, after=after or "", size=size
        )
        contents = await self._reads.contents_of(page.jobs)
        return job_service_pb2.ListJobsResponse(
            jobs=[self._views.shown(job, contents) for job in page.jobs],
            next_page_token=page_tokens.following(listing, page.more_after or None),
        )
