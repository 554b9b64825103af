"""What the reconciler reads and repairs in SQL: it looks again at what it repairs, and loses to whoever was quicker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.findings import SeenRun
from core.ids import hashes_range, run_id_ranges, shard_hashes
from core.rand import SeededRand
from core.states import DueKind, RunState
from core.store.findings import Findings
from core.store.landing import Landing
from core.store.repairs import Repairs
from tests.support.clock import ManualClock
from tests.support.raw_statements import Call, connect, fetch, until_waiting
from tests.support.store_world import NOW_US, SHARDS, Job, StoreWorld, fire_chain, fire_run, grant

NOBODY = UUID(int=0)


def repairs(world: StoreWorld, seed: int = 5) -> Repairs:
    return Repairs(world.database, ManualClock(NOW_US), SeededRand(seed), "controlplane-1")


async def open_runs(world: StoreWorld, shard: int = 0, from_us: int = 0) -> dict[UUID, SeenRun]:
    ranges = run_id_ranges(range(4), from_us)
    return {run.run_id: run for run in await Findings(world.database).open_runs(shard, ranges)}


async def resting(world: StoreWorld, job: Job, **columns: Any) -> SeenRun:
    run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US + US_PER_S, **columns)
    return (await open_runs(world))[run_id]


async def raise_marks(world: StoreWorld, by: int) -> int:
    """Floor and watermark of shard 0 pass what stands there; returns where they stand now."""
    await world.eye.execute("UPDATE shard_floors SET floor = floor + $1 WHERE shard = 0", by)
    await world.eye.execute("UPDATE shard_marks SET watermark = watermark + $1 WHERE shard = 0", by)
    return world.bucket + by


async def audited(world: StoreWorld) -> list[tuple[str, str, str]]:
    return [(row["actor"], row["action"], row["object"]) for row in await world.rows("audit")]


class TestDueRowsBelowTheWatermark:
    async def test_are_found_and_moved_to_the_floor(self, world: StoreWorld) -> None:
        row = await world.plant_occurrence(await world.plant_job())
        reads = Findings(world.database)
        assert await reads.strays(0) == [], "the watermark does not pass it"
        floor = await raise_marks(world, 3)
        (stray,) = await reads.strays(0)
        assert (stray.due_id, stray.bucket, stray.watermark) == (row.id, world.bucket, floor)
        assert await reads.strays(1) == []
        assert await repairs(world).reland(stray, "why")
        (moved,) = await world.due()
        assert moved == replace(row, bucket=floor), "its time stays what it was"
        assert await reads.strays(0) == []
        assert await audited(world) == [("controlplane-1", "reconcile.reland", str(row.id))]

    async def test_are_moved_once(self, world: StoreWorld) -> None:
        await world.plant_occurrence(await world.plant_job())
        await raise_marks(world, 3)
        (stray,) = await Findings(world.database).strays(0)
        assert [await repairs(world, seed).reland(stray, "why") for seed in (5, 6)] == [True, False]
        assert len(await audited(world)) == 1

    async def test_stay_where_their_owner_fired_them_meanwhile(self, world: StoreWorld) -> None:
        """Whoever has the row in memory may still fire it: it wins, and there is one row and one run."""
        job = await world.plant_job()
        row = await world.plant_occurrence(job)
        term = await world.own(0)
        await raise_marks(world, 3)
        (stray,) = await Findings(world.database).strays(0)
        next_us = NOW_US + 60 * US_PER_S
        await world.firing().fire_chains(
            [fire_chain(world, job, row, term, lease=grant(), next_us=next_us)], now_us=NOW_US
        )
        assert not await repairs(world).reland(stray, "why")
        (moved,) = await world.due()
        assert moved.due_at_us == next_us

    async def test_that_came_to_the_floor_are_not_fired_by_an_older_memory(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        row = await world.plant_occurrence(job)
        term = await world.own(0)
        floor = await raise_marks(world, 3)
        (stray,) = await Findings(world.database).strays(0)
        assert await repairs(world).reland(stray, "why")
        fired = await world.firing().fire_chains([fire_chain(world, job, row, term, lease=grant())], now_us=NOW_US)
        assert fired.consumed == frozenset()
        assert [each.bucket for each in await world.due()] == [floor]

    async def test_stay_where_the_chain_stands_elsewhere(self, world: StoreWorld) -> None:
        """Two rows of one chain would meet in one place at the next firing."""
        job = await world.plant_job()
        await world.plant_occurrence(job)
        await raise_marks(world, 3)
        (stray,) = await Findings(world.database).strays(0)
        await world.plant_occurrence(job, NOW_US + 60 * US_PER_S)
        assert not await repairs(world).reland(stray, "why")
        assert len(await world.due()) == 2


class TestRestingRuns:
    async def test_get_their_due_row_again(self, world: StoreWorld) -> None:
        run = await resting(world, await world.plant_job())
        assert await repairs(world).land_retry(run, world.bucket, "why")
        (row,) = await world.due()
        assert (row.kind, row.id, row.due_at_us, row.bucket) == (
            DueKind.RUN,
            run.run_id,
            run.not_before_us,
            world.bucket,
        )
        assert not await repairs(world, 6).land_retry(run, world.bucket, "why"), "it stands now"

    async def test_land_at_the_floor(self, world: StoreWorld) -> None:
        run = await resting(world, await world.plant_job())
        floor = await raise_marks(world, 7)
        assert await repairs(world).land_retry(run, world.bucket, "why")
        assert [row.bucket for row in await world.due()] == [floor]

    async def test_whose_attempt_began_meanwhile_get_none(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        run = await resting(world, job)
        row = await world.plant_retry(job, run.run_id, run.not_before_us)
        term = await world.own(0)
        await world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US + US_PER_S)
        assert (await world.run(run.run_id))["state"] == RunState.LEASED
        assert not await repairs(world).land_retry(run, world.bucket, "why")
        assert await world.due() == []

    async def test_that_rest_for_another_attempt_get_none(self, world: StoreWorld) -> None:
        run = await resting(world, await world.plant_job())
        await world.eye.execute("UPDATE runs SET not_before_us = not_before_us + 1, attempt = attempt + 1")
        assert not await repairs(world).land_retry(run, world.bucket, "why")
        assert await world.due() == []

    async def test_with_a_due_row_elsewhere_get_no_second_one(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        run = await resting(world, job)
        await world.plant_retry(job, run.run_id, NOW_US + 3_600 * US_PER_S)
        assert not await repairs(world).land_retry(run, world.bucket, "why")

    async def test_land_once_though_the_floor_rises_between_two_repairs(self, world: StoreWorld) -> None:
        """The second one waits for the first, and must see its row, although it would put its own elsewhere."""
        job = await world.plant_job()
        run = await resting(world, job)
        rival = await connect(world.database.config, "rival")
        binds = {
            "landing_shards": [0],
            "run_id": run.run_id,
            "shard": 0,
            "attempt": run.attempt,
            "not_before_us": run.not_before_us,
            "bucket": world.bucket + 3,
            "namespace": "",
            "now_us": NOW_US,
            "audit_id": NOBODY,
            "actor": "rival",
            "action": "",
            "note": "",
        }
        async with rival.transaction():
            assert await fetch(rival, Call("land_missing_retry", binds))
            second = asyncio.ensure_future(repairs(world).land_retry(run, world.bucket, "why"))
            await until_waiting(world.eye, world.database.config.application_name)
        await rival.close()
        assert not await second
        assert [each.bucket for each in await world.due()] == [world.bucket + 3]


class TestRunsThatNoAdoptionFinds:
    async def walked(self, world: StoreWorld, after: UUID = NOBODY, limit: int = 100) -> Any:
        low, high = hashes_range(shard_hashes(0, SHARDS))
        return await Findings(world.database).walk(0, max(after, low), high, limit)

    async def mark(self, world: StoreWorld) -> None:
        await world.eye.execute("UPDATE shard_marks SET open_from_us = $1", NOW_US)

    async def test_are_found_by_the_walk_and_made_to_stand(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        old = await world.plant_run(job, scheduled_for_us=NOW_US - 60 * US_PER_S)
        await world.plant_run(job, scheduled_for_us=NOW_US - 61 * US_PER_S, state=RunState.SUCCEEDED)
        await world.plant_run(job)
        await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
        before = await self.walked(world)
        assert (len(before.runs), before.unfound) == (2, []), "two are open, and the mark does not pass them"
        await self.mark(world)
        (run,) = (await self.walked(world)).unfound
        assert run.run_id == old
        assert [await repairs(world, seed).stand(run, "why") for seed in (5, 6)] == [True, False]
        assert (await self.walked(world)).unfound == []
        assert [row["run_id"] for row in await world.rows("open_runs")] == [old]
        assert await audited(world) == [("controlplane-1", "reconcile.stand", str(old))]

    async def test_rest_and_need_not_stand(self, world: StoreWorld) -> None:
        """Their due row stands for them until they wake."""
        run = await resting(world, await world.plant_job(), scheduled_for_us=NOW_US - 60 * US_PER_S)
        await self.mark(world)
        seen = await self.walked(world)
        assert (seen.runs, seen.unfound) == ([run], [])

    async def test_that_end_meanwhile_do_not_stand(self, world: StoreWorld) -> None:
        old = await world.plant_run(await world.plant_job(), scheduled_for_us=NOW_US - 60 * US_PER_S)
        await self.mark(world)
        (run,) = (await self.walked(world)).unfound
        await world.eye.execute("UPDATE runs SET state = 6, ended_us = 1, lease_until_us = 0 WHERE run_id = $1", old)
        assert not await repairs(world).stand(run, "why")
        assert await world.rows("open_runs") == []

    async def test_the_walk_goes_on_step_by_step_to_the_end(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        runs = sorted([await world.plant_run(job, scheduled_for_us=NOW_US - n * US_PER_S) for n in range(1, 6)])
        await self.mark(world)
        first = await self.walked(world, limit=3)
        assert ([run.run_id for run in first.unfound], first.after) == (runs[:3], runs[2])
        second = await self.walked(world, first.after, limit=3)
        assert [run.run_id for run in second.unfound] == runs[3:]
        assert (await self.walked(world, second.after, limit=3)).after is None


class TestLostChains:
    def landing(self, job: Job, due_at_us: int = NOW_US) -> Landing:
        bucket = due_at_us // 5_000_000
        kind = DueKind.OCCURRENCE
        return Landing(job.shard, bucket, due_at_us, job.chain_id, kind, job.job_id, job.version, due_at_us)

    async def test_are_landed_once(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        assert [await repairs(world, seed).land_chain(self.landing(job), "why") for seed in (5, 6)] == [True, False]
        (row,) = await world.due()
        assert (row.id, row.due_at_us) == (job.chain_id, NOW_US)
        assert [action for _, action, _ in await audited(world)] == ["reconcile.land_chain"]

    async def test_of_a_job_that_was_edited_or_paused_stay_lost(self, world: StoreWorld) -> None:
        edited, paused = await world.plant_job(), await world.plant_job()
        await world.bump_version(edited)
        await world.eye.execute("UPDATE jobs SET state = 2 WHERE job_id = $1", paused.job_id)
        for job in (edited, paused):
            assert not await repairs(world).land_chain(self.landing(job), "why")
        assert await world.due() == []

    @pytest.mark.parametrize("bucket", [0, 2**40])
    async def test_that_stand_anywhere_are_not_landed_again(self, world: StoreWorld, bucket: int) -> None:
        job = await world.plant_job()
        row = (0, bucket, NOW_US, job.chain_id, 1, job.job_id, 1, NOW_US)
        await world.eye.execute("INSERT INTO due VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row)
        assert not await repairs(world).land_chain(self.landing(job, NOW_US + 5), "why")

    async def test_the_account_of_a_job_ends_with_its_last_run_or_skip(self, world: StoreWorld) -> None:
        job, reads = await world.plant_job(), Findings(world.database)
        assert await reads.account_end_us(job.job_id, 1) is None
        version = "INSERT INTO job_versions VALUES ($1, 1, 1, '{}', '', $2, $2, 'a', 'r', '')"
        await world.eye.execute(version, job.job_id, NOW_US - 100)
        assert await reads.account_end_us(job.job_id, 1) == NOW_US - 100
        await world.plant_run(job, scheduled_for_us=NOW_US)
        await world.plant_run(job, scheduled_for_us=NOW_US + 7_000, cause=2)
        assert await reads.account_end_us(job.job_id, 1) == NOW_US, "a trigger is no occurrence"
        skip = "INSERT INTO skips VALUES ($1, $2, $3, 1, 1, 0, 1, 0)"
        await world.eye.execute(skip, job.job_id, NOW_US + 5, NOW_US + 50)
        assert await reads.account_end_us(job.job_id, 1) == NOW_US + 50
