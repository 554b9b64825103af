"""The statements of firing: due rows become runs, in one fenced autocommit statement a batch.

Three of them, since a table may be changed only once in one: a chain moves to its next occurrence (UPDATE of the due
row's key), a chain ends (DELETE), and the next attempt of a run that is already there (DELETE, and UPDATE of the run).
Run by firing.py; what is in the way of a run is defined in overlap.py.
"""

from __future__ import annotations

from core.store.fencing import FENCE, HELD, LANDING, LANDS
from core.store.overlap import BACKFILL, NOW, OPEN, OPEN_OR_WAITING, WAITING, count_of, none_of, shared
from core.store.statement import Kind, statement

_ITEM = """item AS (
      SELECT i.ord, i.shard, i.term, i.bucket, i.due_at_us, i.due_id, i.job_id, i.job_version, i.expect_version,
             i.next_bucket, i.next_due_us, i.next_scheduled_us, i.next_back_us, i.next_back_to_us, i.run_id,
             i.scheduled_for_us, i.run_due_us, i.run_state, i.worker, i.token_hash, i.lease_until_us, i.overlap,
             i.max_buffered, i.open_from_us, i.stand_before_us, i.skip_from_us, i.skip_to_us, i.skip_reason
      FROM unnest(
             CAST(:ords AS BIGINT[]), CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:buckets AS BIGINT[]),
             CAST(:due_ats_us AS BIGINT[]), CAST(:due_ids AS UUID[]), CAST(:job_ids AS UUID[]),
             CAST(:job_versions AS BIGINT[]), CAST(:expect_versions AS BIGINT[]), CAST(:next_buckets AS BIGINT[]),
             CAST(:next_dues_us AS BIGINT[]), CAST(:next_scheduleds_us AS BIGINT[]), CAST(:next_backs_us AS BIGINT[]),
             CAST(:next_back_tos_us AS BIGINT[]), CAST(:run_ids AS UUID[]), CAST(:scheduled_fors_us AS BIGINT[]),
             CAST(:run_dues_us AS BIGINT[]), CAST(:run_states AS SMALLINT[]), CAST(:workers AS TEXT[]),
             CAST(:token_hashes AS BYTEA[]), CAST(:lease_untils_us AS BIGINT[]), CAST(:overlaps AS SMALLINT[]),
             CAST(:max_buffereds AS BIGINT[]), CAST(:open_froms_us AS BIGINT[]), CAST(:stand_befores_us AS BIGINT[]),
             CAST(:skip_froms_us AS BIGINT[]), CAST(:skip_tos_us AS BIGINT[]), CAST(:skip_reasons AS SMALLINT[])
           ) AS i(ord, shard, term, bucket, due_at_us, due_id, job_id, job_version, expect_version, next_bucket,
                  next_due_us, next_scheduled_us, next_back_us, next_back_to_us, run_id, scheduled_for_us, run_due_us,
                  run_state, worker, token_hash, lease_until_us, overlap, max_buffered, open_from_us, stand_before_us,
                  skip_from_us, skip_to_us, skip_reason)
    )"""

# What the statement's later parts need of a consumed row travels on with it: joining them back to the items would be
# quadratic in the batch.
_CARRIED = """i.ord, i.shard, i.term, i.job_id, i.job_version, i.run_id, i.scheduled_for_us, i.run_due_us, i.run_state,
                i.worker, i.token_hash, i.lease_until_us, i.overlap, i.max_buffered, i.open_from_us, i.stand_before_us,
                i.skip_from_us, i.skip_to_us, i.skip_reason"""

# The due row is consumed only under the term that covers its bucket and the job version that the dispatcher decided
# for: an edit, pause or deletion that committed before this snapshot leaves the row untouched, to be decided anew. One
# that commits after this snapshot has told the row of its version (cut_overs.py), which is read when the row is had.
_UNTOLD = "(d.told_version IS NULL OR d.told_version <= i.expect_version)"

_MOVE = f"""acted AS (
      UPDATE due AS d
      SET bucket = GREATEST(i.next_bucket, lands.floor), due_at_us = i.next_due_us,
          scheduled_for_us = i.next_scheduled_us, back_us = i.next_back_us, back_to_us = i.next_back_to_us
      FROM item i
      {HELD}
      {LANDS}
      JOIN jobs j ON j.job_id = i.job_id AND j.version = i.expect_version
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.due_id
        AND i.bucket >= held.from_bucket AND i.bucket < held.to_bucket AND {_UNTOLD}
      RETURNING {_CARRIED}, held.to_bucket AS term_end
    )"""

