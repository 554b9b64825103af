"""The account of planned moves: one open move a shard, steps by compare-and-set, pages by time, audit, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from core.errors import Conflict, InvariantBroken, NotFound, RequestReused
from core.states import MoveCause, MoveEvent, MoveState
from core.store.audit import Call
from core.store.move_records import Advance, MoveRecord, MoveWish
from core.store.moves import CLUSTER_NAMESPACE, Moves, forget_old_moves
from core.store.requests import RequestKey
from tests.support.clock import ManualClock
from tests.support.store_world import StoreWorld


class Account:
    """Moves over a world, with wishes at hand."""

    def __init__(self, world: StoreWorld, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.moves = Moves(world.database, clock)

    def wish(self, shard: int, to: str = "b", cause: MoveCause = MoveCause.OPERATOR) -> MoveWish:
        return MoveWish(self.world.rand.uuid(), shard, "a", 1, to, cause, "because")

    def call(self, request_id: str, body: bytes = b"body") -> Call:
        key = RequestKey(CLUSTER_NAMESPACE, request_id, "MoveShard", body)
        return Call(key, self.world.rand.uuid(), "olga", "because", "")

    async def ask(self, request_id: str, *wishes: MoveWish, needs_all: bool = True, body: bytes = b"body") -> bytes:
        call = self.call(request_id, body)
        return await self.moves.request(call, lambda: wishes, render=rendered, needs_all=needs_all)

    async def step(self, move: MoveRecord, event: MoveEvent, **values: int | str) -> MoveRecord | None:
        now = move.after(event, self.clock.now_us(), **values)  # type: ignore[arg-type]
        done = await self.moves.advance([Advance(move, now)])
        return done[0] if done else None


def rendered(moves: Sequence[MoveRecord]) -> bytes:
    return ",".join(f"{move.shard}>{move.to_dispatcher}" for move in moves).encode()


@pytest.fixture
def account(world: StoreWorld, clock: ManualClock) -> Account:
    return Account(world, clock)


async def test_a_wish_becomes_a_pending_move_with_its_audit_row(account: Account) -> None:
    wish = account.wish(3)
    assert await account.ask("r1", wish) == b"3>b"
    (move,) = await account.moves.open_moves()
    assert move == MoveRecord(
        move_id=wish.move_id,
        shard=3,
        from_owner="a",
        from_term=1,
        to_dispatcher="b",
        cause=MoveCause.OPERATOR,
        state=MoveState.PENDING,
        boundary=0,
        new_term=0,
        author="olga",
        reason="because",
        request_id="r1",
        requested_us=account.clock.now_us(),
        ordered_us=0,
        split_us=0,
        ended_us=0,
        error="",
    )
    assert await account.moves.get(wish.move_id) == move
    audited = await account.world.eye.fetch("SELECT actor, action, object, note, request_id FROM audit")
    assert [tuple(row) for row in audited] == [("olga", "shard.move", "3", "because", "r1")]


async def test_a_repeat_gets_the_first_answer_and_changes_nothing(account: Account) -> None:
    assert await account.ask("r1", account.wish(3)) == b"3>b"
    assert await account.ask("r1", account.wish(3, "c")) == b"3>b"
    assert [move.to_dispatcher for move in await account.moves.open_moves()] == ["b"]
    with pytest.raises(RequestReused):
        await account.ask("r1", account.wish(3), body=b"other")


async def test_of_two_moves_of_one_shard_the_second_is_refused_by_the_name_of_the_first(account: Account) -> None:
    wish = account.wish(3)
    await account.ask("r1", wish)
    with pytest.raises(Conflict, match=f"shard 3 is on the move already: move {wish.move_id} to b, PENDING.*olga"):
        await account.ask("r2", account.wish(2), account.wish(3, "c"))
    assert [move.shard for move in await account.moves.open_moves()] == [3], "all or nothing"
    assert await account.ask("r2", account.wish(3, "a"), account.wish(2), needs_all=False) == b"2>b"


async def test_of_two_moves_asked_for_at_once_one_wins(account: Account) -> None:
    asked = [account.ask(f"r{n}", account.wish(0, to)) for n, to in enumerate("bcde")]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    (won,) = [each for each in answers if isinstance(each, bytes)]
    assert sum(isinstance(each, Conflict) for each in answers) == 3
    (move,) = await account.moves.open_moves()
    assert rendered([move]) == won


async def test_the_leader_leaves_out_shards_that_are_on_the_move(account: Account) -> None:
    await account.ask("r1", account.wish(1))
    drained = [account.wish(shard, "c", MoveCause.DRAIN) for shard in (2, 1, 0)]
    made = await account.moves.plan(drained, author="cp-1")
    assert [(move.shard, move.author, move.cause) for move in made] == [
        (0, "cp-1", MoveCause.DRAIN),
        (2, "cp-1", MoveCause.DRAIN),
    ]
    assert await account.moves.plan([], author="cp-1") == []
    audited = await account.world.eye.fetch("SELECT object FROM audit WHERE actor = 'cp-1' ORDER BY object")
    assert [row["object"] for row in audited] == ["0", "2"]


async def test_a_move_goes_its_way_and_frees_its_shard_at_the_end(account: Account) -> None:
    (move,) = await account.moves.plan([account.wish(1)], author="cp-1")
    await account.clock.advance(1)
    ordered = await account.step(move, MoveEvent.ORDER)
    assert ordered is not None
    assert (ordered.state, ordered.ordered_us) == (MoveState.ORDERED, account.clock.now_us())
    await account.clock.advance(1)
    split = await account.step(ordered, MoveEvent.SPLIT, boundary=77, new_term=2)
    assert split is not None
    assert (split.boundary, split.new_term, split.split_us) == (77, 2, account.clock.now_us())
    await account.clock.advance(1)
    done = await account.step(split, MoveEvent.COMPLETE)
    assert done == await account.moves.get(move.move_id)
    assert done is not None
    assert (done.state, done.ended_us, done.boundary) == (MoveState.COMPLETED, account.clock.now_us(), 77)
    assert await account.moves.open_moves() == []
    assert len(await account.moves.plan([account.wish(1, "a")], author="cp-1")) == 1, "free for a move back"


async def test_each_step_is_taken_once_however_many_believe_that_they_lead(account: Account) -> None:
    (move,) = await account.moves.plan([account.wish(1)], author="cp-1")
    both = await asyncio.gather(account.step(move, MoveEvent.ORDER), account.step(move, MoveEvent.ROLL_BACK))
    assert sum(step is not None for step in both) == 1
    stored = await account.moves.get(move.move_id)
    assert stored == next(step for step in both if step is not None)


async def test_a_move_that_was_rolled_back_says_why(account: Account) -> None:
    (move,) = await account.moves.plan([account.wish(1)], author="cp-1")
    rolled = await account.step(move, MoveEvent.ROLL_BACK, error="the target is gone")
    assert rolled is not None
    assert (await account.moves.get(move.move_id)).error == "the target is gone"
    with pytest.raises(InvariantBroken, match="ROLLED_BACK cannot take ORDER"):
        rolled.after(MoveEvent.ORDER, 1)


async def test_the_instants_of_a_move_never_decrease(account: Account) -> None:
    """Whoever judges it looked at the clock before the row was written."""
    (move,) = await account.moves.plan([account.wish(1)], author="cp-1")
    early_us = account.clock.now_us() - 1_000
    ordered = move.after(MoveEvent.ORDER, early_us)
    assert ordered.ordered_us == move.requested_us
    assert ordered.after(MoveEvent.ROLL_BACK, early_us).ended_us == move.requested_us


async def test_moves_are_shown_in_pages_newest_first(account: Account) -> None:
    made = []
    for shard in range(4):
        made += await account.moves.plan([account.wish(shard), account.wish(shard + 10)], author="cp-1")
        await account.clock.advance(1)
    newest_first = [move.move_id for move in sorted(made, key=lambda move: move.key, reverse=True)]
    seen: list[UUID] = []
    after = None
    for size in (3, 3, 2):
        page = await account.moves.page(after=after, size=size)
        assert len(page.moves) == size
        seen += [move.move_id for move in page.moves]
        after = page.more_after
    assert seen == newest_first
    assert after is None
    of_two = await account.moves.page(after=None, size=9, shard=2)
    assert [move.shard for move in of_two.moves] == [2]
    await account.step(made[0], MoveEvent.ROLL_BACK, error="so")
    first = await account.moves.page(after=None, size=4, open_only=True)
    rest = await account.moves.page(after=first.more_after, size=4, open_only=True)
    assert [move.move_id for move in (*first.moves, *rest.moves)] == [*newest_first[:-2], made[1].move_id]
    recent = await account.moves.since(account.clock.now_us() - 2_000_000)
    assert sorted(move.shard for move in recent) == [2, 3, 12, 13]


async def test_a_move_that_does_not_exist_is_not_found(account: Account) -> None:
    with pytest.raises(NotFound):
        await account.moves.get(UUID(int=1))


async def test_ended_moves_are_forgotten_and_open_ones_are_not(account: Account) -> None:
    made = await account.moves.plan([account.wish(shard) for shard in range(3)], author="cp-1")
    for move in made[1:]:
        await account.step(move, MoveEvent.ROLL_BACK, error="so")
    before_us = account.clock.now_us() + 1
    assert await forget_old_moves(account.world.database, before_us=account.clock.now_us()) == 0
    assert await forget_old_moves(account.world.database, before_us=before_us, limit=1) == 1
    assert await forget_old_moves(account.world.database, before_us=before_us) == 1
    assert await forget_old_moves(account.world.database, before_us=before_us) == 0
    assert [move.shard for move in (await account.moves.page(after=None, size=9)).moves] == [0]
