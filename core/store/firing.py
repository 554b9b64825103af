"""Firing: due rows become runs, in one fenced autocommit statement a batch.

Three statements, since a table may be changed only once in one: a chain moves to its next occurrence (UPDATE of the
due row's key), a chain ends (DELETE), and the next attempt of a run that is already there (DELETE, and UPDATE of the
run). Each is idempotent: a due row is consumed by compare-and-set on its whole key, and run ids are derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.store.database import Database
from core.store.decisions import DueKey, FireChain, Fired, FireRun, LeaseGrant, MadeRun
from core.store.fencing import FENCE, HELD, LANDING, LANDS, fence_params, fence_views
from core.store.statement import Kind, statement

_ITEM = """item AS (
      SELECT i.ord, i.shard, i.term, i.bucket, i.due_at_us, i.due_id, i.job_id, i.job_version, i.expect_version,
             i.next_bucket, i.next_due_us, i.next_scheduled_us, i.run_id, i.scheduled_for_us, i.run_due_us, i.run_state,
             i.worker, i.token_hash, i.lease_until_us, i.overlap_skip, i.open_from_us, i.stand_before_us,
             i.skip_from_us, i.skip_to_us, i.skip_reason
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:buckets AS BIGINT[]),
             CAST(:due_ats_us AS BIGINT[]), CAST(:due_ids AS UUID[]), CAST(:job_ids AS UUID[]),
             CAST(:job_versions AS BIGINT[]), CAST(:expect_versions AS BIGINT[]), CAST(:next_buckets AS BIGINT[]),
             CAST(:next_dues_us AS BIGINT[]), CAST(:next_scheduleds_us AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:scheduled_fors_us AS BIGINT[]), CAST(:run_dues_us AS BIGINT[]), CAST(:run_states AS SMALLINT[]),
             CAST(:workers AS TEXT[]), CAST(:token_hashes AS BYTEA[]), CAST(:lease_untils_us AS BIGINT[]),
             CAST(:overlap_skips AS BOOLEAN[]), CAST(:open_froms_us AS BIGINT[]),
             CAST(:stand_befores_us AS BIGINT[]), CAST(:skip_froms_us AS BIGINT[]), CAST(:skip_tos_us AS BIGINT[]),
             CAST(:skip_reasons AS SMALLINT[])
           ) AS i(ord, shard, term, bucket, due_at_us, due_id, job_id, job_version, expect_version, next_bucket,
                  next_due_us, next_scheduled_us, run_id, scheduled_for_us, run_due_us, run_state, worker, token_hash,
                  lease_until_us, overlap_skip, open_from_us, stand_before_us, skip_from_us, skip_to_us, skip_reason)
    )"""

# What the statement's later parts need of a consumed row travels on with it: joining them back to the items would be
# quadratic in the batch.
_CARRIED = """i.ord, i.shard, i.term, i.job_id, i.job_version, i.run_id, i.scheduled_for_us, i.run_due_us, i.run_state,
                i.worker, i.token_hash, i.lease_until_us, i.overlap_skip, i.open_from_us, i.stand_before_us,
                i.skip_from_us, i.skip_to_us, i.skip_reason"""

# The due row is consumed only under the term that covers its bucket and the job version that the dispatcher decided
# for: an edit, pause or deletion that committed before this snapshot leaves the row untouched, to be decided anew.
_MOVE = f"""acted AS (
      UPDATE due AS d
      SET bucket = GREATEST(i.next_bucket, lands.floor), due_at_us = i.next_due_us,
          scheduled_for_us = i.next_scheduled_us
      FROM item i
      {HELD}
      {LANDS}
      JOIN jobs j ON j.job_id = i.job_id AND j.version = i.expect_version
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.due_id
        AND i.bucket >= held.from_bucket AND i.bucket < held.to_bucket
      RETURNING {_CARRIED}
    )"""

_END = f"""acted AS (
      DELETE FROM due AS d
      USING item i
      {HELD}
      JOIN jobs j ON j.job_id = i.job_id AND j.version = i.expect_version
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.due_id
        AND i.bucket >= held.from_bucket AND i.bucket < held.to_bucket
      RETURNING {_CARRIED}
    )"""

# Everything below follows from the consumed rows. A job with overlap SKIP gets no run while one of its runs is open:
# the recent ones are found by the shard's open-from mark, the long-lived ones stand in open_runs; a trigger that is not
# yet due does not count. (Scalar sub-selects: for EXISTS the planner chose a bitmap scan a row.) A conflict on the run
# id is an occurrence that has its run already: the due row moves on all the same (rule 9).
_RUNS = """decided AS (
      SELECT a.ord, a.shard, a.term, a.job_id, a.job_version, a.run_id, a.scheduled_for_us, a.run_due_us, a.run_state,
             a.worker, a.token_hash, a.lease_until_us, a.stand_before_us, a.skip_from_us, a.skip_to_us, a.skip_reason,
             a.overlap_skip AND a.run_id IS NOT NULL AND (
               (SELECT 1 FROM runs r WHERE r.job_id = a.job_id AND r.scheduled_for_us >= a.open_from_us
                AND (r.state = 2 OR (r.state = 1 AND (r.attempt > 0 OR r.not_before_us <= CAST(:now_us AS BIGINT))))
                AND r.run_id <> a.run_id LIMIT 1) IS NOT NULL
               OR (SELECT 1 FROM open_runs o JOIN runs r ON r.run_id = o.run_id
                   WHERE o.shard = a.shard AND o.job_id = a.job_id AND r.state IN (1, 2) AND r.run_id <> a.run_id
                   LIMIT 1) IS NOT NULL
             ) AS busy
      FROM acted a
    ), made AS (
      INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                        attempt, home_term, worker, token_hash, lease_until_us, started_us)
      SELECT d.run_id, d.job_id, d.job_version, d.shard, 1, d.scheduled_for_us, d.run_due_us, CAST(:now_us AS BIGINT),
             d.run_state, CASE WHEN d.run_state = 2 THEN 1 ELSE 0 END, d.term, d.worker, d.token_hash, d.lease_until_us,
             CASE WHEN d.run_state = 2 THEN CAST(:now_us AS BIGINT) ELSE 0 END
      FROM decided d
      WHERE d.run_id IS NOT NULL AND NOT d.busy
      ON CONFLICT (run_id) DO NOTHING
      RETURNING run_id, attempt
    ), stood AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT d.shard, d.job_id, d.run_id
      FROM decided d JOIN made m ON m.run_id = d.run_id
      WHERE d.scheduled_for_us < d.stand_before_us
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
    ), skipped AS (
      INSERT INTO skips (job_id, from_us, to_us, reason, job_version, shard, term, recorded_us)
      SELECT s.job_id, s.from_us, s.to_us, s.reason, s.job_version, s.shard, s.term, CAST(:now_us AS BIGINT)
      FROM (
        SELECT d.job_id, d.skip_from_us AS from_us, d.skip_to_us AS to_us, d.skip_reason AS reason, d.job_version,
               d.shard, d.term
        FROM decided d WHERE d.skip_from_us IS NOT NULL
        UNION ALL
        SELECT d.job_id, d.scheduled_for_us, d.scheduled_for_us, 1, d.job_version, d.shard, d.term
        FROM decided d WHERE d.busy
      ) AS s
      ON CONFLICT (job_id, from_us) DO NOTHING
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, CAST(NULL AS BIGINT) AS ord, CAST(NULL AS UUID) AS run_id,
           CAST(NULL AS BIGINT) AS attempt
    FROM fence f
    UNION ALL
    SELECT d.shard, d.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), d.ord, d.run_id, CAST(NULL AS BIGINT)
    FROM decided d
    UNION ALL
    SELECT CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
           CAST(NULL AS BIGINT), m.run_id, m.attempt
    FROM made m"""

_FIRE_MOVING = statement("fire_and_move_chains", Kind.ACT, f"WITH {FENCE}, {LANDING}, {_ITEM}, {_MOVE}, {_RUNS}")
_FIRE_ENDING = statement("fire_and_end_chains", Kind.ACT, f"WITH {FENCE}, {_ITEM}, {_END}, {_RUNS}")

# The next attempt of a run: its due row goes, and the run is leased, or made ready (not_before_us = 0) to wait for a
# credit. A run that was canceled meanwhile stays as it is; its due row goes all the same. Until now the due row stood
# for the run; a run that is older than the open-from mark (a trigger with a delay) stands in open_runs from here on.
_FIRE_RUNS = statement(
    "fire_due_runs",
    Kind.ACT,
    f"""
    WITH {FENCE}, item AS (
      SELECT i.ord, i.shard, i.term, i.bucket, i.due_at_us, i.run_id, i.run_state, i.worker, i.token_hash,
             i.lease_until_us, i.stand_before_us
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:buckets AS BIGINT[]),
             CAST(:due_ats_us AS BIGINT[]), CAST(:run_ids AS UUID[]), CAST(:run_states AS SMALLINT[]),
             CAST(:workers AS TEXT[]), CAST(:token_hashes AS BYTEA[]), CAST(:lease_untils_us AS BIGINT[]),
             CAST(:stand_befores_us AS BIGINT[])
           ) AS i(ord, shard, term, bucket, due_at_us, run_id, run_state, worker, token_hash, lease_until_us,
                  stand_before_us)
    ), acted AS (
      DELETE FROM due AS d
      USING item i
      {HELD}
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.run_id
        AND i.bucket >= held.from_bucket AND i.bucket < held.to_bucket
      RETURNING i.ord, i.shard, i.term, i.run_id, i.run_state, i.worker, i.token_hash, i.lease_until_us,
                i.stand_before_us
    ), made AS (
      UPDATE runs AS r
      SET state = a.run_state, attempt = CASE WHEN a.run_state = 2 THEN r.attempt + 1 ELSE r.attempt END,
          home_term = a.term, worker = a.worker, token_hash = COALESCE(a.token_hash, r.token_hash),
          lease_until_us = a.lease_until_us, not_before_us = 0,
          started_us = CASE WHEN a.run_state = 2 THEN CAST(:now_us AS BIGINT) ELSE r.started_us END
      FROM acted a
      WHERE r.run_id = a.run_id AND r.state = 1
      RETURNING a.ord, a.shard, a.stand_before_us, r.run_id, r.job_id, r.attempt, r.uncounted, r.scheduled_for_us,
                r.due_at_us, r.trace, r.payload, r.progress
    ), stood AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT m.shard, m.job_id, m.run_id FROM made m WHERE m.scheduled_for_us < m.stand_before_us
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, CAST(NULL AS BIGINT) AS ord, CAST(NULL AS BIGINT) AS attempt,
           CAST(NULL AS BIGINT) AS uncounted, CAST(NULL AS BIGINT) AS scheduled_for_us,
           CAST(NULL AS BIGINT) AS due_at_us, CAST(NULL AS TEXT) AS trace, CAST(NULL AS BYTEA) AS payload,
           CAST(NULL AS BYTEA) AS progress
    FROM fence f
    UNION ALL
    SELECT a.shard, a.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), a.ord, CAST(NULL AS BIGINT),
           CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS TEXT), CAST(NULL AS BYTEA),
           CAST(NULL AS BYTEA)
    FROM acted a
    UNION ALL
    SELECT m.shard, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), m.ord, m.attempt, m.uncounted,
           m.scheduled_for_us, m.due_at_us, m.trace, m.payload, m.progress
    FROM made m
    """,
)


_READ_MADE = statement(
    "read_runs_made",
    Kind.READ,
    """
    SELECT r.run_id, r.state, r.attempt, r.uncounted, r.home_term, r.token_hash, r.not_before_us, r.scheduled_for_us,
           r.due_at_us, r.trace, r.payload, r.progress
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id) JOIN runs r ON r.run_id = i.run_id
    """,
)


class Firing:
    """Writes batches of decisions for one owner.

    A batch whose answer was lost is run again at once. Its rows are then gone if the first try was applied, so that
    the runs it made are recognised by the term and the secret that only this owner gave them.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def fire_chains(self, items: Sequence[FireChain], *, now_us: int) -> Fired:
        """Fire occurrences: those with a next one and those without must come in separate calls."""
        moving = items[0].next is not None
        if any((item.next is not None) is not moving for item in items):
            raise ValueError("chains that move and chains that end go into separate statements")
        params = {**self._fences(items), **_chain_params(items), "now_us": now_us}
        rows = await self._database.run(_FIRE_MOVING if moving else _FIRE_ENDING, params, repeat_unknown=True)
        attempts = {run_id: attempt for *_, run_id, attempt in rows if attempt is not None}
        made = {
            n: MadeRun(attempts[i.run.run_id], 0, i.run.scheduled_for_us, i.run.due_at_us)
            for n, i in enumerate(items)
            if i.run is not None and i.run.run_id in attempts
        }
        runs = {n: (i.key, i.run.run_id, i.run.lease) for n, i in enumerate(items) if i.run is not None}
        return await self._with_own_effects(rows, made, runs)

    async def fire_runs(self, items: Sequence[FireRun], *, now_us: int) -> Fired:
        """Start, or make ready, the next attempt of runs that are in `runs` already."""
        params = {**self._fences(items), **_run_params(items), "now_us": now_us}
        rows = await self._database.run(_FIRE_RUNS, params, repeat_unknown=True)
        made = {r.ord: _made(r) for r in rows if r.attempt is not None}
        runs = {n: (item.key, item.key.due_id, item.lease) for n, item in enumerate(items)}
        return await self._with_own_effects(rows, made, runs)

    def _fences(self, items: Sequence[FireChain] | Sequence[FireRun]) -> dict[str, Any]:
        return fence_params(self._owner, ((item.key.shard, item.key.term) for item in items))

    async def _with_own_effects(
        self,
        rows: Sequence[Row[Any]],
        made: dict[int, MadeRun],
        runs: dict[int, tuple[DueKey, UUID, LeaseGrant | None]],
    ) -> Fired:
        fences = fence_views(rows)
        consumed = {ord_ for _, _, _, _, ord_, *_ in rows if ord_ is not None}
        doubtful = {n: r for n, r in runs.items() if n not in consumed and (r[0].shard, r[0].term) in fences}
        if doubtful:
            found = await self._database.run(_READ_MADE, {"run_ids": [run_id for _, run_id, _ in doubtful.values()]})
            by_id = {row.run_id: row for row in found}
            for n, (key, run_id, lease) in doubtful.items():
                row = by_id.get(run_id)
                if row is not None and _is_own_effect(row, key, lease):
                    consumed.add(n)
                    made[n] = _made(row)
        return Fired(fences, frozenset(consumed), made)


