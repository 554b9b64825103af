"""Callers that are cancelled and sessions that are ended by force, midway: nothing leaks and nothing is half done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from core.clock import US_PER_S
from core.states import DueKind
from core.store.database import DatabaseConfig, Transaction
from core.store.landing import Landing, land
from core.store.marks import Raise
from tests.support.polling import eventually
from tests.support.raw_statements import captured, connect, fetch, until_waiting
from tests.support.store_world import (
    NOW_US,
    StoreWorld,
    close_world,
    fire_chain,
    grant,
    open_world,
    record_number,
)
from tests.support.tcp_proxy import TcpProxy

NEXT_US = NOW_US + 60 * US_PER_S


class TestCancelledCallers:
    """Cancelling the task around a query leaks neither its connection nor its locks (B106)."""

    async def free(self, world: StoreWorld, out: int = 0) -> bool:
        """Every connection but `out` is back, and no session of the product holds a transaction or a lock open."""
        pool: Any = world.database.engine.sync_engine.pool
        left: int = await world.eye.fetchval(
            """SELECT count(*) FROM pg_stat_activity
               WHERE application_name = 'tidewheel' AND datname = current_database() AND state <> 'idle'"""
        )
        return bool(pool.checkedout() == out and left == 0)

    async def test_leak_no_connection_b106(self, store_config: DatabaseConfig, on_postgresql: None) -> None:
        world = await open_world(replace(store_config, pool_size=5))
        job = await world.plant_job()
        row = Landing(0, world.bucket, NOW_US, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, NOW_US)

        async def locked(tx: Transaction) -> None:
            await land(tx, row)
            await asyncio.sleep(10)

        async def call(number: int) -> None:
            # Each deadline falls somewhere else: before a connection is there, in the statement, or behind it.
            async with asyncio.timeout(0.002 * (number % 20)):
                if number % 2:
                    await world.database.transaction(locked)
                else:
                    await world.marks().read([0])
                    await asyncio.sleep(10)

        outcomes = await asyncio.gather(*(call(number) for number in range(200)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}
        await eventually(lambda: self.free(world), what="every connection is back and idle")
        assert await world.due() == []
        await world.own(0)
        raised = await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)])
        assert raised.shards == {0}
        await close_world(world)

    async def test_waiting_for_a_lock_let_go_of_it(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        await world.own(0)
        holder = await connect(store_config, "holder")
        begun = holder.transaction()
        await begun.start()
        await holder.execute("SELECT 1 FROM shard_floors FOR SHARE")
        raising = asyncio.create_task(world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)]))
        await until_waiting(world.eye, "tidewheel")
        raising.cancel()
        with pytest.raises(asyncio.CancelledError):
            await raising
        await eventually(lambda: self.free(world), what="the session is idle again")
        await begun.commit()
        await holder.close()
        assert (await world.marks().read([0]))[0].floor == world.bucket

    async def test_whose_session_the_server_has_ended_are_cancelled_all_the_same(
        self, world: StoreWorld, on_postgresql: None
    ) -> None:
        """The rollback fails then: that is no reason to begin anew for somebody who has gone."""
        runs, begun = 0, asyncio.Event()

        async def body(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            await record_number(tx)
            begun.set()
            await asyncio.sleep(10)

        writing = asyncio.create_task(world.database.transaction(body))
        await begun.wait()
        await world.eye.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'tidewheel' AND datname = current_database()
               AND state = 'idle in transaction'"""
        )
        await eventually(lambda: self.free(world, out=1), what="the session is ended")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert runs == 1

    async def test_during_a_commit_learn_of_it_when_the_commit_has_ended(
        self, proxied: tuple[StoreWorld, TcpProxy], on_postgresql: None
    ) -> None:
        world, proxy = proxied
        runs, stalled = 0, False

        async def body(tx: Transaction) -> None:
            nonlocal runs, stalled
            runs += 1
            await record_number(tx)
            proxy.stall()
            stalled = True

        writing = asyncio.create_task(world.database.transaction(body, repeat_unknown=True))
        await eventually(lambda: stalled, what="the COMMIT is on its way")
        writing.cancel()
        assert not await _ends_within(writing, 0.2)
        proxy.heal()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert runs == 1
        assert await world.eye.fetchval("SELECT count(*) FROM schema_migrations WHERE number = 777") == 1
        await eventually(lambda: self.free(world), what="the session is idle again")


async def _ends_within(task: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)


async def test_a_crash_between_moving_the_chain_and_making_the_run_does_neither_b110(
    world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
) -> None:
    """The statement is ended by force where it has moved the due row and waits to insert the run."""
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US)
    call = await captured(world.database, lambda: world.firing().fire_chains([item], now_us=NOW_US))
    blocker = await connect(store_config, "blocker")
    begun = blocker.transaction()
    await begun.start()
    await blocker.execute(
        """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                             home_term) VALUES ($1, $2, 1, 0, 1, 0, 0, 0, 1, 1)""",
        job.run_id(NOW_US),
        job.job_id,
    )
    owner = await connect(store_config, "owner")
    firing = asyncio.create_task(fetch(owner, call))
    await until_waiting(world.eye, "owner")
    await world.eye.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'owner'")
    with pytest.raises(Exception, match=r"terminat|closed"):
        await firing
    await begun.rollback()
    await blocker.close()
    assert await world.due() == [row]
    assert await world.rows("runs") == []
    fired = await world.firing().fire_chains([item], now_us=NOW_US)
    assert fired.consumed == {0}
    assert len(await world.rows("runs")) == 1
