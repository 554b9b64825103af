"""What the missed-fire watch reads: due rows that nobody fired in time, and where the chains of jobs should stand.

Only reads, each bounded: a scan of `due` carries the shard and both bucket bounds, from the watermark up, and a limit a
shard; jobs are walked by primary key. Called by the leader (controlplane/missed_fires.py, lost_chains.py), never by
what fires.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.buckets import NO_END
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec
from core.states import DueKind, JobState
from core.store.database import Database
from core.store.statement import Kind, statement

# What is shown of a due row, with its job. `row_version` is NULL where the version that the row names does not exist.
# An occurrence that its version does not own any more is none (rule of ownership 9): its row only waits to be dropped.
_SHOWN = """SELECT d.shard, d.bucket, d.due_at_us, d.id, d.kind, d.job_id, d.job_version, d.scheduled_for_us,
           d.back_us, j.namespace, j.name, j.error, v.version AS row_version"""
_ITS_JOB = """LEFT JOIN jobs j ON j.job_id = d.job_id
    LEFT JOIN job_versions v ON v.job_id = d.job_id AND v.version = d.job_version
    LEFT JOIN job_versions n ON n.job_id = d.job_id AND n.version = d.job_version + 1"""
_IS_OWNED = """(d.kind = 2 OR d.back_us IS NOT NULL OR n.cutover_us IS NULL
           OR d.scheduled_for_us <= n.cutover_us)"""

_OVERDUE = statement(
    "list_overdue_rows",
    Kind.READ,
    f"""
    {_SHOWN}
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    JOIN shard_marks m ON m.shard = s.shard
    CROSS JOIN LATERAL (
      SELECT o.shard, o.bucket, o.due_at_us, o.id, o.kind, o.job_id, o.job_version, o.scheduled_for_us,
             o.back_us
      FROM due o
      WHERE o.shard = s.shard AND o.bucket >= m.watermark AND o.bucket < CAST(:high AS BIGINT)
        AND o.due_at_us < CAST(:before_us AS BIGINT)
      ORDER BY o.shard, o.bucket, o.due_at_us, o.id
      LIMIT CAST(:limit_per_shard AS BIGINT)
    ) AS d
    {_ITS_JOB}
    WHERE {_IS_OWNED}
    ORDER BY d.due_at_us, d.id
    """,
)
# A chain may be put off: its job could not be read, or its catch-up waits for its turn. Then its due time lies ahead,
# and its occurrence behind. So it does where jitter or a window defers it: whoever knows its schedule tells them apart.
_PUT_OFF = statement(
    "list_chains_put_off",
    Kind.READ,
    f"""
    {_SHOWN}
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    CROSS JOIN LATERAL (
      SELECT o.shard, o.bucket, o.due_at_us, o.id, o.kind, o.job_id, o.job_version, o.scheduled_for_us,
             o.back_us
      FROM due o
      WHERE o.shard = s.shard AND o.bucket >= CAST(:low AS BIGINT) AND o.bucket < CAST(:high AS BIGINT)
      ORDER BY o.shard, o.bucket, o.due_at_us, o.id
      LIMIT CAST(:limit_per_shard AS BIGINT)
    ) AS d
    {_ITS_JOB}
    WHERE d.kind = 1 AND d.due_at_us >= CAST(:before_us AS BIGINT) AND {_IS_OWNED}
      AND (d.scheduled_for_us < CAST(:before_us AS BIGINT) OR d.back_us IS NOT NULL)
    ORDER BY d.scheduled_for_us, d.id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_SPECS = statement(
    "read_specs_of_versions",
    Kind.READ,
    """
    SELECT v.job_id, v.version, v.spec
    FROM unnest(CAST(:job_ids AS UUID[]), CAST(:versions AS BIGINT[])) AS i(job_id, version)
    JOIN job_versions v ON v.job_id = i.job_id AND v.version = i.version
    """,
)
_JOB = """SELECT j.job_id, j.namespace, j.name, j.shard, j.version, j.state, v.spec
    FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version"""
