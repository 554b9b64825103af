"""When the leader asks for moves: drains at once, rounds now and then and when somebody joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controlplane.membership import Roster
from controlplane.picture import Picture
from controlplane.rebalancer import Rebalancer
from core.config import ControlPlaneSettings
from core.rand import SeededRand
from core.states import MoveCause, MoveState
from core.store.move_records import MoveRecord, MoveWish
from tests.support.clock import ManualClock
from tests.unit.controlplane.pictures import member, move, owned, picture, roster


class Written:
    """Where wishes go: nothing of a database matters here."""

    def __init__(self) -> None:
        self.wishes: list[MoveWish] = []

    async def plan(self, wishes: Sequence[MoveWish], *, author: str) -> list[MoveRecord]:
        self.wishes += wishes
        return [move(wish.shard, wish.from_owner, wish.to_dispatcher, cause=wish.cause) for wish in wishes]

    def taken(self) -> list[MoveWish]:
        wishes, self.wishes = self.wishes, []
        return wishes


class Room:
    def __init__(self, clock: ManualClock, **settings: Any) -> None:
        self.written = Written()
        chosen = ControlPlaneSettings(rebalance_interval_s=10.0, **settings)
        moves: Any = self.written
        self.rebalancer = Rebalancer(moves, chosen, clock, SeededRand(1), "cp-1")

    async def ask(self, seen: Picture, left: int = 60) -> list[MoveWish]:
        asked = await self.rebalancer.ask(seen, left)
        wishes = self.written.taken()
        assert {wish.shard for wish in wishes} <= set(asked.moves), "the picture has what was asked for"
        return wishes


@pytest.fixture
def room(clock: ManualClock) -> Room:
    return Room(clock)


def uneven(judged: Roster) -> Picture:
    return picture([*owned("a", range(8)), *owned("b", range(8, 10))], judged)


async def test_a_round_comes_at_the_interval_and_when_somebody_joins(room: Room, clock: ManualClock) -> None:
    assert await room.ask(uneven(roster("ab"))), "whoever is met for the first time has joined"
    assert await room.ask(uneven(roster("ab"))) == []
    await clock.advance(9.9)
    assert await room.ask(uneven(roster("ab"))) == []
    await clock.advance(0.2)
    wishes = await room.ask(uneven(roster("ab")))
    assert {(wish.cause, wish.from_owner, wish.to_dispatcher) for wish in wishes} == {(MoveCause.REBALANCE, "a", "b")}
    assert await room.ask(uneven(roster("abc"))), "c joined"


async def test_a_new_leader_waits_until_it_has_heard_the_loads(room: Room, clock: ManualClock) -> None:
    await clock.advance(60)
    assert await room.ask(uneven(roster("ab", settling=True))) == []


async def test_no_round_where_rebalancing_is_off(clock: ManualClock) -> None:
    room = Room(clock, rebalance=False)
    assert await room.ask(uneven(roster("ab"))) == []
    drained = await room.ask(uneven(roster("b", leaving="a")))
    assert {wish.cause for wish in drained} == {MoveCause.DRAIN}, "drains go on without it"


async def test_a_round_asks_for_no_more_than_is_left_of_the_minute(room: Room) -> None:
    assert len(await room.ask(uneven(roster("ab")), left=2)) == 2


async def test_what_waits_already_counts(room: Room) -> None:
    waiting = [move(0, "a", "b", cause=MoveCause.REBALANCE), move(1, "a", "b", MoveState.SPLIT)]
    seen = picture([*owned("a", range(8)), *owned("b", [9])], roster("ab"), moves=waiting)
    assert len(await room.ask(seen, left=2)) == 1


async def test_a_new_leader_shares_a_drain_out_when_it_has_heard_everybody_who_lives(room: Room) -> None:
    """Whoever reports to it first would get everything."""
    rows, members = owned("a", range(4)), [member("a"), member("b"), member("c")]
    early = picture(rows, roster("b", keepers="c", leaving="a", settling=True), members=members)
    assert await room.ask(early) == []
    heard = picture(rows, roster("bc", leaving="a", settling=True), members=members)
    assert [wish.to_dispatcher for wish in await room.ask(heard)] == ["b", "c", "b", "c"]
    later = picture(rows, roster("b", keepers="c", leaving="a"), members=members)
    assert len(await room.ask(later)) == 4, "one that never reports is not waited for"
