"""The `cluster` row: what was decided once for a cluster's life. A process configured otherwise refuses to start."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core.buckets import BucketScale
from core.errors import Invalid, NotFound
from core.store.database import Database, Transaction
from core.store.statement import Kind, statement

FORMAT_VERSION = 1

_READ = statement(
    "read_cluster",
    Kind.READ,
    "SELECT cluster_id, shard_count, bucket_width_ms, format_version FROM cluster WHERE id = 1",
)
_FOUND = statement(
    "found_cluster",
    Kind.WRITE,
    """
    INSERT INTO cluster (id, cluster_id, shard_count, bucket_width_ms, format_version, created_us)
    VALUES (1, CAST(:cluster_id AS UUID), CAST(:shard_count AS BIGINT), CAST(:bucket_width_ms AS BIGINT),
            CAST(:format_version AS BIGINT), CAST(:now_us AS BIGINT))
    ON CONFLICT (id) DO NOTHING
    """,
)
_FOUND_FLOORS = statement(
    "found_floors",
    Kind.WRITE,
    """
    INSERT INTO shard_floors (shard, floor)
    SELECT s.shard, CAST(:bucket AS BIGINT) FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    ON CONFLICT (shard) DO NOTHING
    """,
)
_FOUND_MARKS = statement(
    "found_marks",
    Kind.WRITE,
    """
    INSERT INTO shard_marks (shard, watermark, open_from_us)
    SELECT s.shard, CAST(:bucket AS BIGINT), CAST(:now_us AS BIGINT) FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    ON CONFLICT (shard) DO NOTHING
    """,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The facts of a cluster that never change."""

    cluster_id: UUID
    shard_count: int
    scale: BucketScale

    @property
    def shards(self) -> range:
        return range(self.shard_count)

    def require(self, shard_count: int, bucket_width_ms: int) -> None:
        """Raises Invalid unless this process is configured like the cluster."""
        for name, stored, given in (
            ("cluster.shard_count", self.shard_count, shard_count),
            ("cluster.bucket_width_ms", self.scale.width_ms, bucket_width_ms),
        ):
            if stored != given:
                raise Invalid(name, f"is {given} here, but {stored} was decided when the cluster was founded")


async def found_cluster(
    database: Database, *, cluster_id: UUID, shard_count: int, bucket_width_ms: int, now_us: int
) -> Cluster:
    """Write the cluster row unless there is one, and return what stands there.

    Raises Invalid when the stored facts differ from the given ones. Two founders at once agree: one row wins.
    """
    if shard_count < 1 or shard_count > 65_536 or shard_count & (shard_count - 1):
        raise Invalid("cluster.shard_count", "must be a power of two of at most 65536")
    scale = BucketScale(bucket_width_ms)
    bucket = scale.bucket_of(now_us)
    shards = list(range(shard_count))

    async def body(tx: Transaction) -> None:
        facts = {"cluster_id": cluster_id, "shard_count": shard_count, "bucket_width_ms": bucket_width_ms}
        await tx.run(_FOUND, {**facts, "format_version": FORMAT_VERSION, "now_us": now_us})
        await tx.run(_FOUND_FLOORS, {"bucket": bucket, "shards": shards})
        await tx.run(_FOUND_MARKS, {"bucket": bucket, "now_us": now_us, "shards": shards})

    existing = await _read(database)
    if existing is None:
        await database.transaction(body, repeat_unknown=True)
        existing = await read_cluster(database)
    existing.require(shard_count, bucket_width_ms)
    return existing


async def read_cluster(database: Database) -> Cluster:
    """The cluster's facts. Raises NotFound before it was founded."""
    found = await _read(database)
    if found is None:
        raise NotFound("cluster", "the database holds no cluster yet")
    return found


async def _read(database: Database) -> Cluster | None:
    rows = await database.run(_READ)
    if not rows:
        return None
    row = rows[0]
    if row.format_version != FORMAT_VERSION:
        raise Invalid("cluster", f"has format {row.format_version}; this release reads {FORMAT_VERSION}")
    return Cluster(row.cluster_id, row.shard_count, BucketScale(row.bucket_width_ms))
