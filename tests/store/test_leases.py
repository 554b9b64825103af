"""Leases: a waiting run gets a worker, a lease is held, and a new owner takes open runs over."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.states import RunState
from core.store.leases import LeaseOrder, Renewal
from core.store.open_run_lists import OpenRun
from tests.support.store_world import LEASE_US, NOW_US, OTHER, StoreWorld, grant

EVERYTHING = [(UUID(int=0), UUID(int=2**128 - 1))]
LATER_US = NOW_US + LEASE_US + 5 * US_PER_S


def order(run_id: UUID, attempt: int = 1, term: int = 1) -> LeaseOrder:
    return LeaseOrder(0, term, run_id, attempt, grant("worker-2"))


class TestLeasingAWaitingRun:
    async def test_gives_it_to_the_worker_as_the_next_attempt(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), state=RunState.PENDING, attempt=2)
        done = await world.leases().lease([order(run_id, 3)], now_us=NOW_US + 4)
        assert (set(done.fences), done.leased) == ({(0, 1)}, frozenset({0}))
        run = await world.run(run_id)
        assert (run["state"], run["attempt"], run["worker"]) == (RunState.LEASED, 3, "worker-2")
        assert (run["started_us"], run["lease_until_us"]) == (NOW_US + 4, NOW_US + LEASE_US)

    @pytest.mark.parametrize(
        ("columns", "attempt"),
        [
            ({"state": RunState.PENDING, "attempt": 1, "not_before_us": NOW_US}, 2),
            ({"state": RunState.PENDING, "attempt": 1}, 1),
            ({"state": RunState.PENDING, "attempt": 1}, 3),
            ({"state": RunState.PENDING, "attempt": 1, "home_term": 9}, 2),
            ({"state": RunState.LEASED, "attempt": 1}, 2),
            ({"state": RunState.CANCELED, "attempt": 1}, 2),
        ],
        ids=["waits for its time", "an old number", "a number too far", "another home", "leased", "canceled"],
    )
    async def test_refuses_one_that(self, world: StoreWorld, columns: dict[str, object], attempt: int) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), **columns)  # type: ignore[arg-type]
        before = await world.run(run_id)
        done = await world.leases().lease([order(run_id, attempt)], now_us=NOW_US)
        assert (set(done.fences), done.leased) == ({(0, 1)}, frozenset())
        assert await world.run(run_id) == before

    async def test_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term = await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), state=RunState.PENDING, attempt=0)
        await world.take_over(term)
        done = await world.leases().lease([order(run_id)], now_us=NOW_US)
        assert (done.fences, done.leased) == ({}, frozenset())


class TestHoldingALease:
    async def test_lengthens_it_and_keeps_progress(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        renewed = await world.leases().renew([Renewal(0, 1, run_id, 1, LATER_US, b"half")])
        assert renewed.leases == {0: (LATER_US, 0)}
        run = await world.run(run_id)
        assert (run["lease_until_us"], run["progress"]) == (LATER_US, b"half")

    async def test_never_shortens_it_nor_drops_progress(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), progress=b"half")
        renewed = await world.leases().renew([Renewal(0, 1, run_id, 1, NOW_US + 1, None)])
        assert renewed.leases == {0: (NOW_US + LEASE_US, 0)}
        assert (await world.run(run_id))["progress"] == b"half"

    async def test_tells_of_a_requested_cancel(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), cancel_requested_us=NOW_US + 2)
        assert (await world.leases().renew([Renewal(0, 1, run_id, 1, LATER_US, None)])).leases[0][1] == NOW_US + 2

    @pytest.mark.parametrize(
        ("columns", "attempt"),
        [({}, 2), ({"home_term": 9}, 1), ({"state": RunState.SUCCEEDED}, 1), ({"state": RunState.PENDING}, 1)],
        ids=["another attempt", "another home", "ended", "waiting"],
    )
    async def test_is_refused_for(self, world: StoreWorld, columns: dict[str, object], attempt: int) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), **columns)  # type: ignore[arg-type]
        before = await world.run(run_id)
        renewed = await world.leases().renew([Renewal(0, 1, run_id, attempt, LATER_US, b"x")])
        assert (renewed.leases, set(renewed.fences)) == ({}, {(0, 1)})
        assert await world.run(run_id) == before

    async def test_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term = await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        await world.take_over(term)
        renewed = await world.leases().renew([Renewal(0, 1, run_id, 1, LATER_US, None)])
        assert (renewed.leases, renewed.fences) == ({}, {})


class TestAdoption:
    async def open(self, world: StoreWorld) -> list[OpenRun]:
        return await world.open_runs(OTHER).find(0, EVERYTHING)

    async def test_makes_the_new_term_the_home_and_gives_leases_their_full_length(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        leased = await world.plant_run(job)
        waiting = await world.plant_run(job, state=RunState.PENDING, attempt=0, scheduled_for_us=NOW_US + 1_000_000)
        successor = await world.take_over(term)
        fences, adopted = await world.open_runs(OTHER).adopt(
            await self.open(world), shard=0, term=successor.term, lease_until_us=LATER_US
        )
        assert set(fences) == {(0, successor.term)}
        assert {(run.run_id, run.home_term, run.lease_until_us) for run in adopted} == {
            (leased, successor.term, LATER_US),
            (waiting, successor.term, 0),
        }
        assert {run["home_term"] for run in await world.rows("runs")} == {successor.term}

    async def test_never_shortens_a_lease(self, world: StoreWorld) -> None:
        term = await world.own(0)
        await world.plant_run(await world.plant_job())
        successor = await world.take_over(term)
        _, (run,) = await world.open_runs(OTHER).adopt(
            await self.open(world), shard=0, term=successor.term, lease_until_us=NOW_US
        )
        assert run.lease_until_us == NOW_US + LEASE_US

    async def test_passes_over_runs_that_ended_or_moved_meanwhile(self, world: StoreWorld) -> None:
        term = await world.own(0)
        ended, moved = [await world.plant_run(await world.plant_job()) for _ in range(2)]
        successor = await world.take_over(term)
        seen = await self.open(world)
        await world.eye.execute("UPDATE runs SET state = 3, ended_us = 1, lease_until_us = 0 WHERE run_id = $1", ended)
        await world.eye.execute("UPDATE runs SET home_term = 9 WHERE run_id = $1", moved)
        _, adopted = await world.open_runs(OTHER).adopt(seen, shard=0, term=successor.term, lease_until_us=LATER_US)
        assert adopted == []

    async def test_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term = await world.own(0)
        await world.plant_run(await world.plant_job(), home_term=0)
        seen = await self.open(world)
        await world.take_over(term)
        fences, adopted = await world.open_runs().adopt(seen, shard=0, term=1, lease_until_us=LATER_US)
        assert (fences, adopted) == ({}, [])

    async def test_afterwards_the_old_home_cannot_end_the_run(self, world: StoreWorld) -> None:
        term = await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        successor = await world.split(term, world.bucket + 1)
        _, adopted = await world.open_runs(OTHER).adopt(
            await self.open(world), shard=0, term=successor.term, lease_until_us=LATER_US
        )
        assert [run.run_id for run in adopted] == [run_id]
        renewed = await world.leases().renew([Renewal(0, 1, run_id, 1, LATER_US, None)])
        assert (renewed.leases, set(renewed.fences)) == ({}, {(0, 1)})


class TestOpenRuns:
    async def test_are_the_recent_ones_and_those_that_stand_apart_each_once(self, world: StoreWorld) -> None:
        await world.own(0)
        jobs = [await world.plant_job() for _ in range(3)]
        old, recent, both = [
            await world.plant_run(job, scheduled_for_us=at_us)
            for job, at_us in zip(jobs, (NOW_US - 10 * US_PER_S, NOW_US, NOW_US), strict=True)
        ]
        ended = await world.plant_run(jobs[1], state=RunState.SUCCEEDED, scheduled_for_us=NOW_US + US_PER_S)
        await world.open_runs().stand([(0, 1, jobs[0].job_id, old), (0, 1, jobs[2].job_id, both)])
        since = [(UUID(int=(1 << 112) | ((NOW_US // 1000) << 64)), UUID(int=2 << 112))]
        found = [run.run_id for run in await world.open_runs().find(0, since)]
        assert sorted(found) == sorted([old, recent, both])
        assert ended not in found

    async def test_standing_again_changes_nothing(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        run_id = await world.plant_run(job)
        for _ in range(2):
            assert set(await world.open_runs().stand([(0, 1, job.job_id, run_id)])) == {(0, 1)}
        assert len(await world.rows("open_runs")) == 1

    async def test_standing_is_refused_to_a_former_owner(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job)
        await world.take_over(term)
        assert await world.open_runs().stand([(0, 1, job.job_id, run_id)]) == {}
        assert await world.rows("open_runs") == []
