"""Triggers and cancels: the rows they make, the overlap they refuse, and races with the owner of the shard."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from core.errors import Conflict, NotFound
from core.policy import Overlap
from core.states import DueKind, JobState, RunCause, RunState
from core.store.decisions import LeaseGrant
from core.store.leases import LeaseOrder
from core.store.run_changes import RunChanged
from tests.support.api_store import ApiStore, run_id_of, spec
from tests.support.store_world import LEASE_US, NOW_US, StoreWorld, fire_run

HOUR_US = 3_600_000_000


@pytest.fixture
def store(world: StoreWorld) -> ApiStore:
    return ApiStore(world)


async def lease(store: ApiStore, run_id: UUID) -> None:
    """Let the shard's owner start the run."""
    run = await store.world.run(run_id)
    history = await store.world.terms.history(run["shard"])
    term = history[-1] if history else await store.world.own(run["shard"])
    (row,) = [row for row in await store.world.due(run["shard"]) if row.id == run_id]
    grant = LeaseGrant("worker-1", b"token", NOW_US + LEASE_US)
    fired = await store.world.firing().fire_runs([fire_run(row, term, grant)], now_us=NOW_US)
    assert fired.consumed == {0}
    if 0 in fired.made and fired.made[0].attempt == 0:  # its gate is held where runs are leased
        order = LeaseOrder(run["shard"], term.term, run_id, 1, grant, gated=True)
        assert (await store.world.leases().lease([order], now_us=NOW_US)).leased == {0}


class TestATrigger:
    async def test_makes_a_run_without_a_home_and_the_due_row_that_stands_for_it(self, store: ApiStore) -> None:
        await store.create(of=spec(None))
        changed = await store.trigger(call=store.call("r-7", note="now please"))
        run_id = run_id_of(changed)
        run = await store.world.run(run_id)
        assert (run["state"], run["attempt"], run["cause"]) == (RunState.PENDING, 0, RunCause.TRIGGER)
        assert (run["home_term"], run["not_before_us"]) == (0, NOW_US)
        assert (run["scheduled_for_us"], run["due_at_us"], run["created_us"]) == (NOW_US, NOW_US, NOW_US)
        assert (run["trace"], run["request_id"], run["payload"]) == ("00-trace", "r-7", None)
        (due,) = await store.world.due(run["shard"])
        assert (due.id, due.kind, due.due_at_us, due.job_version) == (run_id, DueKind.RUN, NOW_US, 1)
        assert changed.shard == run["shard"]
        (audit,) = [row for row in await store.world.rows("audit") if row["action"] == "job.trigger"]
        assert (audit["object"], audit["note"]) == ("job", "now please")

    async def test_can_be_put_off(self, store: ApiStore) -> None:
        await store.create(of=spec(None))
        run = await store.world.run(run_id_of(await store.trigger(delay_us=HOUR_US)))
        assert (run["scheduled_for_us"], run["due_at_us"], run["not_before_us"]) == (
            NOW_US,
            NOW_US + HOUR_US,
            NOW_US + HOUR_US,
        )
        (due,) = await store.world.due(run["shard"])
        assert due.bucket == store.world.scale.bucket_of(NOW_US + HOUR_US)

    async def test_lands_at_the_floor(self, store: ApiStore) -> None:
        await store.create(of=spec(None))
        await store.world.eye.execute("UPDATE shard_floors SET floor = $1", store.world.bucket + 7)
        run = await store.world.run(run_id_of(await store.trigger()))
        (due,) = await store.world.due(run["shard"])
        assert (due.bucket, due.due_at_us) == (store.world.bucket + 7, NOW_US)

    async def test_of_a_paused_job_is_taken_and_of_a_deleted_one_is_not(self, store: ApiStore) -> None:
        await store.create()
        await store.steer(JobState.PAUSED)
        assert await store.trigger()
        await store.steer(JobState.DELETED)
        with pytest.raises(NotFound):
            await store.trigger()

    async def test_repeated_is_the_same_run(self, store: ApiStore) -> None:
        await store.create()
        first = await store.trigger(call=store.call("r-1"))
        store.clock.set_wall(NOW_US + HOUR_US)
        assert (await store.trigger(call=store.call("r-1"))).answer == first.answer
        assert len(await store.world.rows("runs")) == 1

    async def test_can_be_read_back(self, store: ApiStore) -> None:
        await store.create()
        run_id = run_id_of(await store.trigger())
        run = await store.runs.get("default", run_id)
        assert (run.run_id, run.job_name, run.state, run.max_attempts, run.queue) == (
            run_id,
            "job",
            RunState.PENDING,
            4,
            "default",
        )
        with pytest.raises(NotFound):
            await store.runs.get("other", run_id)