_END = f"""acted AS (
      DELETE FROM due AS d
      USING item i
      {HELD}
      JOIN jobs j ON j.job_id = i.job_id AND j.version = i.expect_version
      WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.due_id
        AND i.bucket >= held.from_bucket AND i.bucket < held.to_bucket AND {_UNTOLD}
      RETURNING {_CARRIED}, held.to_bucket AS term_end
    )"""

# Verdicts on a run: nothing is in its way, or it waits behind its gate. Others are numbers of SkipReason.
FREE, WAITS = 0, -1

# The buffer is full when as many wait as may. The first one that waits counts as the open run where none is open.
_IS_FULL = f"""{count_of("a", f"{WAITING} AND NOT ({BACKFILL})", open_from="a.open_from_us")}
               >= a.max_buffered + CASE WHEN {none_of("a", OPEN, open_from="a.open_from_us")} THEN 1 ELSE 0 END"""

# Everything below follows from the consumed rows. Policies, as in core/policy.Overlap: 1 skips while a run of the job
# is open or waits, 2 takes no notice, 3 and 4 let as many wait as max_buffered says (1 under 3), 5 lets the run wait
# until its dispatcher has canceled what is in its way. While the shard is in two hands none but 2 starts here: their
# runs go through the gate. A conflict on the run id is an occurrence that has its run already: the due row
# moves on all the same (rule 9).
_RUNS = f"""decided AS (
      SELECT a.ord, a.shard, a.term, a.job_id, a.job_version, a.run_id, a.scheduled_for_us, a.run_due_us, a.run_state,
             a.worker, a.token_hash, a.lease_until_us, a.overlap, a.stand_before_us, a.skip_from_us, a.skip_to_us,
             a.skip_reason,
             a.overlap <> 2 AND a.run_id IS NOT NULL AND {shared("a", term_end="a.term_end")} AS shared,
             CASE WHEN a.overlap = 2 OR a.run_id IS NULL THEN {FREE}
                  WHEN {none_of("a", OPEN_OR_WAITING, open_from="a.open_from_us")} THEN {FREE}
                  WHEN a.overlap = 1 THEN 1
                  WHEN a.overlap = 5 THEN {WAITS}
                  WHEN {_IS_FULL} THEN 5
                  ELSE {WAITS} END AS verdict
      FROM acted a
    ), made AS (
      INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                        attempt, home_term, worker, token_hash, lease_until_us, started_us, gated)
      SELECT s.run_id, s.job_id, s.job_version, s.shard, 1, s.scheduled_for_us, s.run_due_us, {NOW},
             CASE WHEN s.starts THEN 2 ELSE 1 END, CASE WHEN s.starts THEN 1 ELSE 0 END, s.term,
             CASE WHEN s.starts THEN s.worker ELSE '' END, CASE WHEN s.starts THEN s.token_hash ELSE NULL END,
             CASE WHEN s.starts THEN s.lease_until_us ELSE 0 END, CASE WHEN s.starts THEN {NOW} ELSE 0 END,
             s.overlap > 2 OR s.shared
      FROM (
        SELECT d.run_id, d.job_id, d.job_version, d.shard, d.scheduled_for_us, d.run_due_us, d.term, d.worker,
               d.token_hash, d.lease_until_us, d.overlap, d.shared,
               d.run_state = 2 AND d.verdict = {FREE} AND NOT d.shared AS starts
        FROM decided d
        WHERE d.run_id IS NOT NULL AND d.verdict <= {FREE}
      ) AS s
      ON CONFLICT (run_id) DO NOTHING
      RETURNING run_id, attempt, gated
    ), stood AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT d.shard, d.job_id, d.run_id
      FROM decided d JOIN made m ON m.run_id = d.run_id
      WHERE d.scheduled_for_us < d.stand_before_us
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
    ), skipped AS (
      INSERT INTO skips (job_id, from_us, to_us, reason, job_version, shard, term, recorded_us)
      SELECT s.job_id, s.from_us, s.to_us, s.reason, s.job_version, s.shard, s.term, {NOW}
      FROM (
        SELECT d.job_id, d.skip_from_us AS from_us, d.skip_to_us AS to_us, d.skip_reason AS reason, d.job_version,
               d.shard, d.term
        FROM decided d WHERE d.skip_from_us IS NOT NULL
        UNION ALL
        SELECT d.job_id, d.scheduled_for_us, d.scheduled_for_us, d.verdict, d.job_version, d.shard, d.term
        FROM decided d WHERE d.verdict > {FREE}
      ) AS s
      ON CONFLICT (job_id, from_us) DO NOTHING
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, CAST(NULL AS BIGINT) AS ord, CAST(NULL AS UUID) AS run_id,
           CAST(NULL AS BIGINT) AS attempt, CAST(NULL AS BIGINT) AS verdict, CAST(NULL AS BOOLEAN) AS gated
    FROM fence f
    UNION ALL
    SELECT d.shard, d.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), d.ord, d.run_id, CAST(NULL AS BIGINT),
           d.verdict, CAST(NULL AS BOOLEAN)
    FROM decided d
    UNION ALL
    SELECT CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
           CAST(NULL AS BIGINT), m.run_id, m.attempt, CAST(NULL AS BIGINT), m.gated
    FROM made m"""

