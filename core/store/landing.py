"""Putting a row into `due` for the API: at or above the shard's floor, read FOR SHARE in the same statement (rule 2).

Whoever raises a floor waits for the transactions that hold it, so these statements come last before the COMMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from core.errors import InvariantBroken
from core.states import DueKind
from core.store.database import Transaction
from core.store.fencing import LANDING, LANDS
from core.store.statement import Kind, statement

_LAND = statement(
    "land_occurrence",
    Kind.LAND,
    f"""
    WITH {LANDING}, landed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT landing.shard, GREATEST(CAST(:bucket AS BIGINT), landing.floor), CAST(:due_at_us AS BIGINT),
             CAST(:due_id AS UUID), CAST(:kind AS SMALLINT), CAST(:job_id AS UUID), CAST(:job_version AS BIGINT),
             CAST(:scheduled_for_us AS BIGINT)
      FROM landing
      WHERE landing.shard = CAST(:shard AS BIGINT)
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING bucket
    )
    SELECT l.bucket FROM landed l
    """,
)
_LAND_MANY = statement(
    "land_occurrences",
    Kind.LAND,
    f"""
    WITH {LANDING}, landed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT i.shard, GREATEST(i.bucket, lands.floor), i.due_at_us, i.due_id, i.kind, i.job_id, i.job_version,
             i.scheduled_for_us
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:buckets AS BIGINT[]), CAST(:due_at_us AS BIGINT[]),
                  CAST(:due_ids AS UUID[]), CAST(:kinds AS SMALLINT[]), CAST(:job_ids AS UUID[]),
                  CAST(:job_versions AS BIGINT[]), CAST(:scheduled_for_us AS BIGINT[]))
        AS i(shard, bucket, due_at_us, due_id, kind, job_id, job_version, scheduled_for_us)
      {LANDS}
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING id
    )
    SELECT l.id FROM landed l
    """,
)


@dataclass(frozen=True, slots=True)
class Landing:
    """A due row to be; `bucket` is that of `due_at_us`, before the floor is applied."""

    shard: int
    bucket: int
    due_at_us: int
    due_id: UUID
    kind: DueKind
    job_id: UUID
    job_version: int
    scheduled_for_us: int


async def land(tx: Transaction, row: Landing) -> None:
    """Put one row into `due`, as the last statement of a transaction."""
    landed = await tx.run(
        _LAND,
        {
            "landing_shards": [row.shard],
            "shard": row.shard,
            "bucket": row.bucket,
            "due_at_us": row.due_at_us,
            "due_id": row.due_id,
            "kind": int(row.kind),
            "job_id": row.job_id,
            "job_version": row.job_version,
            "scheduled_for_us": row.scheduled_for_us,
        },
    )
    if len(landed) != 1:
        raise InvariantBroken(f"a due row of job {row.job_id} did not land: shard {row.shard} has no floor")


async def land_many(tx: Transaction, rows: Sequence[Landing]) -> None:
    """Put rows of different chains into `due`, as the last statement of a transaction."""
    if not rows:
        return
    landed = await tx.run(
        _LAND_MANY,
        {
            "landing_shards": sorted({row.shard for row in rows}),
            "shards": [row.shard for row in rows],
            "buckets": [row.bucket for row in rows],
            "due_at_us": [row.due_at_us for row in rows],
            "due_ids": [row.due_id for row in rows],
            "kinds": [int(row.kind) for row in rows],
            "job_ids": [row.job_id for row in rows],
            "job_versions": [row.job_version for row in rows],
            "scheduled_for_us": [row.scheduled_for_us for row in rows],
        },
    )
    if len(landed) != len(rows):
        raise InvariantBroken(f"{len(rows) - len(landed)} of {len(rows)} due rows did not land: a shard has no floor")