class TestOverlap:
    async def test_is_refused_while_a_run_is_open_and_names_it(self, store: ApiStore) -> None:
        await store.create()
        run_id = run_id_of(await store.trigger())
        with pytest.raises(Conflict, match=str(run_id)):
            await store.trigger()
        await lease(store, run_id)
        with pytest.raises(Conflict, match=str(run_id)):
            await store.trigger()
        assert len(await store.world.rows("runs")) == 1

    async def test_is_the_callers_to_allow(self, store: ApiStore) -> None:
        await store.create()
        await store.trigger()
        await store.trigger(allow_overlap=True)
        assert len(await store.world.rows("runs")) == 2

    async def test_is_no_matter_to_a_job_that_allows_it(self, store: ApiStore) -> None:
        await store.create(of=spec(overlap=Overlap.ALLOW))
        await store.trigger()
        await store.trigger()
        assert len(await store.world.rows("runs")) == 2

    async def test_ends_with_the_run(self, store: ApiStore) -> None:
        await store.create()
        await store.cancel(run_id_of(await store.trigger()))
        assert await store.trigger()

    async def test_does_not_begin_before_a_put_off_run_is_due(self, store: ApiStore) -> None:
        await store.create()
        await store.trigger(delay_us=HOUR_US)
        run_id = run_id_of(await store.trigger())
        await store.cancel(run_id)
        store.clock.set_wall(NOW_US + HOUR_US)
        with pytest.raises(Conflict):
            await store.trigger()

    async def test_sees_a_run_that_has_been_open_for_long(self, store: ApiStore) -> None:
        """The shard's open-from mark has passed it; it stands in open_runs."""
        await store.create()
        run_id = run_id_of(await store.trigger())
        run = await store.world.run(run_id)
        await store.world.eye.execute("UPDATE shard_marks SET open_from_us = $1", NOW_US + 1)
        assert await store.trigger(), "the mark promises that whoever is open below it stands in open_runs"
        await store.world.eye.execute("INSERT INTO open_runs VALUES ($1, $2, $3)", run["shard"], run["job_id"], run_id)
        await store.cancel(run_id_of(await store.trigger(allow_overlap=True)))
        with pytest.raises(Conflict):
            await store.trigger()

    async def test_of_two_triggers_at_once_one_wins(self, store: ApiStore) -> None:
        await store.create()
        answers = await asyncio.gather(*(store.trigger() for _ in range(5)), return_exceptions=True)
        assert sum(isinstance(answer, RunChanged) for answer in answers) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 4
        assert len(await store.world.rows("runs")) == 1


