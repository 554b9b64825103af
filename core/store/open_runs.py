"""Open runs of a shard: finding them all, taking them home under another term, and the list of the long-lived ones.

Recent open runs are short ranges of the primary key, from the shard's open-from mark on; those that have been open for
long stand in `open_runs`. Adoption re-homes open runs in chunks and gives every lease its full length again, so that a
worker that was alive under the old owner is never reaped early by the new one (rule of ownership 14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.fence import FenceView
from core.ids import hashes_range
from core.states import RunCause, RunState
from core.store.database import Database
from core.store.fencing import FENCE, HELD, fence_params, fence_views
from core.store.statement import Kind, Statement, statement

_OPEN_COLUMNS = """r.run_id, r.job_id, r.job_version, r.shard, r.scheduled_for_us, r.due_at_us, r.state,
           r.attempt, r.uncounted, r.home_term, r.worker, r.token_hash, r.lease_until_us, r.not_before_us, r.started_us,
           r.cancel_requested_us, r.trace, r.payload, r.progress, r.gated, r.cause"""
_FIND_PEOPLED = statement(
    "find_peopled_ranges",
    Kind.READ,
    """
    SELECT h.ord
    FROM unnest(CAST(:ords AS BIGINT[]), CAST(:lows AS UUID[]), CAST(:highs AS UUID[])) AS h(ord, low, high)
    CROSS JOIN LATERAL (
      SELECT r.run_id FROM runs r WHERE r.run_id >= h.low AND r.run_id < h.high ORDER BY r.run_id LIMIT 1
    ) AS f
    """,
)
_LIST_RECENT = statement(
    "list_recent_open_runs",
    Kind.READ,
    # A shard's runs since its open-from mark: within each job hash the key is ordered by time, so this is one short
    # range of the primary key a hash.
    f"""
    SELECT {_OPEN_COLUMNS}
    FROM unnest(CAST(:lows AS UUID[]), CAST(:highs AS UUID[])) AS h(low, high)
    JOIN runs r ON r.run_id >= h.low AND r.run_id < h.high
    WHERE r.state IN (1, 2)
    """,
)
_LIST_STANDING = statement(
    "list_standing_open_runs",
    Kind.READ,
    f"""
    SELECT {_OPEN_COLUMNS}
    FROM open_runs o JOIN runs r ON r.run_id = o.run_id
    WHERE o.shard = CAST(:shard AS BIGINT) AND r.state IN (1, 2)
    """,
)
_LIST_NAMED = statement(
    "list_named_open_runs",
    Kind.READ,
    f"""
    SELECT {_OPEN_COLUMNS}
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id)
    JOIN runs r ON r.run_id = i.run_id
    WHERE r.shard = CAST(:shard AS BIGINT) AND r.state IN (1, 2)
    """,
)
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
      RETURNING i.ord, i.shard AS fence_shard, i.term AS fence_term, {_OPEN_COLUMNS}
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

_LIST_ENDED = statement(
    "list_ended_standing_runs",
    Kind.READ,
    # A run that ended while it was made to stand left its row behind.
    """
    SELECT o.shard, o.job_id, o.run_id
    FROM open_runs o JOIN runs r ON r.run_id = o.run_id
    WHERE o.shard = CAST(:shard AS BIGINT) AND r.state IN (3, 4, 5, 6)
    ORDER BY o.shard, o.job_id, o.run_id
    LIMIT 500
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


# Job hashes that are looked into together, coarse to fine.
_NARROWING = (64, 8)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """One open run as its home owner holds it in memory; instants in microseconds."""

    run_id: UUID
    job_id: UUID
    job_version: int
    shard: int
    scheduled_for_us: int
    due_at_us: int
    state: RunState
    attempt: int
    uncounted: int
    home_term: int
    worker: str
    token_hash: bytes | None
    lease_until_us: int
    not_before_us: int
    started_us: int
    cancel_requested_us: int
    trace: str
    payload: bytes | None
    progress: bytes | None
    gated: bool
    cause: RunCause


class OpenRuns:
    """Reads open runs, and changes their home and their standing for one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def peopled_hashes(self, hashes: range) -> list[int]:
        """The job hashes, or their near neighbours, that have runs: far fewer than all, unless there are many jobs.

        Looking into each of a cluster's 65,536 hashes took 1.4 s although there was nothing to find.
        """
        blocks = [hashes]
        for width in _NARROWING:
            finer = [b[i : i + width] for b in blocks for i in range(0, len(b), width)]
            blocks = [finer[n] for n in await self.peopled([hashes_range(b) for b in finer])]
        return [each for block in blocks for each in block]

    async def peopled(self, ranges: Sequence[tuple[UUID, UUID]]) -> list[int]:
        """The positions of the ranges of run ids in which there is any run, ended or not."""
        params = {
            "ords": list(range(len(ranges))),
            "lows": [low for low, _ in ranges],
            "highs": [high for _, high in ranges],
        }
        return sorted(row.ord for row in await self._database.run(_FIND_PEOPLED, params))

    async def find(self, shard: int, ranges: Sequence[tuple[UUID, UUID]]) -> list[OpenRun]:
        """Every open run of a shard: the recent ones in `ranges` of the primary key, and those that stand apart."""
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        recent = await self._database.run(_LIST_RECENT, {"lows": lows, "highs": highs})
        standing = await self._database.run(_LIST_STANDING, {"shard": shard})
        return list({row.run_id: _open_run(row) for row in (*recent, *standing)}.values())

    async def named(self, shard: int, run_ids: Sequence[UUID]) -> list[OpenRun]:
        """Those of these runs of a shard that are open."""
        rows = await self._database.run(_LIST_NAMED, {"shard": shard, "run_ids": sorted(run_ids)})
        return [_open_run(row) for row in rows]

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
        return fence_views(rows), [_open_run(row) for row in rows if row.ord is not None]

    async def stand(self, runs: Sequence[tuple[int, int, UUID, UUID]]) -> dict[tuple[int, int], FenceView]:
        """Make runs, as (shard, term, job id, run id), stand in open_runs; returns the fences seen."""
        return await self._change_standing(_STAND, runs)

    async def ended_standing(self, shard: int) -> list[tuple[UUID, UUID]]:
        """Runs of a shard, as (job id, run id), that stand in open_runs and have ended; 500 at most."""
        return [(row.job_id, row.run_id) for row in await self._database.run(_LIST_ENDED, {"shard": shard})]

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


def _open_run(row: Row[Any]) -> OpenRun:
    return OpenRun(
        run_id=row.run_id,
        job_id=row.job_id,
        job_version=row.job_version,
        shard=row.shard,
        scheduled_for_us=row.scheduled_for_us,
        due_at_us=row.due_at_us,
        state=RunState(row.state),
        attempt=row.attempt,
        uncounted=row.uncounted,
        home_term=row.home_term,
        worker=row.worker,
        token_hash=row.token_hash,
        lease_until_us=row.lease_until_us,
        not_before_us=row.not_before_us,
        started_us=row.started_us,
        cancel_requested_us=row.cancel_requested_us,
        trace=row.trace,
        payload=row.payload,
        progress=row.progress,
        gated=row.gated,
        cause=RunCause(row.cause),
    )
