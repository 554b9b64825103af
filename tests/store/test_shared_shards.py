"""A shard that two owners share until the range before the boundary is closed: no two runs of a job start beside each
other, and none waits for ever (rule of ownership 15)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from core.clock import US_PER_S
from core.fence import TermRow
from core.policy import Overlap
from core.states import RunState, SkipReason
from core.store.database import DatabaseConfig
from core.store.decisions import Fired
from core.store.gates import WaitingKey
from core.store.leases import Leased, LeaseOrder
from core.store.open_run_lists import OpenRun
from tests.support.overlap_play import STARTED_TOGETHER
from tests.support.raw_statements import captured, connect, fetch, until_waiting
from tests.support.shared_shard_play import SharedShardPlay
from tests.support.store_world import LEASE_US, NOW_US, OTHER, OWNER, Job, StoreWorld, fire_chain, grant

PENDING, LEASED, CANCELED = RunState.PENDING, RunState.LEASED, RunState.CANCELED
GATED: dict[str, Any] = {"state": PENDING, "attempt": 0, "gated": True}
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER]
HELD_BACK = [Overlap.SKIP, *BUFFERING]
FAR_US = NOW_US + 3600 * US_PER_S
STEPS = 60
SEEDS = range(3)
MORE_SEEDS = range(200, 230)


@dataclass
class SharedShard:
    """OWNER holds what lies before the boundary, OTHER what lies behind it, and the boundary has just begun."""

    world: StoreWorld
    before: TermRow
    behind: TermRow
    now_us: int

    async def fires(self, job: Job, policy: Overlap, *, at_us: int = 0, leased: bool = True) -> Fired:
        """The owner behind the boundary fires the job's occurrence of this moment."""
        row = await self.world.plant_occurrence(job, at_us or self.now_us)
        lease = grant() if leased else None
        item = fire_chain(self.world, job, row, self.behind, lease=lease, next_us=FAR_US, overlap=policy)
        return await self.world.firing(OTHER).fire_chains([item], now_us=self.now_us)

    async def lease_before(self, run_id: UUID) -> Leased:
        return await self._lease(OWNER, self.before, run_id)

    async def lease_behind(self, run_id: UUID) -> Leased:
        return await self._lease(OTHER, self.behind, run_id)

    async def _lease(self, owner: str, term: TermRow, run_id: UUID) -> Leased:
        order = LeaseOrder(0, term.term, run_id, 1, grant(f"worker of {owner}"), gated=True)
        return await self.world.leases(owner).lease([order], now_us=self.now_us)

    async def end_before(self, run_id: UUID) -> None:
        await self.world.eye.execute(
            "UPDATE runs SET state = 3, ended_us = 1, lease_until_us = 0 WHERE run_id = $1", run_id
        )

    async def bring_home(self) -> list[OpenRun]:
        """Adopt whatever is at home before the boundary."""
        store = self.world.open_runs(OTHER)
        everything = [(UUID(int=0), UUID(int=2**128 - 1))]
        runs = [run for run in await store.find(0, everything) if run.home_term == self.before.term]
        _, adopted = await store.adopt(runs, shard=0, term=self.behind.term, lease_until_us=self.now_us + LEASE_US)
        return adopted

    async def started(self) -> list[UUID]:
        return [run["run_id"] for run in await self.world.rows("runs") if run["state"] == LEASED]


@pytest.fixture
async def shard(world: StoreWorld) -> SharedShard:
    await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
    before = await world.own(0)
    behind = await world.split(before, world.bucket + 2)
    return SharedShard(world, before, behind, world.scale.start_us(world.bucket + 2))


