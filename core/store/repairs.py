"""The reconciler's repairs: each one statement that looks again at what it repairs, and audits itself.

Nothing is deleted, and whatever the owner did meanwhile wins: a row that moved, a run that changed, a job of another
version is left alone. Running a repair again changes nothing. Rows land like all others, at or above the floor, so that
their owner finds them at its next look. Called by controlplane/reconciler.py.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from core.buckets import NO_END
from core.clock import Clock
from core.findings import SeenRun, StrayRow
from core.rand import Rand
from core.store.database import Database, Transaction
from core.store.fencing import LANDING, LANDS
from core.store.landing import Landing
from core.store.moves import CLUSTER_NAMESPACE
from core.store.statement import Kind, Statement, statement

_AUDITED = """audited AS (
      INSERT INTO audit (namespace, at_us, audit_id, actor, action, object, version, request_id, note, server_us)
      SELECT CAST(:namespace AS TEXT), CAST(:now_us AS BIGINT), CAST(:audit_id AS UUID), CAST(:actor AS TEXT),
             CAST(:action AS TEXT), CAST(c.id AS TEXT), 0, '', CAST(:note AS TEXT),
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM changed c
    )
    SELECT c.id FROM changed c"""


def _elsewhere(low: str) -> str:
    """Whether a due row of the item's id stands in its shard from the bucket `low` on: then another is one too many."""
    return f"""(SELECT o.id FROM due o
               WHERE o.shard = i.shard AND o.bucket >= {low} AND o.bucket < {NO_END} AND o.id = i.due_id
               LIMIT 1)"""


_STRAY = statement(
    "reland_stray_due_row",
    Kind.REPAIR,
    # By the whole key, so that an owner that fires it first wins. Where the row's successor stands already, it stays.
    f"""
    WITH {LANDING}, changed AS (
      UPDATE due AS d SET bucket = GREATEST(i.bucket, lands.floor)
      FROM (SELECT CAST(:shard AS BIGINT) AS shard, CAST(:bucket AS BIGINT) AS bucket,
                   CAST(:due_at_us AS BIGINT) AS due_at_us, CAST(:due_id AS UUID) AS due_id) AS i
      {LANDS}
      JOIN shard_marks m ON m.shard = i.shard
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.due_id
        AND d.bucket < m.watermark AND {_elsewhere("m.watermark")} IS NULL
      RETURNING d.id
    ), {_AUDITED}
    """,
)
_STAND = statement(
    "stand_unfound_run",
    Kind.REPAIR,
    # A run that its owner ends later may leave its row behind; the next adoption clears it.
    f"""
    WITH open AS (
      SELECT r.shard, r.job_id, r.run_id
      FROM runs r
      WHERE r.run_id = CAST(:run_id AS UUID) AND r.shard = CAST(:shard AS BIGINT) AND r.state IN (1, 2)
      FOR UPDATE OF r
    ), changed AS (
      INSERT INTO open_runs AS o (shard, job_id, run_id)
      SELECT i.shard, i.job_id, i.run_id
      FROM open i
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
      RETURNING o.run_id AS id
    ), {_AUDITED}
    """,
)
_LOCK_RUN = statement(
    "lock_resting_run",
    Kind.READ,
    # Whoever else is about to land its retry waits here, and then sees it; so does whoever fires it.
    "SELECT r.attempt FROM runs r WHERE r.run_id = CAST(:run_id AS UUID) AND r.state = 1 FOR UPDATE",
)
_RETRY = statement(
    "land_missing_retry",
    Kind.REPAIR,
    # Locked, so that the run still rests for this very attempt: whoever fires it wakes it in the same statement.
    f"""
    WITH {LANDING}, resting AS (
      SELECT r.shard, r.run_id AS due_id, r.job_id, r.job_version, r.scheduled_for_us, r.not_before_us
      FROM runs r
      WHERE r.run_id = CAST(:run_id AS UUID) AND r.shard = CAST(:shard AS BIGINT) AND r.state = 1
        AND r.attempt = CAST(:attempt AS BIGINT) AND r.not_before_us = CAST(:not_before_us AS BIGINT)
      FOR UPDATE OF r
    ), changed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT i.shard, GREATEST(CAST(:bucket AS BIGINT), lands.floor), i.not_before_us, i.due_id, 2, i.job_id,
             i.job_version, i.scheduled_for_us
      FROM resting i
      {LANDS}
      WHERE {_elsewhere("0")} IS NULL
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING id
    ), {_AUDITED}
    """,
)
_LOCK_JOB = statement(
    "lock_job_of_lost_chain",
    Kind.READ,
    # Whoever else is about to land this chain waits here, and then sees it; so does an edit.
    "SELECT j.version FROM jobs j WHERE j.job_id = CAST(:job_id AS UUID) AND j.state = 1 FOR UPDATE",
)
_CHAIN = statement(
    "land_lost_chain",
    Kind.REPAIR,
    # The chain of a version dies with it: the job is active in this very one, and locked.
    f"""
    WITH {LANDING}, chained AS (
      SELECT j.job_id, j.shard, j.version, CAST(:due_id AS UUID) AS due_id
      FROM jobs j
      WHERE j.job_id = CAST(:job_id AS UUID) AND j.version = CAST(:job_version AS BIGINT) AND j.state = 1
      FOR UPDATE OF j
    ), changed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT i.shard, GREATEST(CAST(:bucket AS BIGINT), lands.floor), CAST(:due_at_us AS BIGINT), i.due_id, 1,
             i.job_id, i.version, CAST(:scheduled_for_us AS BIGINT)
      FROM chained i
      {LANDS}
      WHERE {_elsewhere("0")} IS NULL
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING id
    ), {_AUDITED}
    """,
)


