"""Open runs of a shard: taking them home under another term, and the list of the long-lived ones.

Adoption re-homes open runs in chunks and gives every lease its full length again, so that a worker that was alive under
the old owner is never reaped early by the new one (rule of ownership 14). How they are found: open_run_lists.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from core.fence import FenceView
from core.store.database import Database
from core.store.fencing import FENCE, HELD, fence_params, fence_views
from core.store.open_run_lists import OpenRun, OpenRunLists, columns, open_run
from core.store.statement import Kind, Statement, statement

_ADOPT = statement(
    "adopt_open_runs",
    Kind.ACT,
    # Runs move towards later buckets only: an owner that has not heard of a split would take the runs of its successor.
    # That holds too where the earlier range has the greater number, as the rest of a range that was taken over.
    f"""
    WITH {FENCE}, item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, i.old_home_term
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:old_home_terms AS BIGINT[])
           ) AS i(ord, shard, term, run_id, old_home_term)
    ), adopted AS (
      UPDATE runs AS r
      SET home_term = i.term,
          lease_until_us = CASE WHEN r.state = 2 THEN GREATEST(r.lease_until_us, CAST(:lease_until_us AS BIGINT))
                                ELSE 0 END
      FROM item i
      {HELD}
      WHERE r.run_id = i.run_id AND r.home_term IN (i.old_home_term, i.term) AND r.state IN (1, 2)
        AND (i.old_home_term = i.term
             OR COALESCE((SELECT CASE WHEN h.state = 1 THEN h.from_bucket ELSE -1 END FROM shard_terms h
                          WHERE h.shard = i.shard AND h.term = i.old_home_term), -1) < held.from_bucket)
      RETURNING i.ord, i.shard AS fence_shard, i.term AS fence_term, {columns("r")}
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, a.ord, a.run_id, a.job_id, a.job_version, a.scheduled_for_us,
           a.due_at_us, a.state, a.attempt, a.uncounted, a.home_term, a.worker, a.token_hash, a.lease_until_us,
           a.not_before_us, a.started_us, a.cancel_requested_us, a.trace, a.payload, a.progress, a.gated, a.cause
    FROM fence f LEFT JOIN adopted a ON a.fence_shard = f.shard AND a.fence_term = f.term
    """,
)
_STAND = statement(
    "stand_open_runs",
    Kind.ACT,
    # Before the open-from mark passes a run that is still open, the run stands in open_runs.
    f"""
    WITH {FENCE}, stood AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT i.shard, i.job_id, i.run_id
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:job_ids AS UUID[]),
                  CAST(:run_ids AS UUID[])) AS i(shard, term, job_id, run_id)
      {HELD}
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket FROM fence f
    """,
)

_CLEAR_ENDED = statement(
    "clear_ended_runs",
    Kind.ACT,
    f"""
    WITH {FENCE}, item AS (
      SELECT i.shard, i.term, i.job_id, i.run_id
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:job_ids AS UUID[]),
                  CAST(:run_ids AS UUID[])) AS i(shard, term, job_id, run_id)
    ), cleared AS (
      DELETE FROM open_runs AS o
      USING item i
      JOIN fence ON fence.shard = i.shard AND fence.term = i.term
      WHERE o.shard = i.shard AND o.job_id = i.job_id AND o.run_id = i.run_id
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket FROM fence f
    """,
)


class OpenRuns(OpenRunLists):
    """Changes the home and the standing of open runs for one owner, and reads them."""

    def __init__(self, database: Database, owner: str) -> None:
        super().__init__(database)
        self._owner = owner

    async def adopt(
        self, runs: Sequence[OpenRun], *, shard: int, term: int, lease_until_us: int
    ) -> tuple[dict[tuple[int, int], FenceView], list[OpenRun]]:
        """Make `term` the home of open runs whose home is an older term; returns them as they stand afterwards.

        Run again after a lost answer it returns the runs that came home the first time too.
        """
        params = {
            **fence_params(self._owner, [(shard, term)]),
            "ords": list(range(len(runs))),
            "shards": [shard] * len(runs),
            "terms": [term] * len(runs),
            "run_ids": [r.run_id for r in runs],
            "old_home_terms": [r.home_term for r in runs],
            "lease_until_us": lease_until_us,
        }
        rows = await self._database.run(_ADOPT, params, repeat_unknown=True)
        return fence_views(rows), [open_run(row) for row in rows if row.ord is not None]

    async def stand(self, runs: Sequence[tuple[int, int, UUID, UUID]]) -> dict[tuple[int, int], FenceView]:
        """Make runs, as (shard, term, job id, run id), stand in open_runs; returns the fences seen."""
        return await self._change_standing(_STAND, runs)

    async def clear(self, runs: Sequence[tuple[int, int, UUID, UUID]]) -> dict[tuple[int, int], FenceView]:
        """Take runs, as for `stand`, out of open_runs; returns the fences seen."""
        return await self._change_standing(_CLEAR_ENDED, runs)

    async def _change_standing(
        self, what: Statement, runs: Sequence[tuple[int, int, UUID, UUID]]
    ) -> dict[tuple[int, int], FenceView]:
        params = {
            **fence_params(self._owner, [(shard, term) for shard, term, _, _ in runs]),
            "shards": [shard for shard, _, _, _ in runs],
            "terms": [term for _, term, _, _ in runs],
            "job_ids": [job_id for _, _, job_id, _ in runs],
            "run_ids": [run_id for _, _, _, run_id in runs],
        }
        return fence_views(await self._database.run(what, params, repeat_unknown=True))