def _is_own_effect(row: Row[Any], key: DueKey, lease: LeaseGrant | None) -> bool:
    if row.home_term != key.term or row.not_before_us != 0:
        return False
    if lease is None:
        return bool(row.state == 1)
    return bool(row.state == 2 and row.token_hash == lease.token_hash)


def _made(row: Row[Any]) -> MadeRun:
    return MadeRun(
        row.attempt, row.uncounted, row.scheduled_for_us, row.due_at_us, row.trace, row.payload, row.progress
    )


def _key_params(keys: Sequence[DueKey]) -> dict[str, Any]:
    return {
        "ords": list(range(len(keys))),
        "shards": [k.shard for k in keys],
        "terms": [k.term for k in keys],
        "buckets": [k.bucket for k in keys],
        "due_ats_us": [k.due_at_us for k in keys],
    }


def _lease_params(leases: Sequence[LeaseGrant | None]) -> dict[str, Any]:
    return {
        "run_states": [1 if lease is None else 2 for lease in leases],
        "workers": ["" if lease is None else lease.worker for lease in leases],
        "token_hashes": [None if lease is None else lease.token_hash for lease in leases],
        "lease_untils_us": [0 if lease is None else lease.until_us for lease in leases],
    }


def _chain_params(items: Sequence[FireChain]) -> dict[str, Any]:
    runs = [item.run for item in items]
    skips = [item.skipped for item in items]
    nexts = [item.next for item in items]
    return {
        **_key_params([item.key for item in items]),
        **_lease_params([None if run is None else run.lease for run in runs]),
        "due_ids": [item.key.due_id for item in items],
        "job_ids": [item.job_id for item in items],
        "job_versions": [item.job_version for item in items],
        "expect_versions": [item.expect_version for item in items],
        "next_buckets": [None if n is None else n.bucket for n in nexts],
        "next_dues_us": [None if n is None else n.due_at_us for n in nexts],
        "next_scheduleds_us": [None if n is None else n.scheduled_for_us for n in nexts],
        "run_ids": [None if run is None else run.run_id for run in runs],
        "scheduled_fors_us": [None if run is None else run.scheduled_for_us for run in runs],
        "run_dues_us": [None if run is None else run.due_at_us for run in runs],
        "overlap_skips": [run is not None and run.overlap_skip for run in runs],
        "open_froms_us": [item.open_from_us for item in items],
        "stand_befores_us": [max(item.open_from_us, item.stand_before_us) for item in items],
        "skip_froms_us": [None if s is None else s.from_us for s in skips],
        "skip_tos_us": [None if s is None else s.to_us for s in skips],
        "skip_reasons": [None if s is None else int(s.reason) for s in skips],
    }


def _run_params(items: Sequence[FireRun]) -> dict[str, Any]:
    return {
        **_key_params([item.key for item in items]),
        **_lease_params([item.lease for item in items]),
        "run_ids": [item.key.due_id for item in items],
        "stand_befores_us": [item.stand_before_us for item in items],
    }
