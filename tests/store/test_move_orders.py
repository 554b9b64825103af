"""The order of a planned move, carried out and withdrawn: of the two one wins, and the account says which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from core.buckets import NO_END
from core.clock import US_PER_S
from core.fence import TermRow
from core.states import MoveCause, MoveEvent, MoveState, TermState
from core.store.database import DatabaseConfig
from core.store.move_records import Advance, MoveRecord, MoveWish
from core.store.moves import Moves
from core.store.terms import Claim, Split
from tests.support.clock import ManualClock
from tests.support.db_faults import DbFaults
from tests.support.raw_statements import connect, until_waiting
from tests.support.store_world import NOW_US, OTHER, OWNER, StoreWorld

LATER_US = NOW_US + US_PER_S


class Orders:
    """Moves of shards from OWNER to OTHER, as a leader orders them and their target carries them out."""

    def __init__(self, world: StoreWorld, clock: ManualClock) -> None:
        self.world = world
        self.moves = Moves(world.database, clock)

    async def ordered(self, term: TermRow, cause: MoveCause = MoveCause.OPERATOR) -> MoveRecord:
        wish = MoveWish(self.world.rand.uuid(), term.shard, term.owner, term.term, OTHER, cause, "because")
        (pending,) = await self.moves.plan([wish], author="leader")
        (move,) = await self.moves.advance([Advance(pending, pending.after(MoveEvent.ORDER, NOW_US))])
        return move

    async def withdrawn(self, move: MoveRecord) -> bool:
        """Whether the leader could roll it back."""
        return bool(await self.moves.advance([Advance(move, move.after(MoveEvent.ROLL_BACK, NOW_US, error="late"))]))

    async def split(self, move: MoveRecord, term: TermRow) -> list[TermRow]:
        wish = Split(term.shard, term, self.world.bucket + 2, 0, move.move_id)
        return await self.world.terms.split(
            [wish], owner=OTHER, op_id=self.world.rand.uuid(), now_us=LATER_US, reason="move"
        )

    async def claim(self, move: MoveRecord, term: TermRow) -> list[TermRow]:
        wish = Claim(term.shard, term, move.move_id)
        return await self.world.terms.claim(
            [wish], owner=OTHER, op_id=self.world.rand.uuid(), now_us=LATER_US, reason="move"
        )


@pytest.fixture
def orders(world: StoreWorld, clock: ManualClock) -> Orders:
    return Orders(world, clock)


@pytest.fixture
async def other_session(store_config: DatabaseConfig) -> AsyncIterator[asyncpg.Connection]:
    """A session of the test's own, beside the pool's."""
    connection = await connect(store_config, "other")
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("cause", "word"),
    [(MoveCause.OPERATOR, "move"), (MoveCause.REBALANCE, "rebalance"), (MoveCause.DRAIN, "drain")],
)
async def test_a_split_says_in_the_term_what_the_move_was_for_and_in_its_account_what_came_of_it(
    orders: Orders, cause: MoveCause, word: str
) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole, cause)
    (after,) = await orders.split(move, whole)
    assert (after.reason, after.owner, after.from_bucket) == (word, OTHER, orders.world.bucket + 2)
    told = await orders.moves.get(move.move_id)
    assert (told.state, told.boundary, told.new_term) == (MoveState.SPLIT, after.from_bucket, after.term)
    assert told.split_us == LATER_US
    assert not await orders.withdrawn(move), "the leader comes too late"


async def test_an_order_that_was_withdrawn_moves_nothing_however_late_it_is_carried_out(orders: Orders) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole)
    assert await orders.withdrawn(move)
    assert await orders.split(move, whole) == []
    assert await orders.claim(move, whole) == []
    assert await orders.world.terms.history(0) == [whole]
    assert (await orders.moves.get(move.move_id)).state is MoveState.ROLLED_BACK


async def test_an_order_that_nobody_has_written_down_moves_nothing(orders: Orders) -> None:
    """As one in the plan of an etcd that outlived the database whose moves it names."""
    whole = await orders.world.own(0)
    wish = Split(0, whole, orders.world.bucket + 2, 0, orders.world.rand.uuid())
    op_id = orders.world.rand.uuid()
    assert await orders.world.terms.split([wish], owner=OTHER, op_id=op_id, now_us=NOW_US, reason="move") == []
    assert await orders.world.terms.history(0) == [whole]


async def test_the_withdrawn_order_of_one_shard_does_not_keep_others_from_moving(orders: Orders) -> None:
    terms = [await orders.world.own(shard) for shard in range(3)]
    moves = [await orders.ordered(term) for term in terms]
    assert await orders.withdrawn(moves[1])
    wishes = [
        Split(term.shard, term, orders.world.bucket + 2, 0, move.move_id)
        for term, move in zip(terms, moves, strict=True)
    ]
    op_id = orders.world.rand.uuid()
    won = await orders.world.terms.split(wishes, owner=OTHER, op_id=op_id, now_us=LATER_US, reason="move")
    assert [row.shard for row in won] == [0, 2]
    states = [(await orders.moves.get(move.move_id)).state for move in moves]
    assert states == [MoveState.SPLIT, MoveState.ROLLED_BACK, MoveState.SPLIT]


async def test_a_split_that_the_terms_refuse_leaves_its_move_ordered(orders: Orders) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole)
    wish = Split(0, whole, orders.world.bucket + 2, 3_600 * US_PER_S, move.move_id)
    op_id = orders.world.rand.uuid()
    assert await orders.world.terms.split([wish], owner=OTHER, op_id=op_id, now_us=LATER_US, reason="move") == []
    assert (await orders.moves.get(move.move_id)).state is MoveState.ORDERED


async def test_what_a_withdrawn_owner_left_is_claimed_by_the_order_of_its_move(orders: Orders) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole, MoveCause.DRAIN)
    (heir,) = await orders.claim(move, whole)
    assert (heir.owner, heir.reason, heir.to_bucket) == (OTHER, "drain", NO_END)
    told = await orders.moves.get(move.move_id)
    assert (told.state, told.boundary, told.new_term) == (MoveState.SPLIT, heir.from_bucket, heir.term)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_settled_by_carrying_it_out_again(orders: Orders, applied: bool) -> None:
    whole, faults = await orders.world.own(0), DbFaults(orders.world.database)
    move = await orders.ordered(whole)
    with faults.lost_commits(applied=applied):
        (after,) = await orders.split(move, whole)
    assert faults.count == 1
    assert (await orders.moves.get(move.move_id)).new_term == after.term
    assert [row.state for row in await orders.world.terms.history(0)] == [TermState.OPEN, TermState.OPEN]


async def test_a_target_that_begins_while_the_order_is_being_withdrawn_waits_and_moves_nothing(
    orders: Orders, other_session: asyncpg.Connection
) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole)
    withdrawing = other_session.transaction()
    await withdrawing.start()
    await other_session.execute(
        "UPDATE shard_moves SET state = 5, ended_us = $2 WHERE move_id = $1 AND state = 2", move.move_id, NOW_US
    )
    late = asyncio.create_task(orders.split(move, whole))
    await until_waiting(orders.world.eye, "tidewheel")
    await withdrawing.commit()
    assert await late == []
    assert await orders.world.terms.history(0) == [whole]


async def test_a_leader_that_withdraws_while_the_target_has_begun_waits_and_withdraws_nothing(
    orders: Orders, other_session: asyncpg.Connection
) -> None:
    whole = await orders.world.own(0)
    move = await orders.ordered(whole)
    writing = other_session.transaction()
    await writing.start()
    # As a fenced write of the owner's, for which a split waits with its move locked.
    await other_session.execute("SELECT 1 FROM shard_terms WHERE shard = 0 AND term = 1 FOR SHARE")
    begun = asyncio.create_task(orders.split(move, whole))
    await until_waiting(orders.world.eye, "tidewheel")
    withdrawing = asyncio.create_task(orders.withdrawn(move))
    await asyncio.sleep(0)
    await writing.commit()
    (after,) = await begun
    assert not await withdrawing
    told = await orders.moves.get(move.move_id)
    assert (told.state, told.new_term, told.from_owner) == (MoveState.SPLIT, after.term, OWNER)
