"""Etags: a name for one version of one job, or of one calendar. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from uuid import UUID

from core.errors import StaleEtag
from core.store.calendars import CalendarRecord
from core.store.jobs import JobRecord


def etag_of(job: JobRecord) -> str:
    """The etag of the job's present version; no other job or version has it."""
    return _named(job.job_id, job.version)


def check_etag(given: str, job: JobRecord) -> None:
    """Nothing for an empty etag or the present one. Raises StaleEtag for any other."""
    if given and given != etag_of(job):
        raise StaleEtag(f"job {job.name!r} is at version {job.version}; the etag names another one", field="etag")


def calendar_etag(calendar: CalendarRecord) -> str:
    """The etag of this version of the calendar."""
    return _named(calendar.calendar_id, calendar.version)


def check_calendar_etag(given: str, calendar: CalendarRecord) -> None:
    """As check_etag."""
    if given and given != calendar_etag(calendar):
        raise StaleEtag(
            f"calendar {calendar.name!r} is at version {calendar.version}; the etag names another one", field="etag"
        )


def _named(thing_id: UUID, version: int) -> str:
    named = thing_id.bytes + version.to_bytes(8, "big")
    return urlsafe_b64encode(blake2b(named, digest_size=12, person=b"tw-etag").digest()).decode()
