"""Moves of all shards of a room from one dispatcher to another, as the leader orders them, and what came of them."""

from __future__ import annotations

from typing import Any

from core.buckets import NO_END
from core.fence import TermRow
from core.handoff import tiles
from core.states import TermState
from tests.support.dispatcher_room import SHARDS, WIDTH_MS, Room, now_us
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher

EVERY = frozenset(range(SHARDS))


async def history(room: Room) -> dict[int, list[TermRow]]:
    """Every term of every shard, ascending."""
    rows = await room.eye.fetch("SELECT * FROM shard_terms ORDER BY shard, term")
    found: dict[int, list[TermRow]] = {}
    for r in rows:
        term = TermRow(
            r["shard"],
            r["term"],
            r["from_bucket"],
            r["to_bucket"],
            r["owner"],
            TermState(r["state"]),
            r["opened_us"],
            r["reason"],
        )
        found.setdefault(term.shard, []).append(term)
    return found


async def opened(room: Room, shard: int = 0) -> list[TermRow]:
    """The open terms of a shard, by range."""
    rows = (await history(room))[shard]
    return sorted((t for t in rows if t.state is TermState.OPEN), key=lambda t: t.from_bucket)


async def ordered(room: Room, to: RunningDispatcher, **order: Any) -> None:
    """Order that it gets every shard, whose newest range it replaces."""
    newest = {shard: terms[-1] for shard, terms in _by_range(await history(room)).items()}
    await room.order_replacing({s: (to, t.term, t.owner) for s, t in newest.items()}, **order)


async def split(room: Room) -> int:
    """Wait until every shard is in two hands; returns the latest boundary."""

    async def boundaries() -> list[int]:
        found = [await opened(room, shard) for shard in EVERY]
        assert all(len(terms) == 2 for terms in found), found
        return [terms[1].from_bucket for terms in found]

    return max(await eventually(boundaries, what="every shard is split"))


async def belongs_to(room: Room, owner: RunningDispatcher, within_s: float = 15.0) -> None:
    """Wait until each shard is in this one's hands alone, as SQL says and as it believes."""

    async def alone() -> bool:
        for shard in EVERY:
            terms = await opened(room, shard)
            assert [(t.owner, t.to_bucket) for t in terms] == [(owner.name, NO_END)], terms
        return True

    await eventually(alone, within_s, what=f"every shard is {owner.name}'s alone")
    await owner.holds(set(EVERY), within_s)
    assert {shard: faults for shard, rows in (await history(room)).items() if (faults := tiles(rows))} == {}


async def until_bucket(room: Room, bucket: int) -> None:
    """Wait until that bucket has begun."""
    await eventually(lambda: room.scale.bucket_of(now_us()) >= bucket, what=f"bucket {bucket} begins")


def ends_at_us(boundary: int) -> int:
    """When a bucket begins, in microseconds."""
    return boundary * WIDTH_MS * 1000


def _by_range(terms: dict[int, list[TermRow]]) -> dict[int, list[TermRow]]:
    return {
        shard: sorted((t for t in rows if t.state is TermState.OPEN), key=lambda t: t.from_bucket)
        for shard, rows in terms.items()
    }
