"""What a dispatcher reads of jobs: versions by key, in batches, with what became of the job after them.

A version never changes, so it may be remembered; the present version is only a belief, and the firing statement checks
it. A job whose stored form cannot be read is set aside with an error that the API shows; the others go on (B108).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.calendars import CalendarPin
from core.store.calendar_lookup import Contents, load_contents
from core.store.database import Database
from core.store.fencing import FENCE, fence_params
from core.store.statement import Kind, statement

_LOAD = statement(
    "load_job_versions",
    Kind.READ,
    """
    SELECT v.job_id, v.version, j.namespace, j.name, j.hash, v.spec, v.payload, v.trace, j.version AS current_version,
           n.cutover_us AS superseded_us, h.cutover_us AS stopped_us, h.state AS stopped_as, j.error,
           v.cutover_us
    FROM unnest(CAST(:job_ids AS UUID[]), CAST(:versions AS BIGINT[])) AS i(job_id, version)
    JOIN job_versions v ON v.job_id = i.job_id AND v.version = i.version
    JOIN jobs j ON j.job_id = i.job_id
    LEFT JOIN job_versions n ON n.job_id = i.job_id AND n.version = i.version + 1
    LEFT JOIN LATERAL (
      SELECT s.cutover_us, s.state FROM job_versions s
      WHERE s.job_id = i.job_id AND s.version > i.version AND s.state <> 1
      ORDER BY s.job_id, s.version
      LIMIT 1
    ) AS h ON TRUE
    """,
)
_SET_ASIDE = statement(
    "set_job_error",
    Kind.ACT,
    f"""
    WITH {FENCE}, marked AS (
      UPDATE jobs AS j SET error = i.error
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:job_ids AS UUID[]),
                  CAST(:errors AS TEXT[])) AS i(shard, term, job_id, error)
      JOIN fence ON fence.shard = i.shard AND fence.term = i.term
      WHERE j.job_id = i.job_id AND j.shard = i.shard AND j.error <> i.error
      RETURNING j.shard, i.term
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, m.shard AS marked
    FROM fence f LEFT JOIN marked m ON m.shard = f.shard AND m.term = f.term
    """,
)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a job as it is stored, in the order of the statement's columns; `spec` is unread JSON.

    `superseded_us` is when the next version took over: occurrences of this one end there (inclusive). None for the
    present version. `stopped_us` is when the job was first paused or deleted (`stopped_as`) after it, None if never: of
    its occurrences those that become due later are not run. `error` is why the job was set aside, empty if it was not.
    `cutover_us` is when this version took over.
    """

    job_id: UUID
    version: int
    namespace: str
    name: str
    hash: int
    spec: Any
    payload: bytes
    trace: str
    current_version: int
    superseded_us: int | None
    stopped_us: int | None = None
    stopped_as: int | None = None
    error: str = ""
    cutover_us: int = 0


class JobLookup:
    """Reads job versions and the calendars that they are computed by, for one owner, and sets jobs aside."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def load(self, keys: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], StoredVersion]:
        """The versions named by (job id, version); a key that is missing in the answer does not exist."""
        rows = await self._database.run(
            _LOAD, {"job_ids": [job_id for job_id, _ in keys], "versions": [version for _, version in keys]}
        )
        return {(row[0], row[1]): StoredVersion(*row) for row in rows}

    async def calendars(self, pins: Iterable[CalendarPin]) -> Contents:
        """The contents of these versions of calendars; one that is missing in the answer does not exist."""
        return await load_contents(self._database, pins)

    async def set_error(self, marks: Sequence[tuple[int, int, UUID, str]]) -> None:
        """Write, or clear with "", the error of jobs given as (shard, term, job id, error)."""
        params = {
            **fence_params(self._owner, ((shard, term) for shard, term, _, _ in marks)),
            "shards": [shard for shard, _, _, _ in marks],
            "terms": [term for _, term, _, _ in marks],
            "job_ids": [job_id for _, _, job_id, _ in marks],
            "errors": [error for _, _, _, error in marks],
        }
        await self._database.run(_SET_ASIDE, params, repeat_unknown=True)
