"""All open runs of a shard are found, a bounded piece at a time, by looks at keys, whatever else the cluster holds."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.ids import run_id_ranges, shard_hashes
from core.states import RunState
from core.store import open_run_lists
from core.store.open_run_lists import OpenRunLists
from tests.support.plans import both_modes, conditions
from tests.support.store_world import NOW_US, Job, StoreWorld

MANY_SHARDS = 64
SHARD = 5
HASHES = shard_hashes(SHARD, MANY_SHARDS)
# A cluster of 64 shards with a history of 100,000 runs, one in fifty of them open; those stand in open_runs.
HISTORY = f"""
    INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                      home_term, ended_us)
    SELECT CAST(lpad(to_hex(n * 7919 % 65536), 4, '0') || lpad(to_hex($1::bigint / 1000 - n), 12, '0')
                || substr(md5(CAST(n AS TEXT)), 1, 16) AS UUID),
           CAST(md5(CAST(n % 3000 AS TEXT)) AS UUID), 1, (n * 7919 % 65536) * {MANY_SHARDS} / 65536, 1,
           $1::bigint - n * 1000, $1, $1, CASE WHEN n % 50 = 0 THEN 1 ELSE 3 END, 1,
           CASE WHEN n % 50 = 0 THEN 0 ELSE 1 END
    FROM generate_series(1, 100000) AS n
"""


class TestInPieces:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Five rows and two ranges a statement."""
        monkeypatch.setattr(open_run_lists, "_ROWS_AT_ONCE", 5)
        monkeypatch.setattr(open_run_lists, "_RANGES_AT_ONCE", 2)

    async def planted(self, world: StoreWorld, hash16: int, count: int, **columns: Any) -> set[UUID]:
        job = Job(world.rand.uuid(), 0, hash16=hash16)
        times = [NOW_US + n * US_PER_S for n in range(count)]
        return {await world.plant_run(job, scheduled_for_us=at_us, **columns) for at_us in times}

    async def found(self, world: StoreWorld, from_us: int) -> list[UUID]:
        runs = await OpenRunLists(world.database).find(0, run_id_ranges(range(8), from_us))
        return sorted(run.run_id for run in runs)

    async def test_recent_runs_of_few_and_of_many_are_all_found_once(self, world: StoreWorld) -> None:
        wanted = set()
        for hash16, count in ((0, 1), (1, 13), (3, 2), (4, 5), (6, 11)):
            wanted |= await self.planted(world, hash16, count)
        await self.planted(world, 2, 7, state=RunState.SUCCEEDED)
        assert await self.found(world, NOW_US) == sorted(wanted)
        assert await self.found(world, NOW_US + 10 * US_PER_S) == sorted(
            run_id for run_id in wanted if run_id.int >> 64 & (1 << 48) - 1 >= NOW_US // 1000 + 10_000
        )

    async def test_standing_runs_are_all_found_whatever_ended_among_them(self, world: StoreWorld) -> None:
        wanted = await self.planted(world, 1, 12) | await self.planted(world, 7, 5)
        await self.planted(world, 4, 9, state=RunState.SUCCEEDED)
        await world.eye.execute("INSERT INTO open_runs SELECT shard, job_id, run_id FROM runs")
        assert await self.found(world, NOW_US + 3_600 * US_PER_S) == sorted(wanted)

    async def test_there_may_be_none(self, world: StoreWorld) -> None:
        assert await OpenRunLists(world.database).find(0, []) == []


@pytest.mark.usefixtures("on_postgresql")
class TestPlans:
    @pytest.fixture
    def isolation(self) -> str:
        """Plans are the same at every level."""
        return "READ COMMITTED"

    @pytest.fixture
    async def history(self, world: StoreWorld) -> StoreWorld:
        await world.eye.execute(HISTORY, NOW_US)
        await world.eye.execute("INSERT INTO open_runs SELECT shard, job_id, run_id FROM runs WHERE state = 1")
        await world.eye.execute("ANALYZE")
        return world

    @both_modes
    @pytest.mark.parametrize("hashes", [1, len(HASHES)])
    async def test_recent_ones_are_ranges_of_the_key_however_many(
        self, history: StoreWorld, mode: str, hashes: int
    ) -> None:
        ranges = run_id_ranges(HASHES[:hashes], NOW_US - 60 * US_PER_S)
        binds = {"ords": list(range(hashes)), "lows": [low for low, _ in ranges], "highs": [high for _, high in ranges]}
        found = await conditions(history, "list_recent_open_runs", mode, **binds, limit_per_range=10)
        assert found == {"runs": ["((run_id >= h.low) AND (run_id < h.high))"]}

    @both_modes
    async def test_standing_ones_are_a_range_of_their_shard_and_keys(self, history: StoreWorld, mode: str) -> None:
        binds = {"shard": SHARD, "after_job_id": UUID(int=5), "after_run_id": UUID(int=6), "row_limit": 100}
        found = await conditions(history, "list_standing_open_runs", mode, **binds)
        (standing,) = found["open_runs"]
        assert "shard =" in standing
        assert "ROW(job_id, run_id) > ROW(" in standing
        assert found["runs"] == ["(run_id = s.run_id)"]
        assert "sorts" not in found

    @both_modes
    async def test_named_ones_and_ended_ones_are_looked_up_by_key(self, history: StoreWorld, mode: str) -> None:
        named = await conditions(history, "list_named_open_runs", mode, shard=SHARD, run_ids=[UUID(int=1)] * 500)
        assert named == {"runs": ["(run_id = i.run_id)"]}
        ended = await conditions(history, "list_ended_standing_runs", mode, shard=SHARD)
        assert (ended["runs"], "sorts" in ended) == (["(run_id = o.run_id)"], False)
        assert all("shard =" in condition for condition in ended["open_runs"])
