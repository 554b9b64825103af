"""Splits and closes: a planned move on the rows, whatever races with it and whichever answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from core.buckets import NO_END
from core.clock import US_PER_S
from core.fence import TermRow
from core.states import RunState, TermState
from core.store.database import DatabaseConfig
from core.store.marks import Raise
from core.store.terms import Claim, Drained, Split
from tests.support.db_faults import DbFaults
from tests.support.plans import both_modes, conditions
from tests.support.raw_statements import Call, connect, fetch, until_waiting
from tests.support.store_world import NOW_US, OTHER, OWNER, StoreWorld, fire_chain, tiles

LATER_US = NOW_US + 100 * US_PER_S


async def split(
    world: StoreWorld, term: TermRow, at: int, *, owner: str = OTHER, residency_us: int = 0, now_us: int = NOW_US
) -> TermRow | None:
    wish = Split(term.shard, term, at, residency_us)
    won = await world.terms.split([wish], owner=owner, op_id=world.rand.uuid(), now_us=now_us, reason="move")
    return won[0] if won else None


async def halves(world: StoreWorld, ahead: int = 2) -> tuple[TermRow, TermRow]:
    """Shard 0 in two hands: [0, b) of OWNER and [b, end) of OTHER."""
    after = await split(world, await world.own(0), world.bucket + ahead)
    assert after is not None
    return (await world.terms.history(0))[0], after


async def close(world: StoreWorld, before: TermRow, after: TermRow, owner: str = OTHER) -> bool:
    wish = Drained(before, after.term)
    closed = await world.terms.close_drained([wish], owner=owner, op_id=world.rand.uuid(), now_us=LATER_US)
    return before.key in closed


async def drain(world: StoreWorld, term: TermRow, owner: str = OWNER) -> None:
    """Finish every bucket of a term that has an end."""
    marks = (await world.marks(owner).read([term.shard]))[term.shard]
    await world.marks(owner).raise_floors([Raise(term.shard, term.term, marks.floor, term.to_bucket)])
    raised = await world.marks(owner).raise_watermarks([Raise(term.shard, term.term, marks.watermark, term.to_bucket)])
    assert raised.keys == {term.key}


async def claim(world: StoreWorld, term: TermRow, owner: str) -> TermRow | None:
    won = await world.terms.claim(
        [Claim(term.shard, term)], owner=owner, op_id=world.rand.uuid(), now_us=LATER_US, reason="takeover"
    )
    return won[0] if won else None


async def events(world: StoreWorld) -> list[tuple[int, str, int, int, str]]:
    rows = await world.eye.fetch(
        "SELECT term, event, from_bucket, to_bucket, owner FROM shard_term_events WHERE shard = 0 ORDER BY server_us"
    )
    return [tuple(row) for row in rows]


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
        assert len(await fetch(rival, _cut(world, whole, b))) == 1
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


Read = Callable[[StoreWorld], Awaitable[object]]


@pytest.mark.usefixtures("on_postgresql")
class TestPlans:
    """Every row of a shard's terms is found by the shard, however long its history is."""

    @pytest.fixture
    async def aged(self, world: StoreWorld) -> StoreWorld:
        await world.own(0)
        await world.eye.execute(
            """INSERT INTO shard_terms SELECT 1 + n % 20, 2 + n / 20, 0, 1, 'x', gen_random_uuid(), 2, 0, ''
               FROM generate_series(1, 5000) AS n"""
        )
        await world.eye.execute("ANALYZE")
        return world

    @both_modes
    async def test_newest_terms(self, aged: StoreWorld, mode: str) -> None:
        found = (await conditions(aged, "list_newest_terms", mode, shards=[0, 1]))["shard_terms"]
        assert len(found) == 2
        assert all("shard" in condition for condition in found)

    @both_modes
    async def test_a_split_and_a_close(self, aged: StoreWorld, mode: str) -> None:
        term = (await aged.terms.history(0))[0]
        cut = _cut(aged, term, 10)
        found = (await conditions(aged, cut.name, mode, **cut.params))["shard_terms"]
        assert all("shard" in condition for condition in found)
        params = {**cut.params, "next_terms": [2], "owner": OTHER}
        found = (await conditions(aged, "close_drained_terms", mode, **params))["shard_terms"]
        assert all("shard" in condition and "term" in condition for condition in found)

    @both_modes
    async def test_the_look_at_the_range_before(self, aged: StoreWorld, mode: str) -> None:
        params = {"owner": OWNER, "fence_shards": [0], "fence_terms": [1]}
        params |= {"shards": [0], "terms": [1], "olds": [0], "news": [1]}
        for statement in ("raise_floors", "raise_watermarks", "raise_open_from_marks"):
            found = (await conditions(aged, statement, mode, **params))["shard_terms"]
            assert len(found) == 2
            assert all("shard" in condition for condition in found)


async def test_a_run_of_the_closed_term_stays_what_it_was(world: StoreWorld) -> None:
    """Closing changes no run: that they came home before is for the one who closes."""
    before, after = await halves(world)
    run_id = await world.plant_run(await world.plant_job())
    await drain(world, before)
    await close(world, before, after)
    (run,) = await world.rows("runs")
    assert (run["run_id"], run["home_term"], run["state"]) == (run_id, 1, RunState.LEASED)


def _cut(world: StoreWorld, term: TermRow, at: int) -> Call:
    params = {
        "shards": [term.shard],
        "terms": [term.term],
        "owners": [term.owner],
        "from_buckets": [term.from_bucket],
        "to_buckets": [term.to_bucket],
        "boundaries": [at],
        "opened_until_us": [LATER_US],
        "op_id": world.rand.uuid(),
        "reason": "rival",
        "now_us": NOW_US,
    }
    return Call("split_terms", params)
