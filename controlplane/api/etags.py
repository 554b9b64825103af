"""Etags of jobs: a name for one version of one job. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b

from core.errors import StaleEtag
from core.store.jobs import JobRecord


def etag_of(job: JobRecord) -> str:
    """The etag of the job's present version; no other job or version has it."""
    named = job.job_id.bytes + job.version.to_bytes(8, "big")
    return urlsafe_b64encode(blake2b(named, digest_size=12, person=b"tw-etag").digest()).decode()


def check_etag(given: str, job: JobRecord) -> None:
    """Nothing for an empty etag or the present one. Raises StaleEtag for any other."""
    if given and given != etag_of(job):
        raise StaleEtag(f"job {job.name!r} is at version {job.version}; the etag names another one", field="etag")
