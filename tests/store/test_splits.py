"""Splits and closes: a planned move on the rows, step by step. What races with them is in test_split_races.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.buckets import NO_END
from core.clock import US_PER_S
from core.states import RunState, TermState
from core.store.marks import Raise
from core.store.terms import Split
from tests.support.splits import claim, close, drain, events, halves, split
from tests.support.store_world import NOW_US, OTHER, OWNER, StoreWorld, tiles


class TestASplit:
    async def test_ends_the_term_at_the_boundary_and_opens_the_next_from_there(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        b = world.bucket + 2
        after = await split(world, whole, b)
        assert after is not None
        assert (after.term, after.from_bucket, after.to_bucket) == (2, b, NO_END)
        assert (after.owner, after.state, after.reason, after.opened_us) == (OTHER, TermState.OPEN, "move", NOW_US)
        history = await world.terms.history(0)
        assert history == [replace(whole, to_bucket=b), after]
        assert tiles(history)
        assert await events(world) == [
            (1, "open", 0, NO_END, OWNER),
            (1, "split", 0, b, OWNER),
            (2, "open", b, NO_END, OTHER),
        ]

    async def test_of_several_shards_gives_those_that_could_be_split(self, world: StoreWorld) -> None:
        held = [await world.own(shard) for shard in range(3)]
        await world.take_over(held[1], "dispatcher-c")
        splits = [Split(t.shard, t, world.bucket + 1) for t in reversed(held)]
        won = await world.terms.split(splits, owner=OTHER, op_id=world.rand.uuid(), now_us=NOW_US, reason="move")
        assert [(t.shard, t.term) for t in won] == [(0, 2), (2, 2)]
        for shard in range(3):
            assert tiles(await world.terms.history(shard))

    @pytest.mark.parametrize(
        "stale",
        [{"term": 7}, {"owner": "somebody"}, {"from_bucket": 1}, {"to_bucket": 10**10}],
        ids=["term", "owner", "from", "to"],
    )
    async def test_that_names_another_row_is_refused(self, world: StoreWorld, stale: dict[str, object]) -> None:
        whole = await world.own(0)
        assert await split(world, replace(whole, **stale), world.bucket + 2) is None  # type: ignore[arg-type]
        assert await world.terms.history(0) == [whole]

    async def test_of_a_term_younger_than_its_residency_is_refused(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        b = world.bucket + 2
        young_us = NOW_US + 60 * US_PER_S - 1
        assert await split(world, whole, b, residency_us=60 * US_PER_S, now_us=young_us) is None
        assert await split(world, whole, b, residency_us=60 * US_PER_S, now_us=young_us + 1) is not None

    @pytest.mark.parametrize("ahead", [0, -1])
    async def test_at_a_boundary_that_the_marks_have_reached_is_refused(self, world: StoreWorld, ahead: int) -> None:
        whole = await world.own(0)
        assert await split(world, whole, world.bucket + ahead) is None
        assert await world.terms.history(0) == [whole]

    async def test_at_a_boundary_that_the_floor_has_reached_is_refused(self, world: StoreWorld) -> None:
        whole = await world.own(0)
        await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 2)])
        assert await split(world, whole, world.bucket + 2) is None
        assert await split(world, whole, world.bucket + 3) is not None

    async def test_rule_17_of_a_shard_in_two_hands_is_refused(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        b = after.from_bucket
        assert await split(world, after, b + 3, owner="dispatcher-c") is None
        assert await split(world, before, b - 1, owner="dispatcher-c") is None
        await drain(world, before)
        assert await split(world, after, b + 3, owner="dispatcher-c") is None, "drained, not closed"
        assert await close(world, before, after)
        back = await split(world, after, b + 3, owner=OWNER)
        assert back is not None
        assert back.term == 3, "a move back at once"
        assert tiles(await world.terms.history(0))


class TestAClose:
    async def test_ends_a_drained_term_where_its_range_ends(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        await drain(world, before)
        assert await close(world, before, after)
        history = await world.terms.history(0)
        assert history == [replace(before, state=TermState.CLOSED), after]
        assert tiles(history)
        assert (await events(world))[-1] == (1, "close", 0, before.to_bucket, OWNER)

    async def test_waits_for_the_watermark(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        old = (await world.marks().read([0]))[0]
        await world.marks().raise_floors([Raise(0, 1, old.floor, before.to_bucket)])
        await world.marks().raise_watermarks([Raise(0, 1, old.watermark, before.to_bucket - 1)])
        assert not await close(world, before, after)
        await world.marks().raise_watermarks([Raise(0, 1, before.to_bucket - 1, before.to_bucket)])
        assert await close(world, before, after)

    async def test_is_for_the_owner_of_the_range_that_goes_on_from_there(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        await drain(world, before)
        assert not await close(world, before, after, owner=OWNER)
        assert not await close(world, before, after, owner="dispatcher-c")
        heir = await claim(world, after, "dispatcher-c")
        assert heir is not None
        assert not await close(world, before, after), "it was passed over itself"
        assert not await close(world, before, heir), "that is somebody else's term"
        assert await close(world, before, heir, owner="dispatcher-c")
        assert tiles(await world.terms.history(0))

    @pytest.mark.parametrize("stale", [{"owner": "somebody"}, {"from_bucket": 1}, {"to_bucket": NO_END}])
    async def test_that_names_another_row_closes_nothing(self, world: StoreWorld, stale: dict[str, object]) -> None:
        before, after = await halves(world)
        await drain(world, before)
        assert not await close(world, replace(before, **stale), after)  # type: ignore[arg-type]

    async def test_ends_every_write_under_the_term(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        await drain(world, before)
        await close(world, before, after)
        done = await world.marks().raise_floors([Raise(0, 1, before.to_bucket, before.to_bucket + 1)])
        assert done.fences == {}


class TestMarksOfAShardInTwoHands:
    async def test_rule_3_the_owner_from_the_boundary_on_raises_none_before_the_other_term_is_closed(
        self, world: StoreWorld
    ) -> None:
        before, after = await halves(world)
        await drain(world, before)
        b, heir = before.to_bucket, world.marks(OTHER)
        early = await heir.raise_floors([Raise(0, 2, b, b + 1)])
        assert (early.keys, set(early.fences)) == (frozenset(), {(0, 2)})
        await close(world, before, after)
        assert (await heir.raise_floors([Raise(0, 2, b, b + 1)])).keys == {(0, 2)}
        assert (await heir.raise_watermarks([Raise(0, 2, b, b + 1)])).keys == {(0, 2)}

    async def test_the_owner_before_raises_none_past_the_boundary(self, world: StoreWorld) -> None:
        before, _ = await halves(world)
        b, old = before.to_bucket, (await world.marks().read([0]))[0]
        assert not (await world.marks().raise_floors([Raise(0, 1, old.floor, b + 1)])).keys
        await drain(world, before)
        assert not (await world.marks().raise_floors([Raise(0, 1, b, b + 1)])).keys
        assert not (await world.marks().raise_watermarks([Raise(0, 1, b, b + 1)])).keys

    async def test_the_open_from_mark_rests_until_the_shard_is_in_one_hand(self, world: StoreWorld) -> None:
        before, after = await halves(world)
        old = (await world.marks().read([0]))[0]
        raising = Raise(0, 1, old.open_from_us, old.open_from_us + 1)
        assert not (await world.marks().raise_open_from([raising])).keys
        assert not (await world.marks(OTHER).raise_open_from([replace(raising, term=2)])).keys
        await drain(world, before)
        await close(world, before, after)
        assert (await world.marks(OTHER).raise_open_from([replace(raising, term=2)])).keys == {(0, 2)}


async def test_open_terms_are_among_the_newest_however_often_the_other_range_changes_hands(world: StoreWorld) -> None:
    before, after = await halves(world)
    for n in range(6):
        heir = await claim(world, after, f"dispatcher-{n}")
        assert heir is not None
        after = heir
    newest = await world.terms.newest([0])
    assert [t.term for t in newest if t.state is TermState.OPEN] == [1, 8]
    assert [t.term for t in newest] == [1, 5, 6, 7, 8]
    assert newest[0] == before


async def test_a_run_of_the_closed_term_stays_what_it_was(world: StoreWorld) -> None:
    """Closing changes no run: that they came home before is for the one who closes."""
    before, after = await halves(world)
    run_id = await world.plant_run(await world.plant_job())
    await drain(world, before)
    await close(world, before, after)
    (run,) = await world.rows("runs")
    assert (run["run_id"], run["home_term"], run["state"]) == (run_id, 1, RunState.LEASED)