FIRE_MOVING = statement("fire_and_move_chains", Kind.ACT, f"WITH {FENCE}, {LANDING}, {_ITEM}, {_MOVE}, {_RUNS}")
FIRE_ENDING = statement("fire_and_end_chains", Kind.ACT, f"WITH {FENCE}, {_ITEM}, {_END}, {_RUNS}")

# The first attempt of a gated run is made ready only: leasing holds the gate.
_STARTS = "a.run_state = 2 AND NOT (r.gated AND r.attempt = 0)"

# The next attempt of a run: its due row goes, and the run is leased, or made ready (not_before_us = 0) to wait for a
# credit or behind its gate. A run that was canceled meanwhile stays as it is; its due row goes all the same. Until now
# the due row stood for the run; a run that is older than the open-from mark (a trigger with a delay) stands in
# open_runs from here on.
FIRE_RUNS = statement(
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
      SET state = CASE WHEN {_STARTS} THEN 2 ELSE 1 END,
          attempt = CASE WHEN {_STARTS} THEN r.attempt + 1 ELSE r.attempt END, home_term = a.term,
          worker = CASE WHEN {_STARTS} THEN a.worker ELSE '' END,
          token_hash = CASE WHEN {_STARTS} THEN a.token_hash ELSE r.token_hash END,
          lease_until_us = CASE WHEN {_STARTS} THEN a.lease_until_us ELSE 0 END, not_before_us = 0,
          started_us = CASE WHEN {_STARTS} THEN {NOW} ELSE r.started_us END
      FROM acted a
      WHERE r.run_id = a.run_id AND r.state = 1
      RETURNING a.ord, a.shard, a.stand_before_us, r.run_id, r.job_id, r.attempt, r.uncounted, r.scheduled_for_us,
                r.due_at_us, r.trace, r.payload, r.progress, r.gated, r.cause
    ), stood AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT m.shard, m.job_id, m.run_id FROM made m WHERE m.scheduled_for_us < m.stand_before_us
      ON CONFLICT (shard, job_id, run_id) DO NOTHING
    )
    SELECT f.shard, f.term, f.from_bucket, f.to_bucket, CAST(NULL AS BIGINT) AS ord, CAST(NULL AS BIGINT) AS attempt,
           CAST(NULL AS BIGINT) AS uncounted, CAST(NULL AS BIGINT) AS scheduled_for_us,
           CAST(NULL AS BIGINT) AS due_at_us, CAST(NULL AS TEXT) AS trace, CAST(NULL AS BYTEA) AS payload,
           CAST(NULL AS BYTEA) AS progress, CAST(NULL AS BOOLEAN) AS gated, CAST(NULL AS SMALLINT) AS cause
    FROM fence f
    UNION ALL
    SELECT a.shard, a.term, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), a.ord, CAST(NULL AS BIGINT),
           CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS TEXT), CAST(NULL AS BYTEA),
           CAST(NULL AS BYTEA), CAST(NULL AS BOOLEAN), CAST(NULL AS SMALLINT)
    FROM acted a
    UNION ALL
    SELECT m.shard, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), m.ord, m.attempt, m.uncounted,
           m.scheduled_for_us, m.due_at_us, m.trace, m.payload, m.progress, m.gated, m.cause
    FROM made m
    """,
)

READ_MADE = statement(
    "read_runs_made",
    Kind.READ,
    """
    SELECT r.run_id, r.state, r.attempt, r.uncounted, r.home_term, r.token_hash, r.not_before_us, r.scheduled_for_us,
           r.due_at_us, r.trace, r.payload, r.progress, r.gated, r.cause
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id) JOIN runs r ON r.run_id = i.run_id
    """,
)