class Repairs:
    """Writes repairs in the name of one replica. Each says whether it changed anything.

    All raise Unavailable and OutcomeUnknown; doing them again is safe.
    """

    def __init__(self, database: Database, clock: Clock, rand: Rand, replica_id: str) -> None:
        self._database = database
        self._clock = clock
        self._rand = rand
        self._replica_id = replica_id

    async def reland(self, row: StrayRow, note: str) -> bool:
        """Put a due row from below the watermark to the floor."""
        return await self._run(
            _STRAY,
            "reconcile.reland",
            note,
            landing_shards=[row.shard],
            shard=row.shard,
            bucket=row.bucket,
            due_at_us=row.due_at_us,
            due_id=row.due_id,
        )

    async def stand(self, run: SeenRun, note: str) -> bool:
        """Make an open run stand in open_runs, where the next adoption finds it."""
        return await self._run(_STAND, "reconcile.stand", note, run_id=run.run_id, shard=run.shard)

    async def land_retry(self, run: SeenRun, bucket: int, note: str) -> bool:
        """Land the due row of a resting run; `bucket` is that of its next attempt."""
        params = self._params("reconcile.land_retry", note)
        params |= {
            "landing_shards": [run.shard],
            "run_id": run.run_id,
            "shard": run.shard,
            "attempt": run.attempt,
            "not_before_us": run.not_before_us,
            "bucket": bucket,
        }
        return await self._land(_LOCK_RUN, {"run_id": run.run_id}, _RETRY, params)

    async def land_chain(self, row: Landing, note: str) -> bool:
        """Land the due row of a job's chain, if the job is active in that version still."""
        params = self._params("reconcile.land_chain", note)
        params |= {
            "landing_shards": [row.shard],
            "bucket": row.bucket,
            "due_at_us": row.due_at_us,
            "due_id": row.due_id,
            "job_id": row.job_id,
            "job_version": row.job_version,
            "scheduled_for_us": row.scheduled_for_us,
        }
        return await self._land(_LOCK_JOB, {"job_id": row.job_id}, _CHAIN, params)

    async def _land(self, lock: Statement, key: dict[str, Any], land: Statement, params: dict[str, Any]) -> bool:
        """Lock first, then land: the landing's own snapshot must see what the one before in the lock has landed."""

        async def body(tx: Transaction) -> bool:
            return bool(await tx.run(lock, key)) and bool(await tx.run(land, params))

        return await self._database.transaction(body, repeat_unknown=True)

    async def _run(self, what: Statement, action: str, note: str, **params: Any) -> bool:
        return bool(await self._database.run(what, {**self._params(action, note), **params}, repeat_unknown=True))

    def _params(self, action: str, note: str) -> dict[str, Any]:
        audit_id: UUID = self._rand.uuid()
        return {
            "namespace": CLUSTER_NAMESPACE,
            "now_us": self._clock.now_us(),
            "audit_id": audit_id,
            "actor": self._replica_id,
            "action": action,
            "note": note,
        }
