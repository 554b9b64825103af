"""Triggers and their job's overlap policy: refused, made to wait, or started beside what is open."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.errors import Conflict
from core.jobspec import JobSpec
from core.policy import Overlap
from core.states import RunState
from core.store.leases import Leased, LeaseOrder
from core.store.run_changes import RunChanged
from tests.support.api_store import ApiStore, run_id_of, spec
from tests.support.store_world import NOW_US, Job, StoreWorld, fire_chain, fire_run, grant

PENDING, LEASED = RunState.PENDING, RunState.LEASED
HOUR_US = 3600 * US_PER_S
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER]


@pytest.fixture
async def store(world: StoreWorld) -> ApiStore:
    return ApiStore(world)


def buffering(policy: Overlap, max_buffered: int = 100) -> JobSpec:
    return JobSpec("h", overlap=policy, max_buffered=max_buffered)


async def meet(store: ApiStore, run_id: UUID) -> None:
    """Let the shard's owner meet the run's due row."""
    run = await store.world.run(run_id)
    history = await store.world.terms.history(run["shard"])
    term = history[-1] if history else await store.world.own(run["shard"])
    (row,) = [row for row in await store.world.due(run["shard"]) if row.id == run_id]
    await store.world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US)


async def lease(store: ApiStore, run_id: UUID) -> Leased:
    run = await store.world.run(run_id)
    order = LeaseOrder(run["shard"], run["home_term"], run_id, 1, grant(), gated=run["gated"])
    return await store.world.leases().lease([order], now_us=NOW_US)


async def started(store: ApiStore) -> UUID:
    """A trigger whose run was started."""
    run_id = run_id_of(await store.trigger())
    await meet(store, run_id)
    assert (await lease(store, run_id)).leased == {0}
    return run_id


class TestATriggersGate:
    @pytest.mark.parametrize("policy", [*BUFFERING, Overlap.SKIP])
    @pytest.mark.parametrize("allow_overlap", [False, True], ids=["obeys", "starts beside"])
    async def test_stands_unless_the_caller_wants_it_otherwise(
        self, store: ApiStore, policy: Overlap, allow_overlap: bool
    ) -> None:
        await store.create(of=buffering(policy))
        run_id = run_id_of(await store.trigger(allow_overlap=allow_overlap))
        assert (await store.world.run(run_id))["gated"] is not allow_overlap
        assert (await store.runs.get("default", run_id)).gated is not allow_overlap

    async def test_does_not_stand_where_runs_may_overlap(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.ALLOW))
        assert not (await store.world.run(run_id_of(await store.trigger())))["gated"]

    @pytest.mark.parametrize("policy", BUFFERING)
    async def test_keeps_it_behind_the_open_run(self, store: ApiStore, policy: Overlap) -> None:
        await store.create(of=buffering(policy))
        await started(store)
        behind, beside = run_id_of(await store.trigger()), run_id_of(await store.trigger(allow_overlap=True))
        for run_id in (behind, beside):
            await meet(store, run_id)
        assert (await store.world.run(beside))["state"] == LEASED
        assert (await lease(store, behind)).blocked == {0}


class TestAFullBuffer:
    @pytest.mark.parametrize(
        ("of", "room"),
        [
            (buffering(Overlap.BUFFER_ONE, 9), 1),
            (buffering(Overlap.BUFFER_ALL, 1), 1),
            (buffering(Overlap.BUFFER_ALL, 3), 3),
        ],
        ids=["one", "all, at most one", "all, at most three"],
    )
    @pytest.mark.parametrize("is_started", [True, False], ids=["behind a started run", "behind one that waits"])
    async def test_refuses_a_further_trigger(self, store: ApiStore, of: JobSpec, room: int, is_started: bool) -> None:
        await store.create(of=of)
        if is_started:
            await started(store)
        else:
            await store.trigger()
        for _ in range(room):
            await store.trigger()
        with pytest.raises(Conflict, match="buffers no more") as refused:
            await store.trigger()
        assert refused.value.field == "allow_overlap"
        assert len(await store.world.rows("runs")) == 1 + room
        assert await store.trigger(allow_overlap=True)

    async def test_counts_those_that_have_waited_for_long(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.BUFFER_ONE))
        for _ in range(2):
            run = await store.world.run(run_id_of(await store.trigger()))
            row = (run["shard"], run["job_id"], run["run_id"])
            await store.world.eye.execute("INSERT INTO open_runs VALUES ($1, $2, $3)", *row)
        await store.world.eye.execute("UPDATE shard_marks SET open_from_us = $1", NOW_US + 1)
        store.clock.set_wall(NOW_US + 1)
        with pytest.raises(Conflict):
            await store.trigger()

    async def test_has_room_again_when_one_was_canceled(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.BUFFER_ONE))
        await started(store)
        waiting = run_id_of(await store.trigger())
        with pytest.raises(Conflict):
            await store.trigger()
        await store.cancel(waiting)
        assert await store.trigger()

    async def test_does_not_count_a_trigger_before_it_is_due(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.BUFFER_ONE))
        await started(store)
        await store.trigger(delay_us=HOUR_US)
        assert await store.trigger()

    async def test_never_refuses_a_job_that_cancels_the_others(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.CANCEL_OTHER))
        for _ in range(4):
            await store.trigger()
        assert len(await store.world.rows("runs")) == 4

    async def test_is_filled_by_triggers_at_once_and_not_overfilled(self, store: ApiStore) -> None:
        await store.create(of=buffering(Overlap.BUFFER_ALL, 2))
        answers = await asyncio.gather(*(store.trigger() for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(answer, RunChanged) for answer in answers) == 3
        assert sum(isinstance(answer, Conflict) for answer in answers) == 3


@pytest.mark.parametrize("policy", [*BUFFERING, Overlap.SKIP])
async def test_a_trigger_and_an_occurrence_of_one_instant_never_run_beside_each_other(
    store: ApiStore, policy: Overlap
) -> None:
    """Neither may have seen the other: then both were accepted, and one waits for the other's end."""
    world = store.world
    for number in range(10):
        name = f"job-{number}"
        await store.create(name, spec(None, overlap=policy))
        row = await world.eye.fetchrow("SELECT job_id, shard, hash FROM jobs WHERE name = $1", name)
        job = Job(row["job_id"], row["shard"], hash16=row["hash"])
        history = await world.terms.history(job.shard)
        term = history[-1] if history else await world.own(job.shard)
        due = await world.plant_occurrence(job)
        item = fire_chain(world, job, due, term, lease=grant(), overlap=policy, max_buffered=9)
        made, changed = await asyncio.gather(
            world.firing().fire_chains([item], now_us=NOW_US), store.trigger(name), return_exceptions=True
        )
        assert not isinstance(made, BaseException)
        if isinstance(changed, RunChanged):
            run_id = run_id_of(changed)
            await meet(store, run_id)
            await lease(store, run_id)
        else:
            assert isinstance(changed, Conflict), changed
        runs = [run for run in await world.rows("runs") if run["job_id"] == job.job_id]
        for run in runs:  # of those that wait the first in line may go, if none is open
            await lease(store, run["run_id"])
        runs = [run for run in await world.rows("runs") if run["job_id"] == job.job_id]
        assert sum(run["state"] == LEASED for run in runs) == 1, runs


async def test_a_trigger_that_skips_waits_for_the_occurrence_that_it_did_not_see(store: ApiStore) -> None:
    """The race, step by step: the occurrence's run commits after the trigger looked, and before it is met."""
    world = store.world
    await store.create(of=spec(None, overlap=Overlap.SKIP))
    run_id = run_id_of(await store.trigger())
    run = await world.run(run_id)
    job = Job(run["job_id"], run["shard"], hash16=run_id.int >> 112)
    occurrence = await world.plant_run(job, scheduled_for_us=NOW_US + 1)
    await meet(store, run_id)
    assert (await world.run(run_id))["state"] == PENDING
    assert (await lease(store, run_id)).blocked == {0}
    await world.eye.execute("UPDATE runs SET state = 3, ended_us = 1, lease_until_us = 0 WHERE run_id = $1", occurrence)
    assert (await lease(store, run_id)).leased == {0}