class TestAnOccurrenceBehindTheBoundary:
    @pytest.mark.parametrize("policy", HELD_BACK)
    async def test_starts_through_the_gate_whatever_its_policy(self, shard: SharedShard, policy: Overlap) -> None:
        job = await shard.world.plant_job()
        fired = await shard.fires(job, policy)
        assert [(made.attempt, made.gated, made.blocked) for made in fired.made.values()] == [(0, True, False)]
        assert await shard.started() == []
        done = await shard.lease_behind(job.run_id(shard.now_us))
        assert (done.leased, done.blocked) == (frozenset({0}), frozenset())

    async def test_that_takes_no_notice_starts_at_once(self, shard: SharedShard) -> None:
        job = await shard.world.plant_job()
        await shard.world.plant_run(job)
        fired = await shard.fires(job, Overlap.ALLOW)
        assert [(made.attempt, made.gated) for made in fired.made.values()] == [(1, False)]

    async def test_is_skipped_while_a_run_before_it_is_open(self, shard: SharedShard) -> None:
        job = await shard.world.plant_job()
        await shard.world.plant_run(job)
        fired = await shard.fires(job, Overlap.SKIP)
        assert (fired.made, fired.skipped) == ({}, {0: SkipReason.OVERLAP})

    @pytest.mark.parametrize("policy", BUFFERING)
    async def test_waits_for_a_run_before_it_and_goes_when_that_has_ended(
        self, shard: SharedShard, policy: Overlap
    ) -> None:
        job = await shard.world.plant_job()
        running = await shard.world.plant_run(job)
        fired = await shard.fires(job, policy)
        run_id = job.run_id(shard.now_us)
        assert fired.made[0].blocked
        assert (await shard.lease_behind(run_id)).blocked == {0}
        key = WaitingKey(0, shard.behind.term, run_id)
        assert await shard.world.gates(OTHER).blocked([key], now_us=shard.now_us) == {0}
        await shard.end_before(running)
        assert await shard.world.gates(OTHER).blocked([key], now_us=shard.now_us) == set(), "its tick finds it free"
        assert (await shard.lease_behind(run_id)).leased == {0}

    async def test_makes_way_for_itself_across_the_boundary(self, shard: SharedShard) -> None:
        """A run that waits there is canceled, one that runs is told to stop, and its owner sees that in its row."""
        job = await shard.world.plant_job()
        running = await shard.world.plant_run(job)
        waiting = await shard.world.plant_run(job, scheduled_for_us=NOW_US + 1, **GATED)
        await shard.fires(job, Overlap.CANCEL_OTHER)
        run_id = job.run_id(shard.now_us)
        made = await shard.world.gates(OTHER).make_way([WaitingKey(0, shard.behind.term, run_id)], now_us=shard.now_us)
        assert (made.ended, made.requested) == ([waiting], [running])
        seen = (await shard.world.completion(OWNER).holdings([running]))[running]
        assert (seen.owner, seen.cancel_requested_us) == (OWNER, shard.now_us)

    async def test_starts_as_ever_once_the_range_before_is_closed(self, shard: SharedShard) -> None:
        await shard.world.eye.execute("UPDATE shard_terms SET state = 2 WHERE shard = 0 AND term = 1")
        fired = await shard.fires(await shard.world.plant_job(), Overlap.SKIP)
        assert [(made.attempt, made.gated) for made in fired.made.values()] == [(1, False)]


class TestTwoThatWait:
    """One at each owner."""

    async def both_wait(self, shard: SharedShard, **columns: Any) -> tuple[UUID, UUID]:
        job = await shard.world.plant_job()
        waits = await shard.world.plant_run(job, **GATED, **columns)
        await shard.fires(job, Overlap.BUFFER_ALL)
        return waits, job.run_id(shard.now_us)

    @pytest.mark.parametrize("later_s", [0, 3600], ids=["in order", "against the order"])
    async def test_wait_for_each_other_until_both_are_at_one_home(self, shard: SharedShard, later_s: int) -> None:
        at_us = NOW_US + later_s * US_PER_S
        before, behind = await self.both_wait(shard, scheduled_for_us=at_us)
        assert (await shard.lease_before(before)).blocked == {0}
        assert (await shard.lease_behind(behind)).blocked == {0}
        assert [run.run_id for run in await shard.bring_home()] == [before]
        first, second = (behind, before) if later_s else (before, behind)
        assert (await shard.lease_behind(second)).blocked == {0}
        assert (await shard.lease_behind(first)).leased == {0}
        assert await shard.started() == [first]

    async def test_a_trigger_that_nobody_has_met_keeps_back_only_who_comes_after_it(self, shard: SharedShard) -> None:
        job = await shard.world.plant_job()
        unmet: dict[str, Any] = {"home_term": 0, "not_before_us": NOW_US, "scheduled_for_us": FAR_US}
        await shard.world.plant_run(job, **GATED, **unmet)
        await shard.fires(job, Overlap.BUFFER_ALL)
        assert (await shard.lease_behind(job.run_id(shard.now_us))).leased == {0}


