"""`jobs` and `job_versions` as the API reads them: by name, by id, and by name in pages.

Reads never fail for what stands in a row: a version whose stored form is not readable is shown with its fault, and the
others of the page with it (field bug B116).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.errors import Invalid, NotFound
from core.jobspec import JobSpec
from core.states import JobState
from core.store.calendar_lookup import Contents, load_contents
from core.store.database import Database, Transaction
from core.store.statement import Kind, statement

_COLUMNS = """j.job_id, j.namespace, j.name, j.hash, j.shard, j.version, j.state, j.cutover_us, j.created_us,
           j.updated_us, j.deleted_us, j.error, v.from_us, v.spec, v.payload"""
_SOURCE = "FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version"

_BY_NAME = statement(
    "get_job_by_name",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} {_SOURCE}
    WHERE j.namespace = CAST(:namespace AS TEXT) AND j.name = CAST(:name AS TEXT) AND j.deleted_us = 0
    """,
)
_BY_IDS = statement(
    "get_jobs_by_ids",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} {_SOURCE}
    WHERE j.namespace = CAST(:namespace AS TEXT) AND j.job_id = ANY(CAST(:job_ids AS UUID[]))
    """,
)
_NAMES = statement(
    "name_jobs_by_ids",
    Kind.READ,
    "SELECT j.job_id, j.namespace, j.name FROM jobs j WHERE j.job_id = ANY(CAST(:job_ids AS UUID[]))",
)
_LIST = statement(
    "list_job_names",
    Kind.READ,
    # The sizes come first, so that a page of large payloads is cut before they are read.
    """
    SELECT j.job_id, j.name, octet_length(v.payload) + octet_length(CAST(v.spec AS TEXT)) AS weight
    FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
    WHERE j.namespace = CAST(:namespace AS TEXT) AND j.deleted_us = 0
      AND j.name > CAST(:after AS TEXT) AND j.name >= CAST(:low AS TEXT) AND j.name < CAST(:high AS TEXT)
    ORDER BY j.namespace, j.deleted_us, j.name
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
# Above every character that a job's name may have.
_PAST_NAMES = "\x7f"
_PAGE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job in its present version. Instants in microseconds; `deleted_us` 0: not deleted.

    The version's own occurrences lie strictly after `from_us`, which is `cutover_us`, or the beginning of a pause.
    `spec` is None where the stored form, kept in `stored`, is not readable; `fault` then says why.
    """

    job_id: UUID
    namespace: str
    name: str
    hash16: int
    shard: int
    version: int
    state: JobState
    cutover_us: int
    from_us: int
    created_us: int
    updated_us: int
    deleted_us: int
    error: str
    spec: JobSpec | None
    payload: bytes
    fault: str = ""
    stored: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs by name, ascending; `more_after` is the last name when there may be further ones."""

    jobs: tuple[JobRecord, ...]
    more_after: str


class Jobs:
    """Reads of jobs, each within one namespace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_name(self, namespace: str, name: str) -> JobRecord:
        """The live job of that name. Raises NotFound."""
        return _only(await self._database.run(_BY_NAME, {"namespace": namespace, "name": name}), name)

    async def by_id(self, namespace: str, job_id: UUID) -> JobRecord:
        """The job of that id, deleted or not. Raises NotFound."""
        rows = await self._database.run(_BY_IDS, {"namespace": namespace, "job_ids": [job_id]})
        return _only(rows, str(job_id))

    async def names(self, job_ids: Sequence[UUID]) -> dict[UUID, tuple[str, str]]:
        """Namespace and name of each job that there is or was, of whatever namespace: for operators of the cluster."""
        rows = await self._database.run(_NAMES, {"job_ids": list(job_ids)})
        return {row.job_id: (row.namespace, row.name) for row in rows}

    async def page(self, namespace: str, *, prefix: str, after: str, size: int) -> JobPage:
        """At most `size` live jobs whose names begin with `prefix` and lie after `after`; fewer if they are large."""
        bounds = {"after": after, "low": prefix, "high": prefix + _PAST_NAMES}
        rows = await self._database.run(_LIST, {"namespace": namespace, **bounds, "row_limit": size + 1})
        listed = cut_page(rows, size, _PAGE_BYTES)
        if not listed:
            return JobPage((), "")
        found = await self._database.run(
            _BY_IDS, {"namespace": namespace, "job_ids": sorted(row.job_id for row in listed)}
        )
        records = sorted((record for row in found if (record := job_record(row)).deleted_us == 0), key=lambda r: r.name)
        return JobPage(tuple(records), listed[-1].name if len(listed) < len(rows) else "")

    async def contents_of(self, jobs: Iterable[JobRecord]) -> Contents:
        """What the calendars say that these jobs are pinned to."""
        pins = [pin for job in jobs if job.spec is not None for pin in job.spec.pins.calendars.values()]
        return await load_contents(self._database, pins)


async def job_in(tx: Transaction, namespace: str, name: str) -> JobRecord:
    """The live job of that name, read within a transaction. Raises NotFound."""
    return _only(await tx.run(_BY_NAME, {"namespace": namespace, "name": name}), name)


def cut_page(rows: Sequence[Row[Any]], size: int, byte_limit: int) -> Sequence[Row[Any]]:
    """The first rows that make a page: at most `size`, and no more than `byte_limit` by weight, but at least one."""
    total = 0
    for count, row in enumerate(rows[:size]):
        total += int(row.weight)
        if total > byte_limit and count > 0:
            return rows[:count]
    return rows[:size]


def job_record(row: Row[Any]) -> JobRecord:
    """A row of the statements here as a record."""
    stored = spec_text(row.spec)
    spec, fault = read_spec(stored)
    return JobRecord(
        job_id=row.job_id,
        namespace=row.namespace,
        name=row.name,
        hash16=row.hash,
        shard=row.shard,
        version=row.version,
        state=JobState(row.state),
        cutover_us=row.cutover_us,
        from_us=row.from_us,
        created_us=row.created_us,
        updated_us=row.updated_us,
        deleted_us=row.deleted_us,
        error=row.error,
        spec=spec,
        payload=bytes(row.payload),
        fault=fault,
        stored=stored if fault else "",
    )


def spec_text(column: Any) -> str:
    """What stands in job_versions.spec as text, whichever way the driver hands JSON out."""
    return column if isinstance(column, str) else json.dumps(column)


def read_spec(stored: str) -> tuple[JobSpec | None, str]:
    """A stored form as a spec, or None and what is wrong with it."""
    try:
        return JobSpec.from_json(json.loads(stored)), ""
    except (Invalid, ValueError) as error:
        return None, f"the stored job is not readable: {error}"


def _only(rows: Sequence[Row[Any]], name: str) -> JobRecord:
    if not rows:
        raise NotFound("job", name)
    return job_record(rows[0])
