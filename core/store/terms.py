"""`shard_terms` and its events: who may write for a shard, and over which buckets.

A claim replaces exactly the row it names, by compare-and-set, and opens the next term; a split ends that row at a
boundary and opens the next term from there. Closing and opening are an UPDATE, then an INSERT, in one transaction
(rules of ownership 16, 17, 19). Nothing here looks a term up by a bucket. The statements stand in term_statements.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Row

from core.buckets import NO_END
from core.fence import TermRow
from core.states import TermState
from core.store.database import Database, Transaction
from core.store.move_orders import CAUSE_WORDS, lock_ordered, mark_split
from core.store.term_statements import (
    CLOSE,
    CLOSE_DRAINED,
    LIST_BY_OP,
    LIST_CLOSED_BY_OP,
    LIST_HISTORY,
    LIST_NEWEST,
    OPEN,
    SPLIT,
)
from core.store.transact import RestartTransaction


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to own one shard: replace exactly `replaces`, or be the first owner when that is None.

    One that carries out a planned move names it: it is refused when that move is not ordered any more.
    """

    shard: int
    replaces: TermRow | None
    move_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A wish to own one shard from the bucket `boundary` on, ending exactly `replaces` there.

    It is refused when that term was opened less than `residency_us` microseconds ago, and when the planned move that it
    carries out is not ordered any more.
    """

    shard: int
    replaces: TermRow
    boundary: int
    residency_us: int = 0
    move_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """A term whose buckets are finished and whose open runs came home to `successor`, a term of the caller's own."""

    closes: TermRow
    successor: int


