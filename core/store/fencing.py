"""The two checks that every writer of due rows and runs carries inside its own statement.

`FENCE`: the writer's own term rows, found by their key, FOR SHARE: owner is this process incarnation and the state is
open. Whoever closes a term waits for the statements that hold it, and a statement that comes later finds no row. The
fence CTE stands in FROM of every mutating branch, with no aggregate and no outer join around it: unreferenced or
counted, it lets the writes of a closed term pass (rules of ownership 1, 6).

`LANDING`: the floors of the shards into which rows land, FOR SHARE: a row goes to GREATEST(its bucket, floor), so that
nothing lands where nobody looks (rule 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row

from core.fence import FenceView

FENCE = """fence AS (
      SELECT t.shard, t.term, t.from_bucket, t.to_bucket
      FROM unnest(CAST(:fence_shards AS BIGINT[]), CAST(:fence_terms AS BIGINT[])) AS f(shard, term)
      JOIN shard_terms t ON t.shard = f.shard AND t.term = f.term
      WHERE t.owner = CAST(:owner AS TEXT) AND t.state = 1
      FOR SHARE OF t
    )"""

LANDING = """landing AS (
      SELECT l.shard, l.floor
      FROM unnest(CAST(:landing_shards AS BIGINT[])) AS w(shard)
      JOIN shard_floors l ON l.shard = w.shard
      FOR SHARE OF l
    )"""

# How items meet the fence and the floors: one look a item, by key. (As plain joins the planner, which takes both for a
# handful of rows, scans all items once a term: 64 terms and 300 items cost 28 ms that way, and 1 ms this way.)
HELD = """CROSS JOIN LATERAL (
        SELECT f.from_bucket, f.to_bucket FROM fence f WHERE f.shard = i.shard AND f.term = i.term LIMIT 1
      ) AS held"""

LANDS = """CROSS JOIN LATERAL (
        SELECT l.floor FROM landing l WHERE l.shard = i.shard LIMIT 1
      ) AS lands"""


def fence_params(owner: str, keys: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Binds of FENCE (and of LANDING) for the terms in `keys`, ascending as every lock is taken."""
    ordered = sorted(set(keys))
    return {
        "owner": owner,
        "fence_shards": [shard for shard, _ in ordered],
        "fence_terms": [term for _, term in ordered],
        "landing_shards": sorted({shard for shard, _ in ordered}),
    }


def fence_views(rows: Sequence[Row[Any]]) -> dict[tuple[int, int], FenceView]:
    """The term rows that a fenced statement saw, by (shard, term). A key that is missing was refused.

    Its columns are the first four of every fenced answer. A statement that answers by UNION ALL gives no range in its
    other rows. (By position: looking columns up by name took an eighth of a loaded dispatcher's time.)
    """
    views: dict[tuple[int, int], FenceView] = {}
    for row in rows:
        shard, term, from_bucket, to_bucket = row[:4]
        if from_bucket is not None and (shard, term) not in views:
            views[shard, term] = FenceView(shard, term, from_bucket, to_bucket)
    return views
