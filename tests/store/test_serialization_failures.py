"""Serialization failures anywhere: the outcome is the same as without them, or Unavailable after so many tries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.clock import US_PER_S
from core.errors import Unavailable
from core.states import AttemptOutcome, DueKind, RunState
from core.store.completion import Ending
from core.store.database import DatabaseConfig
from core.store.landing import Landing, land
from core.store.marks import Raise
from core.store.terms import Claim
from core.store.transact import RetryLimits
from tests.support.db_faults import DbFaults
from tests.support.store_world import (
    NOW_US,
    OTHER,
    StoreWorld,
    close_world,
    fire_chain,
    grant,
    open_world,
    tiles,
)

NEXT_US = NOW_US + 60 * US_PER_S
TRIES = 4


async def fire(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    term, job = await world.own(0), await world.plant_job()
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant(), next_us=NEXT_US)

    async def act() -> object:
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        return fired.consumed, {n: made.attempt for n, made in fired.made.items()}

    return act


async def end_and_retry(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)
    run_id = await world.plant_run(await world.plant_job())
    item = Ending(0, 1, run_id, 1, RunState.PENDING, AttemptOutcome.FAILED, b"token", retry_at_us=NEXT_US)

    async def act() -> object:
        await world.completion().end([item], now_us=NOW_US)
        holding = (await world.completion().holdings([run_id]))[run_id]
        return holding.state, holding.attempt

    return act


async def claim(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    held, op_id = await world.own(0), world.rand.uuid()

    async def act() -> object:
        claims = [Claim(0, held), Claim(1, None)]
        return await world.terms.claim(claims, owner=OTHER, op_id=op_id, now_us=NOW_US, reason="test")

    return act


async def raise_floor(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)

    async def act() -> object:
        await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)])
        return (await world.marks().read([0]))[0].floor

    return act


async def land_one(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)
    job = await world.plant_job()
    row = Landing(0, world.bucket, NOW_US, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, NOW_US)
    return lambda: world.database.transaction(lambda tx: land(tx, row))


OPERATIONS = {"fire": fire, "end": end_and_retry, "claim": claim, "raise": raise_floor, "land": land_one}
Operation = Callable[[StoreWorld], Awaitable[Callable[[], Awaitable[object]]]]


async def everything(world: StoreWorld) -> dict[str, list[dict[str, Any]]]:
    """All that stands in the database, but the server's own times."""
    tables = ["due", "runs", "attempts", "open_runs", "skips", "shard_floors", "shard_marks", "shard_terms"]
    rows = {table: await world.rows(table) for table in [*tables, "shard_term_events"]}
    for row in rows["shard_term_events"]:
        del row["server_us"]
    return rows


class TestSerializationFailures:
    @pytest.mark.parametrize("name", OPERATIONS)
    async def test_at_any_statement_change_nothing_about_the_outcome(
        self, store_config: DatabaseConfig, databases: Any, name: str
    ) -> None:
        plain = await open_world(store_config)
        act = await OPERATIONS[name](plain)
        counted = DbFaults(plain.database)
        with counted.conflicts_where(lambda number: False):
            answer = await act()
        expected = await everything(plain)
        await close_world(plain)
        assert counted.statements > 0
        for faulty in range(1, counted.statements + 1):
            url = await databases.create()
            world = await open_world(replace(store_config, url=url))
            act = await OPERATIONS[name](world)
            faults = DbFaults(world.database)
            with faults.conflict_at_statement(faulty):
                assert await act() == answer
            assert faults.count == 1
            assert await everything(world) == expected
            await close_world(world)
            await databases.drop(url)

    @pytest.mark.parametrize("name", OPERATIONS)
    async def test_for_ever_end_in_unavailable_after_so_many_tries_b103(
        self, store_config: DatabaseConfig, name: str
    ) -> None:
        world = await open_world(store_config, RetryLimits(tries=TRIES, first_wait_s=0.001, longest_wait_s=0.002))
        act = await OPERATIONS[name](world)
        before = await everything(world)
        faults = DbFaults(world.database)
        with faults.conflicts_where(lambda number: True), pytest.raises(Unavailable):
            await act()
        assert faults.count == TRIES
        assert await everything(world) == before
        await close_world(world)

    async def test_at_every_commit_are_bounded_too_b103(
        self, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        world = await open_world(store_config, RetryLimits(tries=TRIES, first_wait_s=0.001, longest_wait_s=0.002))
        await _fail_commits(world, 1000)
        with pytest.raises(Unavailable, match="injected at COMMIT"):
            await world.own(0)
        assert await world.eye.fetchval("SELECT last_value FROM commits_seen") == TRIES
        assert await world.rows("shard_terms") == []
        await close_world(world)

    async def test_at_a_commit_run_the_whole_transaction_again(self, world: StoreWorld, on_postgresql: None) -> None:
        await _fail_commits(world, 2)
        assert (await world.own(0)).term == 1
        assert await world.eye.fetchval("SELECT last_value FROM commits_seen") == 3
        assert tiles(await world.terms.history(0))


async def _fail_commits(world: StoreWorld, times: int) -> None:
    """Let the next COMMITs that hold a new term fail with 40001."""
    await world.eye.execute(
        f"""
        CREATE SEQUENCE commits_seen;
        CREATE FUNCTION fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF nextval('commits_seen') <= {times} THEN
            RAISE EXCEPTION 'injected at COMMIT' USING ERRCODE = '40001';
          END IF;
          RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON shard_terms DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION fail_commit()
        """
    )
