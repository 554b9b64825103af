"""`shard_terms` and its events: who may write for a shard, and over which buckets.

A claim replaces exactly the row it names, by compare-and-set, and opens the next term; a split ends that row at a
boundary and opens the next term from there. Closing and opening are an UPDATE, then an INSERT, in one transaction
(rules of ownership 16, 17, 19). Nothing here looks a term up by a bucket. The statements stand in term_statements.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.buckets import NO_END
from core.fence import TermRow
from core.states import TermState
from core.store.database import Database, Transaction
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
    """A wish to own one shard: replace exactly `replaces`, or be the first owner when that is None."""

    shard: int
    replaces: TermRow | None


@dataclass(frozen=True, slots=True)
class Split:
    """A wish to own one shard from the bucket `boundary` on, ending exactly `replaces` there.

    It is refused when that term was opened less than `residency_us` microseconds ago.
    """

    shard: int
    replaces: TermRow
    boundary: int
    residency_us: int = 0


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
        bring home. A lost COMMIT is settled by running the whole again: `op_id` lets it recognise its own rows.
        """
        first = sorted(c.shard for c in claims if c.replaces is None)
        replaced = sorted((c.replaces for c in claims if c.replaces is not None), key=lambda t: t.shard)
        common = {"owner": owner, "op_id": op_id, "now_us": now_us, "reason": reason}

        async def body(tx: Transaction) -> list[TermRow]:
            shards = sorted(c.shard for c in claims)
            mine = {row.shard: _term(row) for row in await tx.run(LIST_BY_OP, {"shards": shards, "op_id": op_id})}
            tx.committing()
            to_replace = [t for t in replaced if t.shard not in mine]
            to_found = [s for s in first if s not in mine]
            spans = [(s, 0, NO_END) for s in to_found]
            opened = await _open(tx, common, spans, only_unclaimed=True) if spans else []
            if to_replace:
                closed = await tx.run(CLOSE, {**_close_params(to_replace), **common})
                spans = [(row.shard, row.next_from, row.next_to) for row in closed if row.next_from < row.next_to]
                successors = await _open(tx, common, spans, only_unclaimed=False) if spans else []
                if len(successors) != len(spans):
                    # Another claim of the same shard took the number: without this the range would have no owner.
                    raise RestartTransaction("a term number was taken in between")
                opened += successors
            return sorted([*mine.values(), *opened], key=lambda t: t.shard)

        return await self._database.transaction(body, repeat_unknown=True)

    async def split(
        self, splits: Sequence[Split], *, owner: str, op_id: UUID, now_us: int, reason: str
    ) -> list[TermRow]:
        """End each named term at its boundary and open the next one from there; returns the new rows.

        A shard that is missing in the answer was refused: the row is another one by now, another range of the shard is
        open, the boundary does not lie ahead, or the term is too young. A lost COMMIT is settled as in `claim`.
        """
        common = {"owner": owner, "op_id": op_id, "now_us": now_us, "reason": reason}
        ordered = sorted(splits, key=lambda s: s.shard)

        async def body(tx: Transaction) -> list[TermRow]:
            shards = [s.shard for s in ordered]
            mine = {row.shard: _term(row) for row in await tx.run(LIST_BY_OP, {"shards": shards, "op_id": op_id})}
            tx.committing()
            wanted = [s for s in ordered if s.shard not in mine]
            if not wanted:
                return list(mine.values())
            params = {
                **common,
                **_close_params([s.replaces for s in wanted]),
                "boundaries": [s.boundary for s in wanted],
                "opened_until_us": [now_us - s.residency_us for s in wanted],
            }
            spans = [(row.shard, row.next_from, row.next_to) for row in await tx.run(SPLIT, params)]
            opened = await _open(tx, common, spans, only_unclaimed=False) if spans else []
            if len(opened) != len(spans):
                # As in a claim: without this the range from the boundary on would have no owner.
                raise RestartTransaction("a term number was taken in between")
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


async def _open(
    tx: Transaction, common: dict[str, Any], spans: list[tuple[int, int, int]], *, only_unclaimed: bool
) -> list[TermRow]:
    params = {
        **common,
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
