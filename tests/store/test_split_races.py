"""Splits and closes against whatever races with them: writes under way, rivals, lost answers, conflicts."""

from __future__ import annotations

import asyncio

import pytest

from core.buckets import NO_END
from core.states import TermState
from core.store.database import DatabaseConfig
from core.store.terms import Split
from tests.support.db_faults import DbFaults
from tests.support.raw_statements import connect, fetch, until_waiting
from tests.support.splits import LATER_US, claim, close, drain, events, halves, split, split_call
from tests.support.store_world import NOW_US, OTHER, StoreWorld, fire_chain, tiles


class TestAStaleOwner:
    async def test_fires_nothing_from_the_boundary_on_and_everything_before_it(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        early, late = await world.plant_job(), await world.plant_job()
        b = world.bucket + 2
        row_before = await world.plant_occurrence(early, NOW_US)
        row_after = await world.plant_occurrence(late, world.scale.start_us(b))
        assert await split(world, whole, b) is not None
        items = [fire_chain(world, early, row_before, whole), fire_chain(world, late, row_after, whole)]
        fired = await world.firing().fire_chains(items, now_us=LATER_US)
        assert set(fired.consumed) == {0}
        assert fired.fences[whole.key].to_bucket == b, "it learns of the split by its own statement"

    async def test_waits_out_a_split_under_way_and_then_keeps_to_its_boundary(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        whole = await world.own(0)
        b = world.bucket + 1
        job = await world.plant_job()
        row = await world.plant_occurrence(job, world.scale.start_us(b))
        rival = await connect(store_config, "rival")
        begun = rival.transaction()
        await begun.start()
        assert len(await fetch(rival, split_call(world, whole, b))) == 1
        firing = asyncio.create_task(world.firing().fire_chains([fire_chain(world, job, row, whole)], now_us=LATER_US))
        await until_waiting(world.eye, "tidewheel")
        await begun.commit()
        assert set((await firing).consumed) == set()
        await rival.close()

    async def test_that_writes_while_a_split_comes_is_waited_for(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        whole = await world.own(0)
        writer = await connect(store_config, "writer")
        begun = writer.transaction()
        await begun.start()
        await writer.fetch("SELECT 1 FROM shard_terms WHERE shard = 0 AND term = 1 FOR SHARE")
        splitting = asyncio.create_task(split(world, whole, world.bucket + 2))
        await until_waiting(world.eye, "tidewheel")
        assert not splitting.done()
        await begun.commit()
        assert await splitting is not None
        await writer.close()

    async def test_that_writes_while_its_term_is_closed_is_waited_for(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        before, after = await halves(world)
        await drain(world, before)
        writer = await connect(store_config, "writer")
        begun = writer.transaction()
        await begun.start()
        await writer.fetch("SELECT 1 FROM shard_terms WHERE shard = 0 AND term = 1 FOR SHARE")
        closing = asyncio.create_task(close(world, before, after))
        await until_waiting(world.eye, "tidewheel")
        assert not closing.done()
        await begun.commit()
        assert await closing
        await writer.close()


class TestRaces:
    async def test_of_two_targets_of_one_shard_one_wins(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        b = world.bucket + 2
        won = await asyncio.gather(*(split(world, whole, b + n, owner=f"dispatcher-{n}") for n in range(6)))
        assert sum(term is not None for term in won) == 1
        history = await world.terms.history(0)
        assert [t.term for t in history] == [1, 2]
        assert tiles(history)

    async def test_of_a_split_and_a_takeover_one_wins(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        won = await asyncio.gather(split(world, whole, world.bucket + 2), claim(world, whole, "dispatcher-c"))
        assert sum(term is not None for term in won) == 1
        assert tiles(await world.terms.history(0))

    async def test_of_a_close_and_a_takeover_of_the_rest_either_closes_and_nothing_is_left_to_open(
        self, world: StoreWorld
    ) -> None:
        before, after = await halves(world)
        await drain(world, before)
        _, taken = await asyncio.gather(close(world, before, after), claim(world, before, "dispatcher-c"))
        assert taken is None
        history = await world.terms.history(0)
        assert [(t.term, t.state, t.to_bucket) for t in history] == [
            (1, TermState.CLOSED, before.to_bucket),
            (2, TermState.OPEN, NO_END),
        ]

    async def test_of_a_close_and_a_takeover_of_its_closers_term_the_rows_tile(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        await drain(world, before)
        closed, heir = await asyncio.gather(close(world, before, after), claim(world, after, "dispatcher-c"))
        assert heir is not None
        if not closed:
            assert await close(world, before, heir, owner="dispatcher-c")
        history = await world.terms.history(0)
        assert tiles(history)
        assert [t.state for t in history if t.to_bucket == before.to_bucket] == [TermState.CLOSED]

    async def test_a_tail_that_is_taken_over_keeps_its_end_and_is_closed_by_the_same_rule(
        self, world: StoreWorld
    ) -> None:
        before, after = await halves(world)
        rest = await claim(world, before, OTHER)
        assert rest is not None
        assert (rest.term, rest.from_bucket, rest.to_bucket) == (3, world.bucket, before.to_bucket)
        assert not await close(world, rest, after)
        await drain(world, rest, OTHER)
        assert await close(world, rest, after)
        history = await world.terms.history(0)
        assert tiles(history)
        assert [t.term for t in history if t.state is TermState.OPEN] == [2]


class TestALostAnswer:
    @pytest.mark.parametrize("applied", [True, False])
    async def test_of_a_split_is_settled_by_running_it_again(self, world: StoreWorld, applied: bool) -> None:
        whole, faults = await world.own(0), DbFaults(world.database)
        with faults.lost_commits(applied=applied):
            after = await split(world, whole, world.bucket + 2)
        assert faults.count == 1
        assert after is not None
        history = await world.terms.history(0)
        assert history[1:] == [after]
        assert tiles(history)

    @pytest.mark.parametrize("applied", [True, False])
    async def test_of_a_close_is_settled_by_running_it_again(self, world: StoreWorld, applied: bool) -> None:
        before, after = await halves(world)
        await drain(world, before)
        faults = DbFaults(world.database)
        with faults.lost_commits(applied=applied):
            assert await close(world, before, after)
        assert faults.count == 1
        assert [event for _, event, *_ in await events(world)] == ["open", "split", "open", "close"]

    async def test_of_a_split_that_lost_meanwhile_gives_nothing(self, world: StoreWorld) -> None:
        """What it opened was taken over before it could ask again: it owns nothing."""
        whole, op_id = await world.own(0), world.rand.uuid()
        wish = [Split(0, whole, world.bucket + 2)]
        first = await world.terms.split(wish, owner=OTHER, op_id=op_id, now_us=NOW_US, reason="move")
        assert await claim(world, first[0], "dispatcher-c") is not None
        assert await world.terms.split(wish, owner=OTHER, op_id=op_id, now_us=NOW_US, reason="move") == []

    @pytest.mark.parametrize("statement", [1, 2, 3])
    async def test_a_conflict_at_any_statement_is_run_again(self, world: StoreWorld, statement: int) -> None:
        whole, faults = await world.own(0), DbFaults(world.database)
        with faults.conflict_at_statement(statement):
            assert await split(world, whole, world.bucket + 2) is not None
        assert faults.count == 1
        assert tiles(await world.terms.history(0))
