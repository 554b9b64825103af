"""Putting a row into `due` for the API: at or above the shard's floor, read FOR SHARE in the same statement (rule 2).

Whoever raises a floor waits for the transactions that hold it, so these statements come last before the COMMIT.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core.errors import InvariantBroken
from core.states import DueKind
from core.store.database import Transaction
from core.store.fencing import LANDING
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
