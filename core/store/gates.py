"""Runs that wait behind their gate: which of them may go, and making way for one whose job cancels the others.

The gate itself is held where runs are leased (leases.py). `make_way` is the second statement of Overlap.CANCEL_OTHER:
it follows from rows alone, so that a crash before it is made good when somebody looks at the waiting run again. Like a
cancel of the API it takes nothing from a run's home: whoever holds the run compares its state (rule of ownership 12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from core.fence import FenceView
from core.states import RunState
from core.store.database import Database
from core.store.fencing import FENCE, HELD, fence_params, fence_views
from core.store.overlap import BACKFILL, NOW, OPEN_OR_WAITING, blocked_among
from core.store.statement import Kind, statement

_FIND_BLOCKED = statement(
    "find_blocked_runs",
    Kind.READ,
    f"""
    WITH item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, TRUE AS gated
      FROM unnest(CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]),
                  CAST(:run_ids AS UUID[])) AS i(ord, shard, term, run_id)
    ), blocked AS (
      {blocked_among("item")}
    )
    SELECT b.ord FROM blocked b
    """,
)

# Older by the time they were due at, so that of several that make way for themselves the newest stays. What an operator
# asked for, a backfill, is not thrown away by a schedule that goes on: it is waited for.
_OLDER = f"""{OPEN_OR_WAITING} AND NOT ({BACKFILL}) AND r.cancel_requested_us = 0
        AND (r.due_at_us, r.run_id) < (i.due_at_us, i.run_id)"""
_MAKE_WAY = statement(
    "make_way_for_runs",
    Kind.ACT,
    f"""
    WITH {FENCE}, item AS (
      SELECT i.shard, i.term, i.run_id
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]))
           AS i(shard, term, run_id)
    ), mine AS (
      SELECT i.shard, i.term, r.run_id, r.job_id, r.due_at_us, m.open_from_us
      FROM item i
      JOIN runs r ON r.run_id = i.run_id
      JOIN shard_marks m ON m.shard = i.shard
      WHERE r.gated AND r.state = 1 AND r.attempt = 0 AND NOT ({BACKFILL})
    ), older AS (
      SELECT i.shard, i.term, r.run_id
      FROM mine i
      JOIN runs r ON r.job_id = i.job_id AND r.scheduled_for_us >= i.open_from_us
      WHERE {_OLDER}
      UNION
      SELECT i.shard, i.term, r.run_id
      FROM mine i
      JOIN open_runs o ON o.shard = i.shard AND o.job_id = i.job_id
      JOIN runs r ON r.run_id = o.run_id
      WHERE {_OLDER}
    ), changed AS (
      UPDATE runs AS r
      SET state = CASE WHEN r.state = 2 THEN 2 ELSE 6 END,
          ended_us = CASE WHEN r.state = 2 THEN 0 ELSE {NOW} END, not_before_us = 0, cancel_requested_us = {NOW},
          last_error = CASE WHEN r.state = 2 THEN r.last_error ELSE 'made way for a newer run of its job' END
      FROM older i
      {HELD}
      WHERE r.run_id = i.run_id AND r.state IN (1, 2) AND r.cancel_requested_us = 0
      RETURNING i.term, r.shard, r.job_id, r.run_id, r.state
    ), closed AS (
      DELETE FROM open_runs AS o
      USING changed c
      WHERE c.state = 6 AND o.shard = c.shard AND o.job_id = c.job_id AND o.run_id = c.run_id
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, c.run_id, c.state
    FROM fence f LEFT JOIN changed c ON c.shard = f.shard AND c.term = f.term
    """,
)


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A run that waits behind its gate, and the term that answers for it."""

    shard: int
    term: int
    run_id: UUID


@dataclass(frozen=True, slots=True)
class MadeWay:
    """The runs that were canceled at once, and those whose workers have to be told."""

    fences: dict[tuple[int, int], FenceView]
    ended: list[UUID]
    requested: list[UUID]


class GateKeeper:
    """Looks at waiting runs, and clears their way, for one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def blocked(self, runs: Sequence[WaitingKey], *, now_us: int) -> frozenset[int]:
        """The positions of runs that have to go on waiting. A position that is missing may be tried."""
        params = {
            "ords": list(range(len(runs))),
            "shards": [run.shard for run in runs],
            "terms": [run.term for run in runs],
            "run_ids": [run.run_id for run in runs],
            "now_us": now_us,
        }
        return frozenset(row.ord for row in await self._database.run(_FIND_BLOCKED, params))

    async def make_way(self, runs: Sequence[WaitingKey], *, now_us: int) -> MadeWay:
        """Cancel the older open and waiting runs of the jobs of `runs`, of which each has one here.

        A lost answer is run again, and then tells only of what was left to do: what it canceled before is learned from
        the rows, as a cancel of the API without its hint.
        """
        params = {
            **fence_params(self._owner, ((run.shard, run.term) for run in runs)),
            "shards": [run.shard for run in runs],
            "terms": [run.term for run in runs],
            "run_ids": [run.run_id for run in runs],
            "now_us": now_us,
        }
        rows = await self._database.run(_MAKE_WAY, params, repeat_unknown=True)
        changed = [(row.run_id, RunState(row.state)) for row in rows if row.run_id is not None]
        return MadeWay(
            fence_views(rows),
            [run_id for run_id, state in changed if state is RunState.CANCELED],
            [run_id for run_id, state in changed if state is RunState.LEASED],
        )