class TestACancel:
    async def test_ends_a_pending_run_at_once(self, store: ApiStore) -> None:
        await store.create()
        run_id = run_id_of(await store.trigger())
        store.clock.set_wall(NOW_US + 5)
        changed = await store.cancel(run_id)
        assert changed.canceled == run_id
        run = await store.world.run(run_id)
        assert (run["state"], run["ended_us"], run["cancel_requested_us"]) == (
            RunState.CANCELED,
            NOW_US + 5,
            NOW_US + 5,
        )
        assert run["not_before_us"] == 0
        audit = (await store.world.rows("audit"))[-1]
        assert (audit["action"], audit["object"]) == ("run.cancel", str(run_id))

    async def test_of_a_pending_run_leaves_its_due_row_which_fires_nothing(self, store: ApiStore) -> None:
        await store.create(of=spec(None))
        run_id = run_id_of(await store.trigger())
        await store.cancel(run_id)
        await lease(store, run_id)
        assert (await store.world.run(run_id))["state"] == RunState.CANCELED
        assert await store.world.rows("due") == []

    async def test_of_a_leased_run_only_asks(self, store: ApiStore) -> None:
        await store.create()
        run_id = run_id_of(await store.trigger())
        await lease(store, run_id)
        assert (await store.cancel(run_id)).canceled == run_id
        run = await store.world.run(run_id)
        assert (run["state"], run["cancel_requested_us"], run["ended_us"]) == (RunState.LEASED, NOW_US, 0)
        assert run["lease_until_us"] == NOW_US + LEASE_US

    async def test_twice_is_answered_as_it_is(self, store: ApiStore) -> None:
        await store.create()
        pending = run_id_of(await store.trigger())
        await store.cancel(pending)
        assert (await store.cancel(pending)).canceled is None
        leased = run_id_of(await store.trigger())
        await lease(store, leased)
        await store.cancel(leased)
        store.clock.set_wall(NOW_US + 9)
        assert (await store.cancel(leased)).canceled is None
        assert (await store.world.run(leased))["cancel_requested_us"] == NOW_US

    async def test_of_a_run_that_ended_otherwise_is_refused(self, store: ApiStore) -> None:
        await store.create()
        run_id = run_id_of(await store.trigger())
        await store.world.eye.execute("UPDATE runs SET state = 3, ended_us = 1, cancel_requested_us = 1")
        with pytest.raises(Conflict, match="SUCCEEDED"):
            await store.cancel(run_id)

    async def test_of_a_run_that_stands_open_removes_it_there(self, store: ApiStore) -> None:
        await store.create()
        run = await store.world.run(run_id_of(await store.trigger()))
        await store.world.eye.execute(
            "INSERT INTO open_runs VALUES ($1, $2, $3)", run["shard"], run["job_id"], run["run_id"]
        )
        await store.cancel(run["run_id"])
        assert await store.world.rows("open_runs") == []

    async def test_that_races_with_a_lease_is_never_lost(self, store: ApiStore) -> None:
        """Whichever commits first: the run ends CANCELED, or its holder can see the request."""
        await store.create(of=spec(overlap=Overlap.ALLOW))
        for _ in range(5):
            run_id = run_id_of(await store.trigger())
            await make_ready(store, run_id)
            run = await store.world.run(run_id)
            order = LeaseOrder(
                run["shard"], run["home_term"], run_id, 1, LeaseGrant("worker-1", b"token", NOW_US + LEASE_US)
            )
            await asyncio.gather(
                store.world.leases().lease([order], now_us=NOW_US), store.cancel(run_id), return_exceptions=True
            )
            after = await store.world.run(run_id)
            assert after["cancel_requested_us"] > 0
            assert after["state"] in (RunState.LEASED, RunState.CANCELED)

    async def test_of_nobodys_run_is_not_found(self, store: ApiStore) -> None:
        with pytest.raises(NotFound):
            await store.cancel(store.world.rand.uuid())


async def make_ready(store: ApiStore, run_id: UUID) -> None:
    """Let the owner take the run up without a credit for it."""
    run = await store.world.run(run_id)
    history = await store.world.terms.history(run["shard"])
    term = history[-1] if history else await store.world.own(run["shard"])
    (row,) = [row for row in await store.world.due(run["shard"]) if row.id == run_id]
    await store.world.firing().fire_runs([fire_run(row, term)], now_us=NOW_US)