class Terms:
    """Reads and changes of terms."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(self, shards: Sequence[int]) -> list[TermRow]:
        """The newest rows of each shard, ascending by (shard, term); open ones are always among them."""
        return [_term(row) for row in await self._database.run(LIST_NEWEST, {"shards": sorted(shards)})]

    async def history(self, shard: int) -> list[TermRow]:
        """Every term of a shard, ascending."""
        return [_term(row) for row in await self._database.run(LIST_HISTORY, {"shard": shard})]

    async def claim(
        self, claims: Sequence[Claim], *, owner: str, op_id: UUID, now_us: int, reason: str
    ) -> list[TermRow]:
        """Open the next term of each shard whose present row is still the one named; returns the new rows.

        A shard that is missing in the answer was lost to somebody else, or nothing was left of it: a range before a
        boundary whose buckets are all finished is only closed, and its open runs are for the owner of the next range to
        bring home. The term of a planned move says what the move was for instead of `reason`. A lost COMMIT is settled
        by running the whole again: `op_id` lets it recognise its own rows.
        """
        common = {"owner": owner, "op_id": op_id, "now_us": now_us, "reason": reason}

        async def body(tx: Transaction) -> list[TermRow]:
            shards = sorted(c.shard for c in claims)
            mine = {row.shard: _term(row) for row in await tx.run(LIST_BY_OP, {"shards": shards, "op_id": op_id})}
            tx.committing()
            wanted, orders = await _standing(tx, [c for c in claims if c.shard not in mine])
            spans = [(c.shard, 0, NO_END) for c in wanted if c.replaces is None]
            opened = await _open(tx, common, spans, only_unclaimed=True) if spans else []
            to_replace = [c.replaces for c in wanted if c.replaces is not None]
            if to_replace:
                closed = await tx.run(CLOSE, {**_close_params(to_replace), **common})
                spans = [(row.shard, row.next_from, row.next_to) for row in closed if row.next_from < row.next_to]
                opened += await _succeed(tx, common, spans, orders)
            return sorted([*mine.values(), *opened], key=lambda t: t.shard)

        return await self._database.transaction(body, repeat_unknown=True)

    async def split(
        self, splits: Sequence[Split], *, owner: str, op_id: UUID, now_us: int, reason: str
    ) -> list[TermRow]:
        """End each named term at its boundary and open the next one from there; returns the new rows.

        A shard that is missing in the answer was refused: the row is another one by now, another range of the shard is
        open, the boundary does not lie ahead, the term is too young, or the move is not ordered any more. Reasons and a
        lost COMMIT are as in `claim`.
        """
        common = {"owner": owner, "op_id": op_id, "now_us": now_us, "reason": reason}

        async def body(tx: Transaction) -> list[TermRow]:
            shards = sorted(s.shard for s in splits)
            mine = {row.shard: _term(row) for row in await tx.run(LIST_BY_OP, {"shards": shards, "op_id": op_id})}
            tx.committing()
            wanted, orders = await _standing(tx, [s for s in splits if s.shard not in mine])
            if not wanted:
                return list(mine.values())
            params = {
                **common,
                **_close_params([s.replaces for s in wanted]),
                "boundaries": [s.boundary for s in wanted],
                "opened_until_us": [now_us - s.residency_us for s in wanted],
            }
            spans = [(row.shard, row.next_from, row.next_to) for row in await tx.run(SPLIT, params)]
            opened = await _succeed(tx, common, spans, orders)
            return sorted([*mine.values(), *opened], key=lambda t: t.shard)

        return await self._database.transaction(body, repeat_unknown=True)

    async def close_drained(
        self, closes: Sequence[Drained], *, owner: str, op_id: UUID, now_us: int
    ) -> set[tuple[int, int]]:
        """Close terms whose watermark has reached their end; returns those that were closed, by (shard, term).

        Only the owner of the open range that begins where the term ends may. The caller has seen every open run of the
        term home elsewhere, in a pass that began after the watermark was there. Run again after a lost COMMIT, it
        names what it closed the first time.
        """
        ordered = sorted(closes, key=lambda c: c.closes.key)
        names = {"shards": [c.closes.shard for c in ordered], "terms": [c.closes.term for c in ordered]}
        params = {
            **_close_params([c.closes for c in ordered]),
            "next_terms": [c.successor for c in ordered],
            "op_id": op_id,
            "owner": owner,
            "now_us": now_us,
            "reason": "drained",
        }

        async def body(tx: Transaction) -> set[tuple[int, int]]:
            tx.committing()
            closed = await tx.run(CLOSE_DRAINED, params)
            before = await tx.run(LIST_CLOSED_BY_OP, {**names, "op_id": op_id})
            return {(row.shard, row.term) for row in (*closed, *before)}

        return await self._database.transaction(body, repeat_unknown=True)


_Wish = TypeVar("_Wish", Claim, Split)


@dataclass(frozen=True, slots=True)
class _Order:
    """The planned move that a claim or a split carries out, locked while it stands ordered."""

    move_id: UUID
    reason: str


async def _standing(tx: Transaction, wishes: Sequence[_Wish]) -> tuple[list[_Wish], dict[int, _Order]]:
    """The wishes without those whose move was withdrawn, by shard, and the moves of the others by their shards."""
    ordered = await lock_ordered(tx, (wish.move_id for wish in wishes))
    standing = [wish for wish in wishes if wish.move_id is None or wish.move_id in ordered]
    orders = {
        wish.shard: _Order(wish.move_id, CAUSE_WORDS[ordered[wish.move_id]])
        for wish in standing
        if wish.move_id is not None
    }
    return sorted(standing, key=lambda wish: wish.shard), orders


async def _succeed(
    tx: Transaction, common: dict[str, Any], spans: list[tuple[int, int, int]], orders: Mapping[int, _Order]
) -> list[TermRow]:
    """Open the terms that follow those just cut or closed, and tell the accounts of their moves."""
    if not spans:
        return []
    reasons = {shard: order.reason for shard, order in orders.items()}
    opened = await _open(tx, common, spans, only_unclaimed=False, reasons=reasons)
    if len(opened) != len(spans):
        # Somebody else took the number: without this the range would have no owner.
        raise RestartTransaction("a term number was taken in between")
    made = {orders[row.shard].move_id: row for row in opened if row.shard in orders}
    await mark_split(tx, made, common["now_us"])
    return opened


async def _open(
    tx: Transaction,
    common: dict[str, Any],
    spans: list[tuple[int, int, int]],
    *,
    only_unclaimed: bool,
    reasons: Mapping[int, str] = MappingProxyType({}),
) -> list[TermRow]:
    params = {
        **{name: common[name] for name in ("owner", "op_id", "now_us")},
        "reasons": [reasons.get(s, common["reason"]) for s, _, _ in spans],
        "shards": [s for s, _, _ in spans],
        "from_buckets": [a for _, a, _ in spans],
        "to_buckets": [b for _, _, b in spans],
        "only_unclaimed": only_unclaimed,
    }
    return [_term(row) for row in await tx.run(OPEN, params)]


def _close_params(terms: Sequence[TermRow]) -> dict[str, Any]:
    return {
        "shards": [t.shard for t in terms],
        "terms": [t.term for t in terms],
        "owners": [t.owner for t in terms],
        "from_buckets": [t.from_bucket for t in terms],
        "to_buckets": [t.to_bucket for t in terms],
    }


def _term(row: Row[Any]) -> TermRow:
    return TermRow(
        row.shard, row.term, row.from_bucket, row.to_bucket, row.owner, TermState(row.state), row.opened_us, row.reason
    )
