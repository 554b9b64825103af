"""Floors, watermarks and open-from marks: how far each shard is done. In rows of their own, so that their writes never
disturb the readers of the fence row.

Finishing buckets has an order (rule of ownership 3): the floor is raised first and committed; then a scan with a new
snapshot looks below it; the watermark follows to what that scan found. No insert can land below the raised floor, and
the raise waits for those in flight, which hold the floor row FOR SHARE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.buckets import NO_END
from core.fence import FenceView
from core.store.database import Database
from core.store.fencing import FENCE, fence_params, fence_views
from core.store.statement import Kind, Statement, statement

_READ = statement(
    "read_marks",
    Kind.READ,
    """
    SELECT m.shard, l.floor, m.watermark, m.open_from_us
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    JOIN shard_marks m ON m.shard = s.shard
    JOIN shard_floors l ON l.shard = s.shard
    ORDER BY m.shard
    """,
)
_ITEM = """item AS (
      SELECT i.shard, i.term, i.old, i.new
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:olds AS BIGINT[]), CAST(:news AS BIGINT[]))
           AS i(shard, term, old, new)
    )"""


def _raising(name: str, mark: str, condition: str, joined: str = "") -> Statement:
    """The statement that raises one mark, "table.column", by compare-and-set on its old value."""
    table, column = mark.split(".")
    return statement(
        name,
        Kind.ACT,
        f"""
        WITH {FENCE}, {_ITEM}, moved AS (
          UPDATE {table} AS k SET {column} = i.new
          FROM item i JOIN fence ON fence.shard = i.shard AND fence.term = i.term {joined}
          WHERE k.shard = i.shard AND k.{column} = i.old AND i.new > i.old {condition}
          RETURNING k.shard, i.term
        )
        SELECT f.shard, f.term, f.from_bucket, f.to_bucket, m.shard AS moved
        FROM fence f LEFT JOIN moved m ON m.shard = f.shard AND m.term = f.term
        """,
    )


# Whether another range of the shard is open. (Counted: a NOT EXISTS is joined, and may read the terms of all shards.)
_NO_OTHER = """AND (SELECT count(*) FROM shard_terms p
                 WHERE p.shard = fence.shard AND p.state = 1 AND p.term <> fence.term{condition}) = 0"""
# While the range that ends where this one begins is open, its owner alone moves the marks (rule of ownership 3).
_IN_RANGE = f"""AND i.old >= fence.from_bucket AND i.new <= fence.to_bucket
            {_NO_OTHER.format(condition=" AND p.to_bucket = fence.from_bucket")}"""
_RAISE_FLOORS = _raising("raise_floors", "shard_floors.floor", _IN_RANGE)
# Never past the floor. The floor only grows, so that an older snapshot of it is safe.
_RAISE_WATERMARKS = _raising(
    "raise_watermarks",
    "shard_marks.watermark",
    _IN_RANGE,
    "JOIN shard_floors l ON l.shard = i.shard AND i.new <= l.floor",
)
# It says that one memory holds every open run above it: not while a shard is in two hands.
_RAISE_OPEN_FROM = _raising(
    "raise_open_from_marks",
    "shard_marks.open_from_us",
    f"AND fence.to_bucket = {NO_END} {_NO_OTHER.format(condition='')}",
)


@dataclass(frozen=True, slots=True)
class Marks:
    """How far a shard is done: buckets, and an instant in microseconds for the open-from mark."""

    shard: int
    floor: int
    watermark: int
    open_from_us: int


@dataclass(frozen=True, slots=True)
class Raise:
    """Move one mark of a shard from `old` to `new`, under `term`."""

    shard: int
    term: int
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Raised:
    """The fences seen, and the terms, as (shard, term), under which a mark moved."""

    fences: dict[tuple[int, int], FenceView]
    keys: frozenset[tuple[int, int]]

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(shard for shard, _ in self.keys)


class MarkKeeper:
    """Reads and raises marks for one owner. Every raise is a compare-and-set on the mark's old value."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def read(self, shards: Sequence[int]) -> dict[int, Marks]:
        rows = await self._database.run(_READ, {"shards": sorted(shards)})
        return {r.shard: Marks(r.shard, r.floor, r.watermark, r.open_from_us) for r in rows}

    async def raise_floors(self, raises: Sequence[Raise]) -> Raised:
        """Only over buckets that have ended by the database's clock; the caller looks to that."""
        return await self._raise(_RAISE_FLOORS, raises)

    async def raise_watermarks(self, raises: Sequence[Raise]) -> Raised:
        """Only up to what a scan after the floor's commit found empty."""
        return await self._raise(_RAISE_WATERMARKS, raises)

    async def raise_open_from(self, raises: Sequence[Raise]) -> Raised:
        """Only past runs that have ended or stand in open_runs."""
        return await self._raise(_RAISE_OPEN_FROM, raises)

    async def _raise(self, what: Statement, raises: Sequence[Raise]) -> Raised:
        ordered = sorted(raises, key=lambda r: r.shard)
        params = {
            **fence_params(self._owner, ((r.shard, r.term) for r in ordered)),
            "shards": [r.shard for r in ordered],
            "terms": [r.term for r in ordered],
            "olds": [r.old for r in ordered],
            "news": [r.new for r in ordered],
        }
        rows = await self._database.run(what, params, repeat_unknown=True)
        return Raised(fence_views(rows), frozenset((r.shard, r.term) for r in rows if r.moved is not None))
