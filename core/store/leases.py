"""Leases of attempts: leasing a waiting run to a worker, and holding its lease.

Fenced by the term that answers for the run (its home term), compare-and-set on the attempt. Only the home owner moves a
lease; a new owner takes the lease over with the run (open_runs.py). The first attempt of a gated run is leased only
while nothing of its job is in its way (overlap.py); the callers of one owner lease one batch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.fence import FenceView
from core.store.database import Database
from core.store.decisions import LeaseGrant
from core.store.fencing import FENCE, HELD, fence_params, fence_views
from core.store.overlap import blocked_among
from core.store.statement import Kind, statement

_LEASE = statement(
    "lease_waiting_runs",
    Kind.ACT,
    # A run that is leased under this very secret already: the statement ran before, and its answer was lost. Callers
    # say which runs are gated, so that the others cost no second look; a gated one not named as such is refused.
    f"""
    WITH {FENCE}, item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, i.attempt, i.worker, i.token_hash, i.lease_until_us, i.gated
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:attempts AS BIGINT[]), CAST(:workers AS TEXT[]), CAST(:token_hashes AS BYTEA[]),
             CAST(:lease_untils_us AS BIGINT[]), CAST(:gateds AS BOOLEAN[])
           ) AS i(ord, shard, term, run_id, attempt, worker, token_hash, lease_until_us, gated)
    ), blocked AS (
      {blocked_among("item")}
    ), leased AS (
      UPDATE runs AS r
      SET state = 2, attempt = i.attempt, worker = i.worker, token_hash = i.token_hash,
          lease_until_us = i.lease_until_us, started_us = CAST(:now_us AS BIGINT)
      FROM item i
      {HELD}
      LEFT JOIN blocked b ON b.ord = i.ord
      WHERE r.run_id = i.run_id AND r.home_term = i.term AND b.ord IS NULL AND (i.gated OR NOT r.gated OR i.attempt > 1)
        AND ((r.state = 1 AND r.not_before_us = 0 AND r.attempt = i.attempt - 1)
             OR (r.state = 2 AND r.attempt = i.attempt AND r.token_hash = i.token_hash))
      RETURNING i.ord, i.shard, i.term
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, l.ord, CAST(NULL AS BIGINT) AS blocked
    FROM fence f LEFT JOIN leased l ON l.shard = f.shard AND l.term = f.term
    UNION ALL
    SELECT b.shard, b.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), b.ord
    FROM blocked b
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


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """Lease the waiting run to a worker as attempt number `attempt`; the first one of a gated run must say `gated`."""

    shard: int
    term: int
    run_id: UUID
    attempt: int
    lease: LeaseGrant
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """What became of a batch, by position: leased, or kept back by its gate.

    A position in neither was refused: the fence is lost, or the run is not what it was taken for.
    """

    fences: dict[tuple[int, int], FenceView]
    leased: frozenset[int]
    blocked: frozenset[int]


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

    async def lease(self, orders: Sequence[LeaseOrder], *, now_us: int) -> Leased:
        """Lease waiting runs, each at most once in a batch.

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
            "gateds": [o.gated for o in orders],
            "now_us": now_us,
        }
        rows = await self._database.run(_LEASE, params, repeat_unknown=True)
        return Leased(
            fence_views(rows),
            frozenset(r.ord for r in rows if r.ord is not None),
            frozenset(r.blocked for r in rows if r.blocked is not None),
        )

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

    def _fences(self, keys: Sequence[tuple[int, int]]) -> dict[str, Any]:
        return fence_params(self._owner, keys)