@pytest.mark.usefixtures("on_postgresql")
class TestAtTheSameTime:
    """Step by step, with one statement written and not committed: it is not seen, and does not see."""

    @pytest.mark.parametrize("policy", HELD_BACK)
    async def test_a_firing_behind_the_boundary_and_a_lease_before_it(
        self, shard: SharedShard, store_config: DatabaseConfig, policy: Overlap
    ) -> None:
        world, job = shard.world, await shard.world.plant_job()
        row = await world.plant_occurrence(job, shard.now_us)
        item = fire_chain(world, job, row, shard.behind, lease=grant(), next_us=FAR_US, overlap=policy, max_buffered=9)
        firing = await captured(world.database, lambda: world.firing(OTHER).fire_chains([item], now_us=shard.now_us))
        session = await connect(store_config, "firing")
        try:
            transaction = session.transaction()
            await transaction.start()
            await fetch(session, firing)
            waits = await world.plant_run(job, **GATED)
            assert (await shard.lease_before(waits)).leased == {0}
            try:
                await transaction.commit()
            except asyncpg.SerializationError:
                await world.firing(OTHER).fire_chains([item], now_us=shard.now_us)
        finally:
            await session.close()
        await shard.lease_behind(job.run_id(shard.now_us))
        assert await shard.started() == [waits]

    async def test_a_lease_behind_the_boundary_and_a_run_that_goes_before_it(
        self, shard: SharedShard, store_config: DatabaseConfig
    ) -> None:
        world, job = shard.world, await shard.world.plant_job()
        await shard.fires(job, Overlap.BUFFER_ALL)
        run_id = job.run_id(shard.now_us)
        leasing = await captured(world.database, lambda: shard.lease_behind(run_id))
        session = await connect(store_config, "leasing")
        try:
            transaction = session.transaction()
            await transaction.start()
            assert await fetch(session, leasing)
            earlier = await world.plant_run(job, **GATED)
            assert (await shard.lease_before(earlier)).blocked == {0}
            await transaction.commit()
        finally:
            await session.close()
        assert await shard.started() == [run_id]

    @pytest.mark.parametrize("policy", HELD_BACK)
    async def test_a_firing_that_began_before_the_split_was_committed_sees_its_end(
        self, world: StoreWorld, store_config: DatabaseConfig, policy: Overlap
    ) -> None:
        """Its snapshot knows of no other owner; the lock on its own term does."""
        term, job = await world.own(0), await world.plant_job()
        row = await world.plant_occurrence(job)
        item = fire_chain(world, job, row, term, lease=grant(), next_us=FAR_US, overlap=policy)
        firing = await captured(world.database, lambda: world.firing().fire_chains([item], now_us=NOW_US))
        session, splitting = await connect(store_config, "firing"), await connect(store_config, "splitting")
        try:
            transaction = splitting.transaction()
            await transaction.start()
            await splitting.execute("UPDATE shard_terms SET to_bucket = $1 WHERE shard = 0", world.bucket + 2)
            asked = asyncio.ensure_future(fetch(session, firing))
            await until_waiting(world.eye, "firing")
            await transaction.commit()
            try:
                await asked
            except asyncpg.SerializationError:
                await fetch(session, firing)
        finally:
            await session.close()
            await splitting.close()
        made = await world.run(job.run_id(NOW_US))
        assert (made["state"], made["attempt"], made["gated"]) == (PENDING, 0, True)


async def play_out(world: StoreWorld, seed: int) -> SharedShardPlay:
    """Every step is followed by a look at what is started."""
    await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
    play = SharedShardPlay(world, Random(seed))
    for _ in range(STEPS):
        await play.step()
        assert await world.eye.fetch(STARTED_TOGETHER) == [], "two runs of a job are started"
    await play.finish()
    return play


@pytest.mark.usefixtures("on_postgresql")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_two_runs_of_a_job_are_started_while_the_shard_moves(world: StoreWorld, seed: int) -> None:
    play = await play_out(world, seed)
    assert min(play.done["splits"], play.done["closed"], play.done["kept back"]) > 0, play.done


@pytest.mark.long
@pytest.mark.usefixtures("on_postgresql")
@pytest.mark.parametrize("seed", MORE_SEEDS)
async def test_no_two_runs_of_a_job_are_started_while_the_shard_moves_at_length(world: StoreWorld, seed: int) -> None:
    await play_out(world, seed)
