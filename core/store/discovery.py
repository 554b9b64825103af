"""Reading `due`: the rows of owned ranges, from the watermark up, never from a cursor (rule of ownership 4).

Every scan carries the shard and both bucket bounds, so that rows that died below the watermark are never walked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from core.states import DueKind
from core.store.database import Database
from core.store.statement import Kind, statement

_SCAN = statement(
    "scan_due",
    Kind.READ,
    """
    SELECT d.shard, d.bucket, d.due_at_us, d.id, d.kind, d.job_id, d.job_version, d.scheduled_for_us, d.back_us,
           d.back_to_us
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:lows AS BIGINT[]), CAST(:highs AS BIGINT[])) AS s(shard, low, high)
    CROSS JOIN LATERAL (
      SELECT n.shard, n.bucket, n.due_at_us, n.id, n.kind, n.job_id, n.job_version, n.scheduled_for_us, n.back_us,
             n.back_to_us
      FROM due n
      WHERE n.shard = s.shard AND n.bucket >= s.low AND n.bucket < s.high
      ORDER BY n.shard, n.bucket, n.due_at_us, n.id
      LIMIT CAST(:limit_per_shard AS BIGINT)
    ) AS d
    """,
)
_LOWEST = statement(
    "lowest_due_buckets",
    Kind.READ,
    """
    SELECT s.shard, d.bucket
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:lows AS BIGINT[]), CAST(:highs AS BIGINT[])) AS s(shard, low, high)
    CROSS JOIN LATERAL (
      SELECT n.bucket FROM due n
      WHERE n.shard = s.shard AND n.bucket >= s.low AND n.bucket < s.high
      ORDER BY n.shard, n.bucket, n.due_at_us, n.id
      LIMIT 1
    ) AS d
    """,
)


# The primary key of `due`: (shard, bucket, due_at_us, id).
RowKey = tuple[int, int, int, UUID]


@dataclass(frozen=True, slots=True)
class DueRow:
    """One row of `due`. For kind RUN `id` is the run id; for kind OCCURRENCE it is the chain's.

    A chain that catches up backwards has the next missed occurrence to run in `back_us`, the oldest in `back_to_us`.
    """

    shard: int
    bucket: int
    due_at_us: int
    id: UUID
    kind: DueKind
    job_id: UUID
    job_version: int
    scheduled_for_us: int
    back_us: int | None = None
    back_to_us: int | None = None


@dataclass(frozen=True, slots=True)
class BucketRange:
    """Buckets [low, high) of one shard."""

    shard: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: the rows that were not known, and how many there were in each shard, known ones included."""

    rows: list[DueRow]
    seen: Mapping[int, int]


def _nothing(_: RowKey) -> bool:
    return False


class Discovery:
    """Scans of `due`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def scan(
        self, ranges: Sequence[BucketRange], *, limit_per_shard: int, known: Callable[[RowKey], bool] = _nothing
    ) -> Scan:
        """The first rows of each range by (bucket, due_at, id), less those whose key is `known` already."""
        rows = await self._database.run(_SCAN, {**_bounds(ranges), "limit_per_shard": limit_per_shard})
        seen = Counter(row[0] for row in rows)
        fresh = [
            DueRow(shard, bucket, due_at_us, row_id, DueKind(kind), job_id, version, scheduled_for_us, back, back_to)
            for shard, bucket, due_at_us, row_id, kind, job_id, version, scheduled_for_us, back, back_to in rows
            if not known((shard, bucket, due_at_us, row_id))
        ]
        return Scan(fresh, seen)

    async def lowest(self, ranges: Sequence[BucketRange]) -> dict[int, int]:
        """The lowest bucket with a live row in each range, by shard; a shard that is missing has none."""
        return {r.shard: r.bucket for r in await self._database.run(_LOWEST, _bounds(ranges))}


def _bounds(ranges: Sequence[BucketRange]) -> dict[str, list[int]]:
    ordered = sorted(ranges, key=lambda r: (r.shard, r.low))
    return {
        "shards": [r.shard for r in ordered],
        "lows": [r.low for r in ordered],
        "highs": [r.high for r in ordered],
    }
