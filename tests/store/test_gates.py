"""The gate: which waiting run may be leased, and what is canceled to make way; also by statements at the same time."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from core.clock import US_PER_S
from core.policy import Overlap
from core.states import RunCause, RunState
from core.store.database import DatabaseConfig
from core.store.gates import WaitingKey
from core.store.leases import Leased, LeaseOrder
from tests.support.raw_statements import captured, connect, fetch
from tests.support.store_world import NOW_US, Job, StoreWorld, fire_chain, grant

PENDING, LEASED, CANCELED = RunState.PENDING, RunState.LEASED, RunState.CANCELED
NEXT_US = NOW_US + 3600 * US_PER_S
NONE: frozenset[int] = frozenset()


async def waits(world: StoreWorld, job: Job, at_us: int = NOW_US, **columns: Any) -> UUID:
    """A run that waits behind its gate, in a shard whose open-from mark has passed nobody."""
    await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
    values: dict[str, Any] = {"state": PENDING, "attempt": 0, "gated": True}
    return await world.plant_run(job, scheduled_for_us=at_us, **(values | columns))


def order(run_id: UUID, attempt: int = 1, **changes: Any) -> LeaseOrder:
    return LeaseOrder(0, 1, run_id, attempt, grant("worker-2"), **({"gated": True} | changes))


async def lease(world: StoreWorld, *orders: LeaseOrder) -> Leased:
    return await world.leases().lease(orders, now_us=NOW_US)


IN_THE_WAY = pytest.mark.parametrize(
    "columns",
    [
        {"state": LEASED},
        {"state": LEASED, "scheduled_for_us": NOW_US + 1},
        {"state": PENDING, "attempt": 1, "not_before_us": NEXT_US},
        {"state": PENDING, "attempt": 1, "scheduled_for_us": NOW_US + 1},
        {"state": PENDING, "attempt": 0},
        {"state": PENDING, "attempt": 0, "scheduled_for_us": NOW_US + 1},
        {"state": PENDING, "attempt": 0, "gated": True},
        {"state": PENDING, "attempt": 0, "gated": True, "not_before_us": NOW_US, "home_term": 0},
    ],
    ids=[
        "leased",
        "leased, of a later instant",
        "waits for its retry",
        "was given back, of a later instant",
        "waits for a worker",
        "waits for a worker, of a later instant",
        "waits at its gate before it",
        "a trigger that is due before it",
    ],
)
NOT_IN_THE_WAY = pytest.mark.parametrize(
    "columns",
    [
        {"state": RunState.SUCCEEDED},
        {"state": CANCELED},
        {"state": PENDING, "attempt": 0, "not_before_us": NEXT_US},
        {"state": PENDING, "attempt": 0, "gated": True, "scheduled_for_us": NOW_US + 1},
        {"state": PENDING, "attempt": 0, "gated": True, "cause": 3, "operation_id": UUID(int=1)},
    ],
    ids=["succeeded", "canceled", "not yet due", "waits at its gate behind it", "waits for a backfill"],
)
EARLIER: dict[str, Any] = {"scheduled_for_us": NOW_US - US_PER_S}


class TestALease:
    @IN_THE_WAY
    @pytest.mark.parametrize("old", [False, True], ids=["recent", "open for long"])
    async def test_is_kept_back_by_another_run_that(
        self, world: StoreWorld, columns: dict[str, Any], old: bool
    ) -> None:
        await world.own(0)
        job = await world.plant_job()
        other = await world.plant_run(job, **(EARLIER | columns))
        run_id = await waits(world, job)
        if old:
            await world.eye.execute("UPDATE shard_marks SET open_from_us = $1", NOW_US + 2)
            for each in (other, run_id):
                await world.eye.execute("INSERT INTO open_runs VALUES (0, $1, $2)", job.job_id, each)
        before = await world.run(run_id)
        done = await lease(world, order(run_id))
        assert (set(done.fences), done.leased, done.blocked) == ({(0, 1)}, NONE, frozenset({0}))
        assert await world.run(run_id) == before
        assert await world.gates().blocked([WaitingKey(0, 1, run_id)], now_us=NOW_US) == {0}

    @NOT_IN_THE_WAY
    async def test_is_not_kept_back_by_another_run_that(self, world: StoreWorld, columns: dict[str, Any]) -> None:
        await world.own(0)
        job = await world.plant_job()
        await world.plant_run(job, **(EARLIER | columns))
        run_id = await waits(world, job)
        assert await world.gates().blocked([WaitingKey(0, 1, run_id)], now_us=NOW_US) == set()
        done = await lease(world, order(run_id))
        assert (done.leased, done.blocked) == (frozenset({0}), NONE)
        assert (await world.run(run_id))["state"] == LEASED

    async def test_is_not_kept_back_by_another_job(self, world: StoreWorld) -> None:
        await world.own(0)
        await world.plant_run(await world.plant_job(), **EARLIER)
        assert (await lease(world, order(await waits(world, await world.plant_job())))).leased == {0}

    async def test_of_a_backfill_waits_behind_the_schedules_own(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        operation = world.rand.uuid()
        old, older = [
            await waits(world, job, NOW_US - n * US_PER_S, cause=int(RunCause.BACKFILL), operation_id=operation)
            for n in (1, 2)
        ]
        own = await waits(world, job)
        done = await lease(world, order(old), order(older), order(own))
        assert (done.leased, done.blocked) == (frozenset({2}), frozenset({0, 1}))
        await world.eye.execute("UPDATE runs SET state = 3, ended_us = 1, lease_until_us = 0 WHERE run_id = $1", own)
        assert (await lease(world, order(old), order(older))).leased == {1}

    async def test_of_the_first_in_line_is_given_to_one_run_of_a_batch(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        runs = [await waits(world, job, NOW_US - n) for n in range(5)]
        done = await lease(world, *(order(run_id) for run_id in runs))
        assert (done.leased, done.blocked) == (frozenset({4}), frozenset({0, 1, 2, 3}))

    async def test_of_a_further_attempt_passes_the_gate(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        await waits(world, job, NOW_US - 1)
        run_id = await waits(world, job, attempt=1)
        assert (await lease(world, order(run_id, 2, gated=False))).leased == {0}

    async def test_of_a_gated_run_is_refused_to_whoever_takes_it_for_another(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await waits(world, await world.plant_job())
        done = await lease(world, order(run_id, gated=False))
        assert (done.leased, done.blocked) == (NONE, NONE)

    async def test_of_a_run_that_is_not_gated_asks_nobody(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        await world.plant_run(job, **EARLIER)
        run_id = await waits(world, job, gated=False)
        assert (await lease(world, order(run_id, gated=False))).leased == {0}

    async def test_that_was_written_is_recognised_though_others_wait(self, world: StoreWorld) -> None:
        """As after a lost answer."""
        await world.own(0)
        job = await world.plant_job()
        first, _ = await waits(world, job), await waits(world, job, NOW_US + 1)
        for _ in range(2):
            done = await lease(world, order(first))
            assert (done.leased, done.blocked) == (frozenset({0}), NONE)

    async def test_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term = await world.own(0)
        run_id = await waits(world, await world.plant_job())
        await world.take_over(term)
        done = await lease(world, order(run_id))
        assert (done.fences, done.leased) == ({}, NONE)


class TestAtTheSameTime:
    """Statements that do not see each other's rows: no two of the job start."""

    async def started(self, world: StoreWorld) -> int:
        return sum(run["state"] == LEASED for run in await world.rows("runs"))

    @pytest.mark.parametrize("policy", [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER, Overlap.SKIP])
    async def test_an_occurrence_that_fires_and_a_run_that_is_leased(self, world: StoreWorld, policy: Overlap) -> None:
        term = await world.own(0)
        for _ in range(10):
            job = await world.plant_job()
            waiting = await waits(world, job, NOW_US - US_PER_S)
            row = await world.plant_occurrence(job)
            item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US, overlap=policy, max_buffered=9)
            before = await self.started(world)
            await asyncio.gather(
                world.firing().fire_chains([item], now_us=NOW_US), lease(world, order(waiting)), return_exceptions=False
            )
            assert await self.started(world) == before + 1

    @pytest.mark.usefixtures("on_postgresql")
    @pytest.mark.parametrize("policy", [Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER, Overlap.SKIP])
    async def test_a_firing_that_does_not_see_the_lease_sees_its_run_wait(
        self, world: StoreWorld, store_config: DatabaseConfig, policy: Overlap
    ) -> None:
        """Step by step: the lease is written and not committed while the occurrence fires."""
        term, job = await world.own(0), await world.plant_job()
        waiting = await waits(world, job, NOW_US - US_PER_S)
        row = await world.plant_occurrence(job)
        item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US, overlap=policy, max_buffered=9)
        leasing = await captured(world.database, lambda: lease(world, order(waiting)))
        session = await connect(store_config, "leasing")
        try:
            transaction = session.transaction()
            await transaction.start()
            await fetch(session, leasing)
            await world.firing().fire_chains([item], now_us=NOW_US)
            try:
                await transaction.commit()
            except asyncpg.SerializationError:
                await lease(world, order(waiting))
        finally:
            await session.close()
        assert await self.started(world) == 1
        assert (await world.run(waiting))["state"] == LEASED

    async def test_leases_of_all_that_wait(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        runs = [await waits(world, job, NOW_US - n) for n in range(5)]
        done = await asyncio.gather(*(lease(world, order(run_id)) for run_id in runs))
        assert [len(each.leased) for each in done] == [0, 0, 0, 0, 1]
