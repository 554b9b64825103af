"""The cluster row: written once, agreed on by every founder, and binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from core.clock import SystemClock
from core.errors import Invalid, NotFound
from core.rand import SeededRand
from core.store.cluster import Cluster, found_cluster, read_cluster
from core.store.database import Database, DatabaseConfig
from tests.support.store_world import NOW_US

RAND = SeededRand(7)


@pytest.fixture
async def database(store_config: DatabaseConfig) -> AsyncIterator[Database]:
    opened = Database(store_config, SystemClock(), SeededRand(2))
    yield opened
    await opened.close()


async def found(database: Database, *, shard_count: int = 8, bucket_width_ms: int = 5000) -> Cluster:
    return await found_cluster(
        database,
        cluster_id=RAND.uuid(),
        shard_count=shard_count,
        bucket_width_ms=bucket_width_ms,
        now_us=NOW_US,
    )


async def test_there_is_none_before_it_was_founded(database: Database) -> None:
    with pytest.raises(NotFound, match="no cluster yet"):
        await read_cluster(database)


async def test_founding_again_finds_what_stands(database: Database) -> None:
    first = await found(database)
    assert await found(database) == first == await read_cluster(database)
    assert list(first.shards) == list(range(8))


async def test_founders_at_once_agree(database: Database) -> None:
    clusters = await asyncio.gather(*(found(database) for _ in range(5)))
    assert len({cluster.cluster_id for cluster in clusters}) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"shard_count": 16}, "cluster.shard_count"), ({"bucket_width_ms": 1000}, "cluster.bucket_width_ms")],
)
async def test_a_process_configured_otherwise_is_refused(
    database: Database, changes: dict[str, int], field: str
) -> None:
    await found(database)
    with pytest.raises(Invalid, match="was decided when the cluster was founded") as refused:
        await found(database, **changes)
    assert refused.value.field == field


@pytest.mark.parametrize("shard_count", [0, -1, 3, 65_537, 131_072])
async def test_a_shard_count_that_is_no_power_of_two_is_refused(database: Database, shard_count: int) -> None:
    with pytest.raises(Invalid, match="power of two"):
        await found(database, shard_count=shard_count)


async def test_a_format_of_another_release_is_refused(database: Database, store_config: DatabaseConfig) -> None:
    await found(database)
    await database.run_ddl("UPDATE cluster SET format_version = 99 WHERE id = 1")
    with pytest.raises(Invalid, match="has format 99"):
        await read_cluster(database)
