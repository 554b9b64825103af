"""Terms: claims replace exactly what they name, and whatever races, the rows of a shard tile time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.buckets import NO_END
from core.fence import TermRow
from core.states import TermState
from core.store.database import DatabaseConfig
from core.store.marks import Raise
from core.store.terms import Claim
from tests.support.raw_statements import Call, connect, fetch, until_waiting
from tests.support.store_world import NOW_US, OTHER, OWNER, SHARDS, StoreWorld, tiles


async def events(world: StoreWorld) -> list[tuple[int, int, str]]:
    rows = await world.eye.fetch("SELECT shard, term, event FROM shard_term_events ORDER BY shard, term, event DESC")
    return [tuple(row) for row in rows]


async def claim(world: StoreWorld, *claims: Claim, owner: str = OTHER) -> list[TermRow]:
    return await world.terms.claim(claims, owner=owner, op_id=world.rand.uuid(), now_us=NOW_US, reason="test")


async def drain_to(world: StoreWorld, bucket: int, term: int = 1, owner: str = OWNER) -> None:
    """Move floor and watermark of shard 0 as the owner does."""
    old = (await world.marks().read([0]))[0]
    await world.marks(owner).raise_floors([Raise(0, term, old.floor, bucket)])
    raised = await world.marks(owner).raise_watermarks([Raise(0, term, old.watermark, bucket)])
    assert raised.shards == {0}


class TestAFirstClaim:
    async def test_takes_all_of_time(self, world: StoreWorld) -> None:
        (term,) = await claim(world, Claim(2, None), owner=OWNER)
        assert (term.shard, term.term, term.from_bucket, term.to_bucket) == (2, 1, 0, NO_END)
        assert (term.owner, term.state, term.reason) == (OWNER, TermState.OPEN, "test")
        assert await events(world) == [(2, 1, "open")]

    async def test_takes_many_shards_at_once(self, world: StoreWorld) -> None:
        terms = await claim(world, *(Claim(shard, None) for shard in reversed(range(SHARDS))))
        assert [(t.shard, t.term) for t in terms] == [(shard, 1) for shard in range(SHARDS)]

    async def test_gets_nothing_where_somebody_was(self, world: StoreWorld) -> None:
        await world.own(1)
        terms = await claim(world, Claim(0, None), Claim(1, None))
        assert [t.shard for t in terms] == [0]


class TestAReplacement:
    async def test_closes_the_old_term_at_the_watermark_and_goes_on_from_there(self, world: StoreWorld) -> None:
        old = await world.own(0)
        b = world.bucket
        await drain_to(world, b + 3)
        (new,) = await claim(world, Claim(0, old))
        assert (new.term, new.from_bucket, new.to_bucket, new.owner) == (2, b + 3, NO_END, OTHER)
        closed, opened = await world.terms.history(0)
        assert (closed.state, closed.from_bucket, closed.to_bucket) == (TermState.CLOSED, 0, b + 3)
        assert opened == new
        assert tiles([closed, opened])
        assert await events(world) == [(0, 1, "open"), (0, 1, "close"), (0, 2, "open")]

    async def test_of_a_range_that_has_not_begun_voids_it_whole(self, world: StoreWorld) -> None:
        first = await world.own(0)
        b = world.bucket
        second = await world.split(first, b + 10)
        (third,) = await claim(world, Claim(0, second), owner="dispatcher-c")
        assert (third.term, third.from_bucket, third.to_bucket) == (3, b + 10, NO_END)
        history = await world.terms.history(0)
        assert [t.state for t in history] == [TermState.OPEN, TermState.VOID, TermState.OPEN]
        assert (history[1].from_bucket, history[1].to_bucket) == (b + 10, NO_END)
        assert tiles(history)
        assert (0, 2, "void") in await events(world)

    async def test_of_a_range_with_an_end_keeps_that_end(self, world: StoreWorld) -> None:
        first = await world.own(0)
        b = world.bucket
        await world.split(first, b + 10)
        (third,) = await claim(world, Claim(0, replace(first, to_bucket=b + 10)), owner="dispatcher-c")
        assert (third.term, third.from_bucket, third.to_bucket) == (3, b, b + 10)
        assert tiles(await world.terms.history(0))

    async def test_of_a_range_that_is_done_closes_it_and_opens_nothing(self, world: StoreWorld) -> None:
        first = await world.own(0)
        b = world.bucket
        await world.split(first, b + 1)
        await drain_to(world, b + 1)
        assert await claim(world, Claim(0, replace(first, to_bucket=b + 1)), owner="dispatcher-c") == []
        history = await world.terms.history(0)
        assert [(t.state, t.from_bucket, t.to_bucket) for t in history] == [
            (TermState.CLOSED, 0, b + 1),
            (TermState.OPEN, b + 1, NO_END),
        ]

    @pytest.mark.parametrize(
        "stale",
        [{"term": 7}, {"owner": "somebody"}, {"from_bucket": 1}, {"to_bucket": 10**9}],
        ids=["term", "owner", "from", "to"],
    )
    async def test_that_names_another_row_gets_nothing(self, world: StoreWorld, stale: dict[str, object]) -> None:
        term = await world.own(0)
        assert await claim(world, Claim(0, replace(term, **stale))) == []  # type: ignore[arg-type]
        assert [t.state for t in await world.terms.history(0)] == [TermState.OPEN]

    async def test_of_several_shards_gives_those_that_were_not_lost(self, world: StoreWorld) -> None:
        held = [await world.own(shard) for shard in range(3)]
        await world.take_over(held[1], "dispatcher-c")
        won = await claim(world, *(Claim(t.shard, t) for t in held), Claim(3, None))
        assert [(t.shard, t.term, t.owner) for t in won] == [(0, 2, OTHER), (2, 2, OTHER), (3, 1, OTHER)]


class TestARunAfterALostCommit:
    """The same operation id finds its own rows; another one finds somebody in possession."""

    async def test_returns_the_rows_of_the_first_run(self, world: StoreWorld) -> None:
        held = await world.own(0)
        claims, op_id = [Claim(0, held), Claim(1, None)], world.rand.uuid()
        first = await world.terms.claim(claims, owner=OTHER, op_id=op_id, now_us=NOW_US, reason="test")
        again = await world.terms.claim(claims, owner=OTHER, op_id=op_id, now_us=NOW_US + 1, reason="test")
        assert again == first
        assert len(await world.terms.history(0)) == 2
        assert len(await world.terms.history(1)) == 1

    async def test_finishes_what_the_first_run_did_not_do(self, world: StoreWorld) -> None:
        held, op_id = await world.own(0), world.rand.uuid()
        first = await world.terms.claim([Claim(1, None)], owner=OTHER, op_id=op_id, now_us=NOW_US, reason="test")
        both = await world.terms.claim(
            [Claim(1, None), Claim(0, held)], owner=OTHER, op_id=op_id, now_us=NOW_US, reason="test"
        )
        assert [(t.shard, t.term) for t in both] == [(0, 2), (1, 1)]
        assert both[1] == first[0]


class TestTwoClaimsAtOnce:
    async def test_of_an_unclaimed_shard_have_one_winner(self, world: StoreWorld) -> None:
        won = await asyncio.gather(*(claim(world, Claim(0, None), owner=f"dispatcher-{n}") for n in range(6)))
        assert sorted(len(terms) for terms in won) == [0, 0, 0, 0, 0, 1]
        assert tiles(await world.terms.history(0))

    async def test_of_one_term_have_one_winner(self, world: StoreWorld) -> None:
        held = await world.own(0)
        won = await asyncio.gather(*(claim(world, Claim(0, held), owner=f"dispatcher-{n}") for n in range(6)))
        assert sorted(len(terms) for terms in won) == [0, 0, 0, 0, 0, 1]
        history = await world.terms.history(0)
        assert [t.term for t in history] == [1, 2]
        assert history[1].owner == next(terms[0].owner for terms in won if terms)

    async def test_of_two_ranges_of_one_shard_both_win_under_numbers_of_their_own(self, world: StoreWorld) -> None:
        first = await world.own(0)
        b = world.bucket
        second = await world.split(first, b + 10)
        claims = [Claim(0, replace(first, to_bucket=b + 10)), Claim(0, second)]
        won = await asyncio.gather(*(claim(world, c, owner=f"dispatcher-{n}") for n, c in enumerate(claims)))
        assert sorted(t.term for terms in won for t in terms) == [3, 4]
        assert tiles(await world.terms.history(0))

    async def test_the_second_waits_for_the_first_and_then_finds_it_gone(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        held = await world.own(0)
        rival = await connect(store_config, "rival")
        begun = rival.transaction()
        await begun.start()
        closed = await fetch(rival, _close(world, held))
        assert [row["shard"] for row in closed] == [0]
        waiting = asyncio.create_task(claim(world, Claim(0, held)))
        await until_waiting(world.eye, "tidewheel")
        await begun.commit()
        assert await waiting == []
        await rival.close()

    async def test_the_second_wins_when_the_first_is_taken_back(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        held = await world.own(0)
        rival = await connect(store_config, "rival")
        begun = rival.transaction()
        await begun.start()
        await fetch(rival, _close(world, held))
        waiting = asyncio.create_task(claim(world, Claim(0, held)))
        await until_waiting(world.eye, "tidewheel")
        await begun.rollback()
        assert [t.term for t in await waiting] == [2]
        assert tiles(await world.terms.history(0))
        await rival.close()


async def test_the_newest_terms_of_a_shard_hold_every_open_one(world: StoreWorld) -> None:
    term = await world.own(0)
    for n in range(5):
        term = await world.take_over(term, f"dispatcher-{n}")
    newest = await world.terms.newest([0, 1])
    assert [t.term for t in newest] == [3, 4, 5, 6]
    assert [t.term for t in newest if t.state is TermState.OPEN] == [6]


def _close(world: StoreWorld, term: TermRow) -> Call:
    params = {
        "shards": [term.shard],
        "terms": [term.term],
        "owners": [term.owner],
        "from_buckets": [term.from_bucket],
        "to_buckets": [term.to_bucket],
        "op_id": world.rand.uuid(),
        "reason": "rival",
        "now_us": NOW_US,
    }
    return Call("close_replaced_terms", params)
