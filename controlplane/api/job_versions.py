"""JobService.ListJobVersions and CompareJobVersions: what a job said before, and what was changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from tidewheel.v1 import job_pb2, job_service_pb2

from controlplane.api import page_tokens
from controlplane.api.calls import Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.encode import JOB_STATES, add_spec
from controlplane.api.job_reads import find_job
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from core.errors import Conflict, Invalid
from core.store.job_versions import NEWEST, JobVersions, VersionRecord
from core.store.jobs import JobRecord, Jobs

# Fields that are compared whole: a change of one entry is told with the others beside it.
_WHOLE: Final = frozenset({"labels"})


class JobVersionReads:
    """Shows versions of jobs."""

    def __init__(self, reads: Jobs, versions: JobVersions) -> None:
        self._reads = reads
        self._versions = versions

    def handlers(self) -> Handlers:
        """The methods that are answered here."""
        return {"ListJobVersions": self.list, "CompareJobVersions": self.compare}

    async def list(
        self, request: job_service_pb2.ListJobVersionsRequest, origin: Origin
    ) -> job_service_pb2.ListJobVersionsResponse:
        """A page of versions, newest first."""
        listing = (origin.method, request.namespace or "default", request.name, request.job_id)
        size, before = page_tokens.page(request, listing, Violations(), (int,), page_tokens.version)
        job = await find_job(self._reads, request.namespace, request.name, request.job_id)
        page = await self._versions.page(job.job_id, before=NEWEST if before is None else before, size=size)
        return job_service_pb2.ListJobVersionsResponse(
            versions=[_shown(job, version) for version in page.versions],
            next_page_token=page_tokens.following(listing, page.more_before or None),
        )

    async def compare(
        self, request: job_service_pb2.CompareJobVersionsRequest, origin: Origin
    ) -> job_service_pb2.CompareJobVersionsResponse:
        """What differs between two versions, field by field."""
        if request.from_version < 1:
            raise Invalid("from_version", "must be 1 or greater: the versions of a job count from 1")
        if request.to_version < 0:
            raise Invalid("to_version", "must be 1 or greater, or 0 for the present version")
        job = await find_job(self._reads, request.namespace, request.name, request.job_id)
        before = await self._said(job, request.from_version, "from_version")
        after = await self._said(job, request.to_version or job.version, "to_version")
        return job_service_pb2.CompareJobVersionsResponse(changes=list(differences(before, after)))

    async def _said(self, job: JobRecord, version: int, at: str) -> Mapping[str, Any]:
        record = await self._versions.get(job.job_id, version)
        if record.spec is None:
            raise Conflict(f"version {version} cannot be compared: {record.fault}", field=at)
        said: Mapping[str, Any] = MessageToDict(_said_by(record), preserving_proto_field_name=True)
        return said


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], above: str = ""
) -> Iterator[job_service_pb2.FieldChange]:
    """What differs between two messages, given as JSON values; by path, nested messages field by field."""
    for name in sorted(before.keys() | after.keys()):
        path, old, new = above + name, before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict) and path not in _WHOLE:
            yield from differences(old, new, f"{path}.")
        else:
            change = job_service_pb2.FieldChange(path=path, to=_json(new))
            setattr(change, "from", _json(old))  # a keyword of Python: it cannot be written as an argument
            yield change


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _shown(job: JobRecord, record: VersionRecord) -> job_service_pb2.JobVersion:
    message = job_service_pb2.JobVersion(
        version=record.version,
        state=JOB_STATES[record.state],
        cutover=timestamp(record.cutover_us),
        author=record.author,
        note=record.note,
        request_id=record.request_id,
        job=_said_by(record),
    )
    message.job.namespace, message.job.name = job.namespace, job.name
    message.job.version, message.job.error = record.version, record.fault
    return message


def _said_by(record: VersionRecord) -> job_pb2.Job:
    message = job_pb2.Job(state=JOB_STATES[record.state], payload=record.payload)
    if record.spec is not None:
        add_spec(message, record.spec)
    return message
