"""`shard_terms` and its events: who may write for a shard, and over which buckets.

A claim replaces exactly the row it names, by compare-and-set, and opens the next term; closing and opening are an
UPDATE, then an INSERT, in one transaction (rules of ownership 16, 17, 19). Nothing here looks a term up by a bucket.
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
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_LIST_NEWEST = statement(
    "list_newest_terms",
    Kind.READ,
    # A handful of newest rows a shard: at most two are ever open, and history below them is not walked.
    """
    SELECT t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state, t.opened_us, t.reason
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    CROSS JOIN LATERAL (
      SELECT n.shard, n.term, n.from_bucket, n.to_bucket, n.owner, n.state, n.opened_us, n.reason
      FROM shard_terms n WHERE n.shard = s.shard ORDER BY n.term DESC LIMIT 4
    ) AS t
    ORDER BY t.shard, t.term
    """,
)
_LIST_HISTORY = statement(
    "list_term_history",
    Kind.READ,
    """
    SELECT shard, term, from_bucket, to_bucket, owner, state, opened_us, reason
    FROM shard_terms WHERE shard = CAST(:shard AS BIGINT) ORDER BY term
    """,
)
_LIST_BY_OP = statement(
    "list_terms_by_op",
    Kind.READ,
    """
    SELECT t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state, t.opened_us, t.reason
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    CROSS JOIN LATERAL (
      SELECT n.shard, n.term, n.from_bucket, n.to_bucket, n.owner, n.state, n.opened_us, n.reason, n.op_id
      FROM shard_terms n WHERE n.shard = s.shard ORDER BY n.term DESC LIMIT 4
    ) AS t
    WHERE t.op_id = CAST(:op_id AS UUID) AND t.state = 1
    ORDER BY t.shard
    """,
)
_CLOSE = statement(
    "close_replaced_terms",
    Kind.TERM,
    # Waits for every fenced write in flight (they hold the row FOR SHARE). The new term begins where the watermark of
    # this statement's snapshot stands; a later watermark would be safe too. A term whose range had not begun to empty
    # is replaced whole.
    """
    WITH closed AS (
      UPDATE shard_terms AS t
      SET state = CASE WHEN m.watermark > t.from_bucket THEN 2 ELSE 3 END,
          to_bucket = CASE WHEN m.watermark > t.from_bucket THEN m.watermark ELSE t.to_bucket END
      FROM unnest(
             CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:owners AS TEXT[]),
             CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[])
           ) AS i(shard, term, owner, from_bucket, to_bucket)
      JOIN shard_marks m ON m.shard = i.shard
      WHERE t.shard = i.shard AND t.term = i.term AND t.owner = i.owner AND t.state = 1
        AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket
        AND m.watermark < i.to_bucket
      RETURNING t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state,
                GREATEST(t.from_bucket, m.watermark) AS next_from, i.to_bucket AS next_to
    ), recorded AS (
      INSERT INTO shard_term_events
        (shard, term, op_id, event, from_bucket, to_bucket, owner, reason, at_us, server_us)
      SELECT c.shard, c.term, CAST(:op_id AS UUID), CASE WHEN c.state = 2 THEN 'close' ELSE 'void' END,
             c.from_bucket, c.to_bucket, c.owner, CAST(:reason AS TEXT), CAST(:now_us AS BIGINT),
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM closed c
      ON CONFLICT (shard, term, op_id, event) DO NOTHING
    )
    SELECT c.shard, c.next_from, c.next_to FROM closed c ORDER BY c.shard
    """,
)
_OPEN = statement(
    "open_terms",
    Kind.TERM,
    """
    WITH opened AS (
      INSERT INTO shard_terms (shard, term, from_bucket, to_bucket, owner, op_id, state, opened_us, reason)
      SELECT i.shard, COALESCE((SELECT max(t.term) FROM shard_terms t WHERE t.shard = i.shard), 0) + 1,
             i.from_bucket, i.to_bucket, CAST(:owner AS TEXT), CAST(:op_id AS UUID), 1,
             CAST(:now_us AS BIGINT), CAST(:reason AS TEXT)
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[]))
           AS i(shard, from_bucket, to_bucket)
      WHERE NOT CAST(:only_unclaimed AS BOOLEAN)
         OR NOT EXISTS (SELECT 1 FROM shard_terms e WHERE e.shard = i.shard)
      ON CONFLICT (shard, term) DO NOTHING
      RETURNING shard, term, from_bucket, to_bucket, owner, state, opened_us, reason
    ), recorded AS (
      INSERT INTO shard_term_events
        (shard, term, op_id, event, from_bucket, to_bucket, owner, reason, at_us, server_us)
      SELECT o.shard, o.term, CAST(:op_id AS UUID), 'open', o.from_bucket, o.to_bucket, o.owner, o.reason,
             o.opened_us, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM opened o
      ON CONFLICT (shard, term, op_id, event) DO NOTHING
    )
    SELECT o.shard, o.term, o.from_bucket, o.to_bucket, o.owner, o.state, o.opened_us, o.reason
    FROM opened o ORDER BY o.shard
    """,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to own one shard: replace exactly `replaces`, or be the first owner when that is None."""

    shard: int
    replaces: TermRow | None


class Terms:
    """Reads and claims of terms."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(self, shards: Sequence[int]) -> list[TermRow]:
        """The newest rows of each shard, ascending by (shard, term); open ones are always among them."""
        return [_term(row) for row in await self._database.run(_LIST_NEWEST, {"shards": sorted(shards)})]

    async def history(self, shard: int) -> list[TermRow]:
        """Every term of a shard, ascending."""
        return [_term(row) for row in await self._database.run(_LIST_HISTORY, {"shard": shard})]

    async def claim(
        self, claims: Sequence[Claim], *, owner: str, op_id: UUID, now_us: int, reason: str
    ) -> list[TermRow]:
        """Open the next term of each shard whose present row is still the one named; returns the new rows.

        A shard that is missing in the answer was lost to somebody else. A lost COMMIT is settled by running the whole
        again: `op_id` lets it recognise its own rows.
        """
        first = sorted(c.shard for c in claims if c.replaces is None)
        replaced = sorted((c.replaces for c in claims if c.replaces is not None), key=lambda t: t.shard)
        common = {"owner": owner, "op_id": op_id, "now_us": now_us, "reason": reason}

        async def body(tx: Transaction) -> list[TermRow]:
            shards = sorted(c.shard for c in claims)
            mine = {row.shard: _term(row) for row in await tx.run(_LIST_BY_OP, {"shards": shards, "op_id": op_id})}
            tx.committing()
            to_replace = [t for t in replaced if t.shard not in mine]
            to_found = [s for s in first if s not in mine]
            spans = [(s, 0, NO_END) for s in to_found]
            opened = await _open(tx, common, spans, only_unclaimed=True) if spans else []
            if to_replace:
                closed = await tx.run(_CLOSE, {**_close_params(to_replace), **common})
                spans = [(row.shard, row.next_from, row.next_to) for row in closed]
                successors = await _open(tx, common, spans, only_unclaimed=False) if spans else []
                if len(successors) != len(spans):
                    # Another claim of the same shard took the number: without this the range would have no owner.
                    raise RestartTransaction("a term number was taken in between")
                opened += successors
            return sorted([*mine.values(), *opened], key=lambda t: t.shard)

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
    return [_term(row) for row in await tx.run(_OPEN, params)]


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
