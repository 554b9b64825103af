"""What a planned move's account says when its order is carried out: it must be ordered still, and then it is split.

Used by terms.py, in the very transaction that gives the shard its next term. A rollback by the leader and the carrying
out are two compare-and-sets on one state, so that of the two one wins: an order that was withdrawn moves nothing,
however late it comes, be it that its target stood still or that etcd was restored from an old backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from core.fence import TermRow
from core.states import MoveCause
from core.store.database import Transaction
from core.store.statement import Kind, statement

CAUSE_WORDS: Final[Mapping[MoveCause, str]] = {
    MoveCause.OPERATOR: "move",
    MoveCause.REBALANCE: "rebalance",
    MoveCause.DRAIN: "drain",
}
"""Why a term was opened, as its row says it, by what the move was for."""

_LOCK = statement(
    "lock_ordered_moves",
    Kind.READ,
    # State 2 is ORDERED. Whoever would end such a move meanwhile waits until this transaction has, and then finds it
    # in another state.
    """
    SELECT m.move_id, m.cause FROM shard_moves m
    WHERE m.move_id = ANY(CAST(:move_ids AS UUID[])) AND m.state = 2
    ORDER BY m.move_id
    FOR UPDATE OF m
    """,
)
_SPLIT = statement(
    "split_moves",
    Kind.WRITE,
    """
    UPDATE shard_moves AS m
    SET state = 3, boundary = i.boundary, new_term = i.new_term,
        split_us = GREATEST(CAST(:now_us AS BIGINT), m.ordered_us)
    FROM unnest(CAST(:move_ids AS UUID[]), CAST(:boundaries AS BIGINT[]), CAST(:new_terms AS BIGINT[]))
         AS i(move_id, boundary, new_term)
    WHERE m.move_id = i.move_id AND m.state = 2
    RETURNING m.move_id
    """,
)


async def lock_ordered(tx: Transaction, move_ids: Iterable[UUID | None]) -> dict[UUID, MoveCause]:
    """Those of the moves that still stand ordered, with what they are for; they stay so until `tx` ends."""
    wanted = sorted({each for each in move_ids if each is not None})
    if not wanted:
        return {}
    return {row.move_id: MoveCause(row.cause) for row in await tx.run(_LOCK, {"move_ids": wanted})}


async def mark_split(tx: Transaction, opened: Mapping[UUID, TermRow], now_us: int) -> None:
    """Write into the accounts of locked moves which terms came of them."""
    if not opened:
        return
    ordered = sorted(opened.items())
    params = {
        "move_ids": [move_id for move_id, _ in ordered],
        "boundaries": [term.from_bucket for _, term in ordered],
        "new_terms": [term.term for _, term in ordered],
        "now_us": now_us,
    }
    await tx.run(_SPLIT, params)
