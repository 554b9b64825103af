"""A shard in two hands, on the rows alone: splits, closes, drains and claims as their owners would make them."""

from __future__ import annotations

from core.clock import US_PER_S
from core.fence import TermRow
from core.store.marks import Raise
from core.store.terms import Claim, Drained, Split
from tests.support.raw_statements import Call
from tests.support.store_world import NOW_US, OTHER, OWNER, StoreWorld

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


def split_call(world: StoreWorld, term: TermRow, at: int) -> Call:
    """The statement that ends a term at a boundary, for a session of its own."""
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
