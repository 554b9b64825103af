"""Ending attempts: results, timeouts, lost leases and assignments given back, in one fenced statement a batch.

Compare-and-set on (run, attempt, token or lease, home term), fenced by the open term row of the home term, without a
bucket test (rule of ownership 12). A retry lands its own due row in the same statement, at or above the floor. Running
a batch again changes nothing: the run is no longer LEASED under that attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.fence import FenceView
from core.states import AttemptOutcome, RunState
from core.store.database import Database
from core.store.fencing import FENCE, HELD, LANDING, LANDS, fence_params, fence_views
from core.store.statement import Kind, statement

_ITEM = """item AS (
      SELECT i.ord, i.shard, i.term, i.run_id, i.attempt, i.token_hash, i.lease_until_us, i.state, i.outcome, i.error,
             i.result, i.result_type, i.progress, i.retry_at_us, i.retry_bucket, i.uncounted, i.stands_open
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:run_ids AS UUID[]),
             CAST(:attempts AS BIGINT[]), CAST(:token_hashes AS BYTEA[]), CAST(:lease_untils_us AS BIGINT[]),
             CAST(:states AS SMALLINT[]), CAST(:outcomes AS SMALLINT[]), CAST(:errors AS TEXT[]),
             CAST(:results AS BYTEA[]), CAST(:result_types AS TEXT[]), CAST(:progresses AS BYTEA[]),
             CAST(:retry_ats_us AS BIGINT[]), CAST(:retry_buckets AS BIGINT[]), CAST(:uncounteds AS BIGINT[]),
             CAST(:stands_opens AS BOOLEAN[])
           ) AS i(ord, shard, term, run_id, attempt, token_hash, lease_until_us, state, outcome, error, result,
                  result_type, progress, retry_at_us, retry_bucket, uncounted, stands_open)
    )"""

# A retry of a run whose cancel was requested is no retry: it ends CANCELED (state 6).
_ENDED = f"""ended AS (
      UPDATE runs AS r
      SET state = CASE WHEN i.state = 1 AND r.cancel_requested_us > 0 THEN 6 ELSE i.state END,
          ended_us = CASE WHEN i.state = 1 AND r.cancel_requested_us = 0 THEN 0 ELSE CAST(:now_us AS BIGINT) END,
          not_before_us = CASE WHEN i.state = 1 AND r.cancel_requested_us = 0 THEN i.retry_at_us ELSE 0 END,
          lease_until_us = 0, uncounted = r.uncounted + i.uncounted,
          last_error = CASE WHEN i.uncounted = 1 THEN r.last_error ELSE i.error END, result = i.result,
          result_type = i.result_type, progress = COALESCE(i.progress, r.progress)
      FROM item i
      {HELD}
      WHERE r.run_id = i.run_id AND r.state = 2 AND r.attempt = i.attempt AND r.home_term = i.term
        AND ((i.token_hash IS NOT NULL AND r.token_hash = i.token_hash)
             OR (i.token_hash IS NULL AND r.lease_until_us = i.lease_until_us))
      RETURNING i.ord, i.shard, i.term, i.run_id, r.job_id, r.job_version, r.scheduled_for_us, r.worker, r.started_us,
                r.state, i.attempt, i.outcome, i.error, i.retry_at_us, i.retry_bucket, i.uncounted, i.stands_open
    ), recorded AS (
      INSERT INTO attempts (run_id, attempt, worker, outcome, started_us, ended_us, term, error)
      SELECT e.run_id, e.attempt, e.worker, e.outcome, e.started_us, CAST(:now_us AS BIGINT), e.term, e.error
      FROM ended e WHERE e.uncounted = 0
      ON CONFLICT (run_id, attempt) DO NOTHING
    ), closed AS (
      DELETE FROM open_runs AS o
      USING ended e
      WHERE e.stands_open AND e.state <> 1 AND o.shard = e.shard AND o.job_id = e.job_id AND o.run_id = e.run_id
    )"""

_RELANDED = f"""relanded AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT i.shard, GREATEST(i.retry_bucket, lands.floor), i.retry_at_us, i.run_id, 2, i.job_id, i.job_version,
             i.scheduled_for_us
      FROM ended i
      {LANDS}
      WHERE i.state = 1 AND i.retry_at_us > 0
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
    )"""

_ANSWER = """
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, CAST(NULL AS BIGINT) AS ord, CAST(NULL AS SMALLINT) AS state
    FROM fence f
    UNION ALL
    SELECT e.shard, e.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), e.ord, e.state FROM ended e"""

_END = statement("end_attempts", Kind.ACT, f"WITH {FENCE}, {_ITEM}, {_ENDED} {_ANSWER}")
_END_AND_RETRY = statement(
    "end_attempts_and_land_retries", Kind.ACT, f"WITH {FENCE}, {LANDING}, {_ITEM}, {_ENDED}, {_RELANDED} {_ANSWER}"
)
_SETTLE = statement(
    "read_runs_to_settle",
    Kind.READ,
    # Who answers for a run: the owner of its home term, or of the last open range where that is closed.
    """
    SELECT r.run_id, r.state, r.attempt, r.token_hash, r.home_term, r.shard, r.lease_until_us, r.cancel_requested_us,
           a.outcome, h.owner, CASE WHEN h.term = r.home_term THEN h.from_bucket ELSE NULL END AS home_from
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id)
    JOIN runs r ON r.run_id = i.run_id
    LEFT JOIN attempts a ON a.run_id = r.run_id AND a.attempt = r.attempt
    LEFT JOIN LATERAL (
      SELECT t.term, t.owner, t.from_bucket
      FROM shard_terms t
      WHERE t.shard = r.shard AND t.state = 1
      ORDER BY CASE WHEN t.term = r.home_term THEN 0 ELSE 1 END, t.from_bucket DESC
      LIMIT 1
    ) AS h ON TRUE
    """,
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt ended, and where its run goes.

    Proven by `token_hash` (a worker's word) or without it by `lease_until_us` (the owner's: the lease of exactly that
    end ran out, or its time-out passed; whatever extended it meanwhile refuses the ending). `state` PENDING means
    another attempt at `retry_at_us`; 0 there means at once, by the owner's own memory (an assignment given back).
    `progress` is the last that was reported and may not be written yet; None leaves what the run has. `uncounted` 1:
    the attempt never started and does not count.
    """

    shard: int
    term: int
    run_id: UUID
    attempt: int
    state: RunState
    outcome: AttemptOutcome
    token_hash: bytes | None = None
    lease_until_us: int = 0
    error: str = ""
    result: bytes | None = None
    result_type: str = ""
    progress: bytes | None = None
    retry_at_us: int = 0
    retry_bucket: int = 0
    uncounted: int = 0
    stands_open: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What a batch did: the new state of the run by position; a position that is missing was refused."""

    fences: dict[tuple[int, int], FenceView]
    states: dict[int, RunState]


@dataclass(frozen=True, slots=True)
class RunHolding:
    """The columns of a run by which a refused word is judged (rule 13).

    `outcome` is what was recorded of its present attempt; None while that is open, and where it does not count.
    `owner` is the dispatcher that answers for it: of its home term, or of the last open range where that is closed.
    `home_from` is the bucket from which its home term goes; None where that is no longer open.
    """

    run_id: UUID
    state: RunState
    attempt: int
    token_hash: bytes | None
    home_term: int
    shard: int
    lease_until_us: int = 0
    outcome: AttemptOutcome | None = None
    cancel_requested_us: int = 0
    owner: str = ""
    home_from: int | None = None


class Completion:
    """Writes batches of endings for one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def end(self, items: Sequence[Ending], *, now_us: int) -> Ended:
        """End a batch of attempts of distinct runs. A lost answer is settled by running the batch again and then
        reading the refused runs (`holdings`)."""
        retries = any(item.retry_at_us > 0 for item in items)
        params = {
            **fence_params(self._owner, ((i.shard, i.term) for i in items)),
            **_ending_params(items),
            "now_us": now_us,
        }
        rows = await self._database.run(_END_AND_RETRY if retries else _END, params, repeat_unknown=True)
        return Ended(fence_views(rows), {row[4]: RunState(row[5]) for row in rows if row[4] is not None})

    async def holdings(self, run_ids: Sequence[UUID]) -> dict[UUID, RunHolding]:
        """The runs of refused words, as they stand now."""
        rows = await self._database.run(_SETTLE, {"run_ids": sorted(set(run_ids))})
        return {
            r.run_id: RunHolding(
                r.run_id,
                RunState(r.state),
                r.attempt,
                r.token_hash,
                r.home_term,
                r.shard,
                r.lease_until_us,
                None if r.outcome is None else AttemptOutcome(r.outcome),
                r.cancel_requested_us,
                r.owner or "",
                r.home_from,
            )
            for r in rows
        }


def _ending_params(items: Sequence[Ending]) -> dict[str, Any]:
    return {
        "ords": list(range(len(items))),
        "shards": [i.shard for i in items],
        "terms": [i.term for i in items],
        "run_ids": [i.run_id for i in items],
        "attempts": [i.attempt for i in items],
        "token_hashes": [i.token_hash for i in items],
        "lease_untils_us": [i.lease_until_us for i in items],
        "states": [int(i.state) for i in items],
        "outcomes": [int(i.outcome) for i in items],
        "errors": [i.error for i in items],
        "results": [i.result for i in items],
        "result_types": [i.result_type for i in items],
        "progresses": [i.progress for i in items],
        "retry_ats_us": [i.retry_at_us for i in items],
        "retry_buckets": [i.retry_bucket for i in items],
        "uncounteds": [i.uncounted for i in items],
        "stands_opens": [i.stands_open for i in items],
    }