_WALK = statement(
    "walk_jobs_with_chains",
    Kind.READ,
    f"""
    {_JOB}
    WHERE j.job_id > CAST(:after AS UUID) ORDER BY j.job_id LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_AGAIN = statement(
    "read_jobs_with_chains", Kind.READ, f"{_JOB} WHERE j.job_id = ANY(CAST(:job_ids AS UUID[])) ORDER BY j.job_id"
)
_AT_KEYS = statement(
    "find_due_rows_by_key",
    Kind.READ,
    """
    SELECT d.id
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:buckets AS BIGINT[]), CAST(:due_ats_us AS BIGINT[]),
                CAST(:ids AS UUID[])) AS i(shard, bucket, due_at_us, id)
    JOIN due d ON d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.id
    """,
)
# The whole of a few shards: wherever a chain was put off to. Its key holds all that is read.
_ANYWHERE = statement(
    "find_due_rows_anywhere",
    Kind.READ,
    """
    SELECT d.id
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    JOIN shard_marks m ON m.shard = s.shard
    CROSS JOIN LATERAL (
      SELECT o.id FROM due o
      WHERE o.shard = s.shard AND o.bucket >= m.watermark AND o.bucket < CAST(:high AS BIGINT)
        AND o.id = ANY(CAST(:ids AS UUID[]))
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS d
    """,
)


@dataclass(frozen=True, slots=True)
class LateRow:
    """A due row that should have been fired. `name` is empty where its job is gone; `error` is why it is set aside.

    `has_version` says whether the version that the row names exists.
    """

    shard: int
    bucket: int
    due_at_us: int
    due_id: UUID
    kind: DueKind
    job_id: UUID
    job_version: int
    scheduled_for_us: int
    back_us: int | None
    namespace: str
    name: str
    error: str
    has_version: bool

    @property
    def stand(self) -> tuple[int, int, int | None]:
        """What changes whenever the chain moves."""
        return self.due_at_us, self.scheduled_for_us, self.back_us


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """What a version says, as it is stored."""

    stored: Any

    def read(self, enumerator: Enumerator) -> JobSpec:
        """Raises Invalid where it is not readable."""
        try:
            stored = json.loads(self.stored) if isinstance(self.stored, str) else self.stored
        except ValueError as error:
            raise Invalid("spec", f"the stored form is not readable: {error}") from error
        return JobSpec.from_json(stored, enumerator.read)


@dataclass(frozen=True, slots=True)
class ChainedJob:
    """A job in its present version."""

    job_id: UUID
    namespace: str
    name: str
    shard: int
    version: int
    state: JobState
    spec: StoredSpec


@dataclass(frozen=True, slots=True)
class DuePlace:
    """Where a due row is expected to stand: its whole key."""

    shard: int
    bucket: int
    due_at_us: int
    due_id: UUID


class Overdue:
    """The watch's reads. All of them raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def late(
        self, shards: Sequence[int], *, before_us: int, high_bucket: int, limit_per_shard: int
    ) -> list[LateRow]:
        """The first rows of each shard that were due before `before_us`, oldest first; buckets below `high_bucket`."""
        bounds = {"shards": list(shards), "high": high_bucket, "limit_per_shard": limit_per_shard}
        return [_late(row) for row in await self._database.run(_OVERDUE, {**bounds, "before_us": before_us})]

    async def put_off(
        self, shards: Sequence[int], buckets: range, *, before_us: int, limit_per_shard: int, limit: int
    ) -> list[LateRow]:
        """Chains whose occurrence lies before `before_us` and whose row does not: the `limit` oldest of them.

        Of each shard the first rows of these buckets are looked through.
        """
        params = {"shards": list(shards), "low": buckets.start, "high": buckets.stop, "before_us": before_us}
        limits = {"limit_per_shard": limit_per_shard, "row_limit": limit}
        return [_late(row) for row in await self._database.run(_PUT_OFF, {**params, **limits})]

    async def specs(self, versions: Collection[tuple[UUID, int]]) -> dict[tuple[UUID, int], StoredSpec]:
        """What these versions of jobs say, without their payloads."""
        listed = sorted(set(versions))
        params = {"job_ids": [job_id for job_id, _ in listed], "versions": [version for _, version in listed]}
        return {(row[0], row[1]): StoredSpec(row[2]) for row in await self._database.run(_SPECS, params)}

    async def walk(self, after: UUID, limit: int) -> list[ChainedJob]:
        """The next jobs by id, whatever their state."""
        return [_job(row) for row in await self._database.run(_WALK, {"after": after, "row_limit": limit})]

    async def again(self, job_ids: Collection[UUID]) -> list[ChainedJob]:
        """These jobs as they are now."""
        return [_job(row) for row in await self._database.run(_AGAIN, {"job_ids": sorted(job_ids)})]

    async def standing(self, places: Collection[DuePlace]) -> set[UUID]:
        """The ids of the rows that stand at one of these places."""
        listed = list(places)
        params = {
            "shards": [place.shard for place in listed],
            "buckets": [place.bucket for place in listed],
            "due_ats_us": [place.due_at_us for place in listed],
            "ids": [place.due_id for place in listed],
        }
        return {row.id for row in await self._database.run(_AT_KEYS, params)}

    async def anywhere(self, wanted: Mapping[UUID, int]) -> set[UUID]:
        """Which of these rows, given by their shard, stand anywhere at all. Reads the keys of whole shards."""
        params = {"shards": sorted(set(wanted.values())), "ids": sorted(wanted), "high": NO_END}
        return {row.id for row in await self._database.run(_ANYWHERE, {**params, "row_limit": len(wanted)})}


def _late(row: Row[Any]) -> LateRow:
    return LateRow(
        row.shard,
        row.bucket,
        row.due_at_us,
        row.id,
        DueKind(row.kind),
        row.job_id,
        row.job_version,
        row.scheduled_for_us,
        row.back_us,
        row.namespace or "",
        row.name or "",
        row.error or "",
        row.row_version is not None,
    )


def _job(row: Row[Any]) -> ChainedJob:
    return ChainedJob(
        row.job_id, row.namespace, row.name, row.shard, row.version, JobState(row.state), StoredSpec(row.spec)
    )
