"""What operators forbid the leader: each rule stands once, until it is lifted, and both are audited."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import NotFound
from core.states import PlacementRuleKind
from core.store.audit import Call
from core.store.moves import CLUSTER_NAMESPACE
from core.store.placement_rules import PlacementRule, PlacementRules
from core.store.requests import RequestKey
from tests.support.clock import ManualClock
from tests.support.store_world import StoreWorld

SHARD = PlacementRuleKind.FREEZE_SHARD
DRAIN = PlacementRuleKind.DRAIN_DISPATCHER


def rendered(rule: PlacementRule) -> bytes:
    return f"{rule.kind.name} {rule.subject}".encode()


class Book:
    """Rules over a world, by one operator."""

    def __init__(self, world: StoreWorld, clock: ManualClock) -> None:
        self.world = world
        self.rules = PlacementRules(world.database, clock)

    def call(self, request_id: str, reason: str) -> Call:
        key = RequestKey(CLUSTER_NAMESPACE, request_id, "Rule", b"")
        return Call(key, self.world.rand.uuid(), "olga", reason, "")

    async def add(self, request_id: str, kind: PlacementRuleKind, subject: str, reason: str = "maintenance") -> bytes:
        return await self.rules.add(self.call(request_id, reason), kind, subject, check=lambda: None, render=rendered)

    async def lift(self, request_id: str, kind: PlacementRuleKind, subject: str) -> bytes:
        return await self.rules.lift(self.call(request_id, "done"), kind, subject, render=rendered)


@pytest.fixture
def book(world: StoreWorld, clock: ManualClock) -> Book:
    return Book(world, clock)


async def test_a_rule_stands_until_it_is_lifted(book: Book, clock: ManualClock) -> None:
    assert await book.add("r1", SHARD, "5") == b"FREEZE_SHARD 5"
    assert await book.add("r2", DRAIN, "d1") == b"DRAIN_DISPATCHER d1"
    assert await book.rules.standing() == [
        PlacementRule(SHARD, "5", "olga", "maintenance", clock.now_us()),
        PlacementRule(DRAIN, "d1", "olga", "maintenance", clock.now_us()),
    ]
    assert await book.lift("r3", SHARD, "5") == b"FREEZE_SHARD 5"
    assert [rule.subject for rule in await book.rules.standing()] == ["d1"]


async def test_both_are_audited_with_their_reasons(book: Book) -> None:
    await book.add("r1", PlacementRuleKind.FREEZE_ALL, "")
    await book.lift("r2", PlacementRuleKind.FREEZE_ALL, "")
    rows = await book.world.eye.fetch("SELECT actor, action, object, note FROM audit ORDER BY action")
    assert [tuple(row) for row in rows] == [
        ("olga", "shards.freeze", "", "maintenance"),
        ("olga", "shards.unfreeze", "", "done"),
    ]


async def test_a_rule_that_stands_keeps_its_author_and_reason(book: Book, clock: ManualClock) -> None:
    await book.add("r1", DRAIN, "d1")
    began_us = clock.now_us()
    await clock.advance(1)
    assert await book.add("r2", DRAIN, "d1", "again") == b"DRAIN_DISPATCHER d1"
    assert await book.rules.standing() == [PlacementRule(DRAIN, "d1", "olga", "maintenance", began_us)]
    assert await book.world.eye.fetchval("SELECT count(*) FROM audit") == 1, "nothing was changed the second time"


async def test_of_two_that_are_added_at_once_one_stands(book: Book) -> None:
    both = await asyncio.gather(book.add("r1", DRAIN, "d1", "one"), book.add("r2", DRAIN, "d1", "two"))
    assert list(both) == [b"DRAIN_DISPATCHER d1"] * 2
    assert len(await book.rules.standing()) == 1


async def test_a_refused_rule_leaves_no_trace(book: Book) -> None:
    def refuse() -> None:
        raise NotFound("dispatcher", "d1")

    with pytest.raises(NotFound):
        await book.rules.add(book.call("r1", "why"), DRAIN, "d1", check=refuse, render=rendered)
    assert await book.rules.standing() == []
    assert await book.add("r1", DRAIN, "d1") == b"DRAIN_DISPATCHER d1", "the request id is still free"


async def test_a_rule_that_does_not_stand_cannot_be_lifted(book: Book) -> None:
    with pytest.raises(NotFound):
        await book.lift("r1", SHARD, "5")


async def test_a_repeat_gets_the_first_answer(book: Book) -> None:
    for _ in range(2):
        assert await book.add("r1", SHARD, "5") == b"FREEZE_SHARD 5"
    for _ in range(2):
        assert await book.lift("r2", SHARD, "5") == b"FREEZE_SHARD 5"
    assert await book.rules.standing() == []
