"""Making way: what is canceled for the newest run of a job that cancels the others, and what is left alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.states import RunState
from core.store.gates import WaitingKey
from core.store.leases import LeaseOrder
from tests.support.store_world import LEASE_US, NOW_US, OTHER, Job, StoreWorld, grant

PENDING, LEASED, CANCELED = RunState.PENDING, RunState.LEASED, RunState.CANCELED
NEXT_US = NOW_US + 3600 * US_PER_S


async def waits(world: StoreWorld, job: Job, at_us: int = NOW_US, **columns: Any) -> UUID:
    """A run that waits behind its gate, in a shard whose open-from mark has passed nobody."""
    await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
    values: dict[str, Any] = {"state": PENDING, "attempt": 0, "gated": True}
    return await world.plant_run(job, scheduled_for_us=at_us, **(values | columns))


EARLIER: dict[str, Any] = {"scheduled_for_us": NOW_US - US_PER_S}


class TestMakingWay:
    async def make_way(self, world: StoreWorld, run_id: UUID) -> tuple[list[UUID], list[UUID]]:
        done = await world.gates().make_way([WaitingKey(0, 1, run_id)], now_us=NOW_US + 9)
        return done.ended, done.requested

    async def test_asks_the_running_one_to_stop(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        running = await world.plant_run(job, **EARLIER)
        run_id = await waits(world, job)
        assert await self.make_way(world, run_id) == ([], [running])
        run = await world.run(running)
        assert (run["state"], run["cancel_requested_us"], run["ended_us"]) == (LEASED, NOW_US + 9, 0)
        assert run["lease_until_us"] == NOW_US + LEASE_US
        assert (await world.run(run_id))["state"] == PENDING
        assert await self.make_way(world, run_id) == ([], []), "once"

    @pytest.mark.parametrize(
        "columns",
        [
            {"attempt": 0, "gated": True},
            {"attempt": 0},
            {"attempt": 1},
            {"attempt": 1, "not_before_us": NEXT_US},
            {"attempt": 0, "gated": True, "home_term": 0, "not_before_us": NOW_US},
        ],
        ids=["waits at its gate", "waits for a worker", "was given back", "waits for its retry", "a due trigger"],
    )
    @pytest.mark.parametrize("old", [False, True], ids=["recent", "open for long"])
    async def test_ends_an_older_run_at_once_that(self, world: StoreWorld, columns: dict[str, Any], old: bool) -> None:
        await world.own(0)
        job = await world.plant_job()
        other = await world.plant_run(job, state=PENDING, **(EARLIER | columns))
        run_id = await waits(world, job)
        if old:
            await world.eye.execute("UPDATE shard_marks SET open_from_us = $1", NOW_US - 1)
            await world.eye.execute("INSERT INTO open_runs VALUES (0, $1, $2)", job.job_id, other)
        assert await self.make_way(world, run_id) == ([other], [])
        run = await world.run(other)
        assert (run["state"], run["ended_us"], run["not_before_us"]) == (CANCELED, NOW_US + 9, 0)
        assert run["last_error"] == "made way for a newer run of its job"
        assert await world.rows("open_runs") == []
        order = LeaseOrder(0, 1, run_id, 1, grant(), gated=True)
        assert (await world.leases().lease([order], now_us=NOW_US)).leased == {0}

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": LEASED, "cause": 3, "operation_id": UUID(int=1)},
            {"state": PENDING, "attempt": 0, "gated": True, "cause": 3, "operation_id": UUID(int=1)},
            {"state": PENDING, "attempt": 0, "not_before_us": NEXT_US},
            {"state": RunState.SUCCEEDED},
            {"state": LEASED, "due_at_us": NOW_US + 1},
            {"state": PENDING, "attempt": 0, "gated": True, "due_at_us": NOW_US + 1},
            {"state": LEASED, "cancel_requested_us": 5},
        ],
        ids=[
            "runs for a backfill",
            "waits for a backfill",
            "is not yet due",
            "has ended",
            "runs and is newer",
            "waits and is newer",
            "was asked to stop before",
        ],
    )
    async def test_leaves_one_alone_that(self, world: StoreWorld, columns: dict[str, Any]) -> None:
        await world.own(0)
        job = await world.plant_job()
        other = await world.plant_run(job, **(EARLIER | columns))
        before = await world.run(other)
        run_id = await waits(world, job)
        assert await self.make_way(world, run_id) == ([], [])
        assert await world.run(other) == before

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": LEASED},
            {"attempt": 1},
            {"gated": False},
            {"state": CANCELED},
            {"cause": 3, "operation_id": UUID(int=1)},
        ],
        ids=["started", "was started", "is not gated", "was canceled", "is a backfill's"],
    )
    async def test_is_not_done_for_a_run_that(self, world: StoreWorld, columns: dict[str, Any]) -> None:
        await world.own(0)
        job = await world.plant_job()
        await world.plant_run(job, **EARLIER)
        run_id = await waits(world, job, **columns)
        assert await self.make_way(world, run_id) == ([], [])

    async def test_leaves_other_jobs_alone(self, world: StoreWorld) -> None:
        await world.own(0)
        await world.plant_run(await world.plant_job(), **EARLIER)
        assert await self.make_way(world, await waits(world, await world.plant_job())) == ([], [])

    async def test_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term = await world.own(0)
        job = await world.plant_job()
        running = await world.plant_run(job, **EARLIER)
        run_id = await waits(world, job)
        await world.take_over(term)
        done = await world.gates().make_way([WaitingKey(0, 1, run_id)], now_us=NOW_US)
        assert (done.fences, done.ended, done.requested) == ({}, [], [])
        done = await world.gates(OTHER).make_way([WaitingKey(0, 2, run_id)], now_us=NOW_US)
        assert done.requested == [running]
