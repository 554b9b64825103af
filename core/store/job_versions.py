"""`job_versions` as the API reads them: one version, and the versions of a job in pages. A version never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.errors import NotFound
from core.jobspec import JobSpec
from core.states import JobState
from core.store.database import Database
from core.store.jobs import cut_page, read_spec, spec_text
from core.store.statement import Kind, statement

_GET = statement(
    "get_job_versions",
    Kind.READ,
    """
    SELECT v.version, v.state, v.spec, v.payload, v.cutover_us, v.from_us, v.author, v.request_id, v.note
    FROM job_versions v
    WHERE v.job_id = CAST(:job_id AS UUID) AND v.version = ANY(CAST(:versions AS BIGINT[]))
    """,
)
_LIST = statement(
    "list_job_versions",
    Kind.READ,
    # As in list_job_names: sizes first.
    """
    SELECT v.version, octet_length(v.payload) + octet_length(CAST(v.spec AS TEXT)) AS weight
    FROM job_versions v
    WHERE v.job_id = CAST(:job_id AS UUID) AND v.version < CAST(:before AS BIGINT)
    ORDER BY v.job_id DESC, v.version DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_PAGE_BYTES = 2 * 1024 * 1024
# Above every version.
NEWEST = 2**62


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a job. Instants in microseconds. `spec` is None where it is not readable; `fault` says why."""

    version: int
    state: JobState
    spec: JobSpec | None
    payload: bytes
    cutover_us: int
    from_us: int
    author: str
    request_id: str
    note: str
    fault: str


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Versions, newest first; `more_before` is the last one's number when there may be further ones, else 0."""

    versions: tuple[VersionRecord, ...]
    more_before: int


class JobVersions:
    """Reads of the versions of one job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, job_id: UUID, version: int) -> VersionRecord:
        """One version. Raises NotFound."""
        (found,) = await self._read(job_id, [version]) or (None,)
        if found is None:
            raise NotFound("version", str(version))
        return found

    async def page(self, job_id: UUID, *, before: int, size: int) -> VersionPage:
        """At most `size` versions with numbers below `before`; fewer if they are large."""
        rows = await self._database.run(_LIST, {"job_id": job_id, "before": before, "row_limit": size + 1})
        listed = cut_page(rows, size, _PAGE_BYTES)
        if not listed:
            return VersionPage((), 0)
        found = await self._read(job_id, [row.version for row in listed])
        newest_first = tuple(sorted(found, key=lambda record: -record.version))
        return VersionPage(newest_first, listed[-1].version if len(listed) < len(rows) else 0)

    async def _read(self, job_id: UUID, versions: Sequence[int]) -> list[VersionRecord]:
        rows = await self._database.run(_GET, {"job_id": job_id, "versions": sorted(versions)})
        return [_record(row) for row in rows]


def _record(row: Row[Any]) -> VersionRecord:
    spec, fault = read_spec(spec_text(row.spec))
    return VersionRecord(
        version=row.version,
        state=JobState(row.state),
        spec=spec,
        payload=bytes(row.payload),
        cutover_us=row.cutover_us,
        from_us=row.from_us,
        author=row.author,
        request_id=row.request_id,
        note=row.note,
        fault=fault,
    )
