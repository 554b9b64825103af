"""What is kept for a time only is removed after it, and nothing else."""

from __future__ import annotations

import asyncpg

from controlplane.retention import MOVES_KEPT_US, REQUESTS_KEPT_US, Retention
from core.clock import US_PER_S
from core.rand import SystemRand
from core.store.database import Database, DatabaseConfig
from tests.support.clock import ManualClock

OLD, YOUNG = 1_203, 7
OLD_MOVES, YOUNG_MOVES = 601, 3


async def test_idempotency_keys_leave_after_seven_days(store_config: DatabaseConfig, clock: ManualClock) -> None:
    now_us = clock.now_us()
    ages = [(f"old-{n}", now_us - REQUESTS_KEPT_US - 1 - n) for n in range(OLD)]
    ages += [(f"young-{n}", now_us - REQUESTS_KEPT_US + n * US_PER_S) for n in range(YOUNG)]
    connection = await asyncpg.connect(store_config.url.replace("+asyncpg", ""))
    database = Database(store_config, clock, SystemRand())
    try:
        await connection.copy_records_to_table(
            "requests",
            records=[("default", request_id, "CreateJob", b"hash", b"answer", at_us) for request_id, at_us in ages],
            columns=["namespace", "request_id", "method", "body_hash", "answer", "created_us"],
        )
        assert await Retention(database, clock, lambda: True).step() == OLD
        left = await connection.fetch("SELECT request_id FROM requests ORDER BY request_id")
        assert [row["request_id"] for row in left] == [f"young-{n}" for n in range(YOUNG)]
    finally:
        await database.close()
        await connection.close()


async def test_moves_that_have_ended_leave_after_thirty_days(store_config: DatabaseConfig, clock: ManualClock) -> None:
    """One that is still open stays, however old it is."""
    before_us = clock.now_us() - MOVES_KEPT_US
    connection = await asyncpg.connect(store_config.url.replace("+asyncpg", ""))
    database = Database(store_config, clock, SystemRand())
    fields = """INSERT INTO shard_moves (move_id, shard, from_owner, from_term, to_dispatcher, cause, state, author,
                                         reason, request_id, requested_us, ended_us)
                SELECT gen_random_uuid(), n, 'a', 1, 'b', 2, $2, '', '', '', $1::bigint + n, $3
                FROM generate_series($4::bigint, $5::bigint) AS n"""
    try:
        await connection.execute(fields, before_us, 4, 1, -OLD_MOVES, -1)
        await connection.execute(fields, before_us, 4, 1, 0, YOUNG_MOVES - 1)
        await connection.execute(fields, before_us - OLD, 2, 0, 100, 100)
        assert await Retention(database, clock, lambda: True).step() == OLD_MOVES
        assert await connection.fetchval("SELECT count(*) FROM shard_moves") == YOUNG_MOVES + 1
    finally:
        await database.close()
        await connection.close()
