"""Leases of attempts: leasing a waiting run to a worker, holding its lease, and taking over the open runs of a shard.

All fenced by the term that answers for the run (its home term), compare-and-set on the attempt. Only the home owner
moves a lease. Adoption re-homes open runs in chunks and gives every lease its full length again, so that a worker that
was alive under the old owner is never reaped early by the new one (rule of ownership 14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.fence import FenceView
from core.states import RunState
from core.store.database import Database
from core.store.decisions import LeaseGrant
from core.store.fencing import FENCE, HELD, fence_params, fence_views
from core.store.statement import Kind, Statement, statement

_LEASE = statement(
    "lease_waiting_runs",
    Kind.ACT,
    # A run that is leased under this very secret already: the statement ran before, and its answer was lost.
    f"""
    WITH {FENCE}, item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, i.attempt, i.worker, i.token_hash, i.lease_until_us
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:attempts AS BIGINT[]), CAST(:workers AS TEXT[]), CAST(:token_hashes AS BYTEA[]),
             CAST(:lease_untils_us AS BIGINT[])
           ) AS i(ord, shard, term, run_id, attempt, worker, token_hash, lease_until_us)
    ), leased AS (
      UPDATE runs AS r
      SET state = 2, attempt = i.attempt, worker = i.worker, token_hash = i.token_hash,
          lease_until_us = i.lease_until_us, started_us = CAST(:now_us AS BIGINT)
      FROM item i
      {HELD}
      WHERE r.run_id = i.run_id AND r.home_term = i.term
        AND ((r.state = 1 AND r.not_before_us = 0 AND r.attempt = i.attempt - 1)
             OR (r.state = 2 AND r.attempt = i.attempt AND r.token_hash = i.token_hash))
      RETURNING i.ord, i.shard, i.term
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, l.ord
    FROM fence f LEFT JOIN leased l ON l.shard = f.shard AND l.term = f.term
    """,
)
_RENEW = statement(
    "renew_leases",
    Kind.ACT,
    f"""
    WITH {FENCE}, item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, i.attempt, i.lease_until_us, i.progress
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:attempts AS BIGINT[]), CAST(:lease_untils_us AS BIGINT[]), CAST(:progresses AS BYTEA[])
           ) AS i(ord, shard, term, run_id, attempt, lease_until_us, progress)
    ), renewed AS (
      UPDATE runs AS r
      SET lease_until_us = GREATEST(r.lease_until_us, i.lease_until_us), progress = COALESCE(i.progress, r.progress)
      FROM item i
      {HELD}
      WHERE r.run_id = i.run_id AND r.state = 2 AND r.attempt = i.attempt AND r.home_term = i.term
      RETURNING i.ord, i.shard, i.term, r.lease_until_us, r.cancel_requested_us
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, n.ord, n.lease_until_us, n.cancel_requested_us
    FROM fence f LEFT JOIN renewed n ON n.shard = f.shard AND n.term = f.term
    """,
)
_OPEN_COLUMNS = """r.run_id, r.job_id, r.job_version, r.shard, r.scheduled_for_us, r.due_at_us, r.state,
           r.attempt, r.uncounted, r.home_term, r.worker, r.token_hash, r.lease_until_us, r.not_before_us, r.started_us,
           r.cancel_requested_us, r.trace, r.payload, r.progress"""
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
_ADOPT = statement(
    "adopt_open_runs",
    Kind.ACT,
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
      RETURNING i.ord, i.shard AS fence_shard, i.term AS fence_term, {_OPEN_COLUMNS}
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, a.ord, a.run_id, a.job_id, a.job_version, a.scheduled_for_us,
           a.due_at_us, a.state, a.attempt, a.uncounted, a.home_term, a.worker, a.token_hash, a.lease_until_us,
           a.not_before_us, a.started_us, a.cancel_requested_us, a.trace, a.payload, a.progress
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


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """Lease the waiting run to a worker as attempt number `attempt`."""

    shard: int
    term: int
    run_id: UUID
    attempt: int
    lease: LeaseGrant


@dataclass(frozen=True, slots=True)
class Renewal:
    """Hold the lease of an attempt until `lease_until_us`, and keep its progress if there is any."""

    shard: int
    term: int
    run_id: UUID
    attempt: int
    lease_until_us: int
    progress: bytes | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """By position: the lease end that SQL holds now, and when a cancel was requested (0: never)."""

    fences: dict[tuple[int, int], FenceView]
    leases: dict[int, tuple[int, int]]


class Leases:
    """Writes leases for one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def lease(
        self, orders: Sequence[LeaseOrder], *, now_us: int
    ) -> tuple[dict[tuple[int, int], FenceView], frozenset[int]]:
        """Lease waiting runs; returns the fences seen and the positions that were leased.

        Recognises its own effect, so that a lost answer is settled by running it again.
        """
        params = {
            **self._fences([(o.shard, o.term) for o in orders]),
            "ords": list(range(len(orders))),
            "shards": [o.shard for o in orders],
            "terms": [o.term for o in orders],
            "run_ids": [o.run_id for o in orders],
            "attempts": [o.attempt for o in orders],
            "workers": [o.lease.worker for o in orders],
            "token_hashes": [o.lease.token_hash for o in orders],
            "lease_untils_us": [o.lease.until_us for o in orders],
            "now_us": now_us,
        }
        rows = await self._database.run(_LEASE, params, repeat_unknown=True)
        return fence_views(rows), frozenset(r.ord for r in rows if r.ord is not None)

    async def renew(self, renewals: Sequence[Renewal]) -> Renewed:
        """Hold leases. A position that is missing in the answer was refused."""
        params = {
            **self._fences([(r.shard, r.term) for r in renewals]),
            "ords": list(range(len(renewals))),
            "shards": [r.shard for r in renewals],
            "terms": [r.term for r in renewals],
            "run_ids": [r.run_id for r in renewals],
            "attempts": [r.attempt for r in renewals],
            "lease_untils_us": [r.lease_until_us for r in renewals],
            "progresses": [r.progress for r in renewals],
        }
        rows = await self._database.run(_RENEW, params, repeat_unknown=True)
        leases = {r.ord: (r.lease_until_us, r.cancel_requested_us) for r in rows if r.ord is not None}
        return Renewed(fence_views(rows), leases)

    async def peopled(self, ranges: Sequence[tuple[UUID, UUID]]) -> list[int]:
        """The positions of the ranges of run ids in which there is any run, ended or not."""
        params = {
            "ords": list(range(len(ranges))),
            "lows": [low for low, _ in ranges],
            "highs": [high for _, high in ranges],
        }
        return sorted(row.ord for row in await self._database.run(_FIND_PEOPLED, params))

    async def open_runs(self, shard: int, ranges: Sequence[tuple[UUID, UUID]]) -> list[OpenRun]:
        """Every open run of a shard: the recent ones in `ranges` of the primary key, and those that stand apart."""
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        recent = await self._database.run(_LIST_RECENT, {"lows": lows, "highs": highs})
        standing = await self._database.run(_LIST_STANDING, {"shard": shard})
        return list({row.run_id: _open_run(row) for row in (*recent, *standing)}.values())

    async def adopt(
        self, runs: Sequence[OpenRun], *, shard: int, term: int, lease_until_us: int
    ) -> tuple[dict[tuple[int, int], FenceView], list[OpenRun]]:
        """Make `term` the home of open runs whose home is an older term; returns them as they stand afterwards.

        Run again after a lost answer it returns the runs that came home the first time too.
        """
        params = {
            **self._fences([(shard, term)]),
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
            **self._fences([(shard, term) for shard, term, _, _ in runs]),
            "shards": [shard for shard, _, _, _ in runs],
            "terms": [term for _, term, _, _ in runs],
            "job_ids": [job_id for _, _, job_id, _ in runs],
            "run_ids": [run_id for _, _, _, run_id in runs],
        }
        return fence_views(await self._database.run(what, params, repeat_unknown=True))

    def _fences(self, keys: Sequence[tuple[int, int]]) -> dict[str, Any]:
        return fence_params(self._owner, keys)


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
    )
