"""What is in the way of a run of the same job: the one definition of "open" and "waiting", as conditions in SQL.

Firing, leases and triggers decide by these, always from rows and never from an owner's memory (rule of ownership 10).
Recent runs are found by the job's index from the shard's open-from mark on; those that have been open for long stand in
`open_runs`. (Scalar sub-selects: for EXISTS the planner chose a bitmap scan a row.)

A run is `gated` if it may have to wait for others of its job to end: the gate holds for its first attempt. Why no two
gated runs of a job are ever started beside each other, also at READ COMMITTED, where two statements at once do not see
each other's rows:
* Firing starts a gated run only where no other run of the job is open or waits. Whatever waits was written before.
* Leasing starts the first one that waits (`goes_before` is a total order), and only where none is open. Leases of an
  owner are written one statement after the other, and so are its batches of firing, with one occurrence of a job in
  each.
* So of a lease and a firing at the same time the firing sees the other's run wait, and its own run waits too.
* A former owner's statements have ended before its term is closed: they hold the fence.
While a shard is in two hands, those of the owner before a boundary and of the one after it, two fire and lease at the
same time, and neither's statements wait for the other's. Then (rule 15) nothing that must not overlap is started by
firing: its run is made behind the gate whatever its policy, and committed, before a lease asks the gate. And the gate
keeps a run back also behind one that waits at the other owner, whatever the order of the two. So of two runs of
different owners the lease of the one that was made later sees the other wait, run, or ended. Where each waits for the
other, both are free to go, by their order, once the runs of the owner before have come home to the one after.
A trigger, which no fence guards, starts nothing: its run waits until the owner leases it. So an occurrence and a
trigger of one instant, neither of which saw the other, do not run beside each other either. (A lock could not do that:
at READ COMMITTED a statement that has waited for one goes on with the snapshot from before.) What may happen is that
one run more waits than the policy buffers.
"""

from __future__ import annotations

from core.buckets import NO_END

NOW = "CAST(:now_us AS BIGINT)"

# Started and not ended (a wait for a retry included), or waiting for a worker. Of run `r`.
OPEN = f"(r.state = 2 OR (r.state = 1 AND (r.attempt > 0 OR (NOT r.gated AND r.not_before_us <= {NOW}))))"

# Behind its gate, and due. Of run `r`.
WAITING = f"(r.gated AND r.state = 1 AND r.attempt = 0 AND r.not_before_us <= {NOW})"

# Either of the two; a trigger that is not yet due is neither.
OPEN_OR_WAITING = f"(r.state = 2 OR (r.state = 1 AND (r.attempt > 0 OR r.not_before_us <= {NOW})))"

# The runs of a backfill wait behind the schedule's own, and are not counted among those.
BACKFILL = "r.cause = 3"


def goes_before(mine: str) -> str:
    """Whether the waiting run `r` is to be started before the waiting run `mine`: first in, first out."""
    return (
        "(CASE WHEN r.cause = 3 THEN 1 ELSE 0 END, r.scheduled_for_us, r.run_id)"
        f" < (CASE WHEN {mine}.cause = 3 THEN 1 ELSE 0 END, {mine}.scheduled_for_us, {mine}.run_id)"
    )


def none_of(job: str, condition: str, *, open_from: str) -> str:
    """That no run of a job but its own fulfils a condition on `r`.

    `job` has the columns shard, job_id and run_id (that run is left out); `open_from` gives the shard's open-from mark.
    """
    return f"""(SELECT 1 FROM runs r WHERE r.job_id = {job}.job_id AND r.scheduled_for_us >= {open_from}
                 AND {condition} AND r.run_id <> {job}.run_id LIMIT 1) IS NULL
               AND (SELECT 1 FROM open_runs o JOIN runs r ON r.run_id = o.run_id
                    WHERE o.shard = {job}.shard AND o.job_id = {job}.job_id AND {condition}
                    AND r.run_id <> {job}.run_id LIMIT 1) IS NULL"""


def count_of(job: str, condition: str, *, open_from: str) -> str:
    """How many runs of a job but its own fulfil a condition on `r`; as for `none_of`."""
    return f"""(SELECT count(r.run_id) FROM runs r WHERE r.job_id = {job}.job_id AND r.scheduled_for_us >= {open_from}
                 AND {condition} AND r.run_id <> {job}.run_id)
               + (SELECT count(r.run_id) FROM open_runs o JOIN runs r ON r.run_id = o.run_id
                  WHERE o.shard = {job}.shard AND o.job_id = {job}.job_id AND {condition}
                  AND r.scheduled_for_us < {open_from} AND r.run_id <> {job}.run_id)"""


def shared(item: str, *, term_end: str = "") -> str:
    """Whether another term of the shard is open beside the one of `item` (shard, term).

    `term_end` is the end of the item's own term as its lock shows it: exact where the statement's snapshot is older
    than the split.
    """
    beside = f"""(SELECT 1 FROM shard_terms o
               WHERE o.shard = {item}.shard AND o.state = 1 AND o.term <> {item}.term LIMIT 1) IS NOT NULL"""
    return f"({term_end} < {NO_END} OR {beside})" if term_end else f"({beside})"


def blocked_among(item: str) -> str:
    """The waiting runs among `item` (ord, shard, term, run_id, gated) that have to go on waiting behind their gate."""
    elsewhere = "g.shared AND r.home_term NOT IN (g.term, 0)"
    in_the_way = f"({OPEN} OR ({WAITING} AND ({goes_before('g')} OR ({elsewhere}))))"
    return f"""SELECT g.ord, g.shard, g.term
      FROM (
        SELECT i.ord, i.shard, i.term, r.run_id, r.job_id, r.cause, r.scheduled_for_us, m.open_from_us,
               {shared("i")} AS shared
        FROM {item} i
        JOIN runs r ON r.run_id = i.run_id
        JOIN shard_marks m ON m.shard = i.shard
        WHERE i.gated AND r.gated AND r.state = 1 AND r.attempt = 0
      ) AS g
      WHERE NOT ({none_of("g", in_the_way, open_from="g.open_from_us")})"""
