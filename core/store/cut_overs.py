"""Where a change of jobs cuts over: not before anything that their present versions have fired, or skipped.

The instant of a cut-over is read from the clock, and a moment passes until the change commits. Meanwhile dispatchers
know of the present version alone and fire what becomes due; a statement of theirs may even begin before that COMMIT and
end after it. An occurrence of these moments would have its run by the old version, and be the new one's, or a pause's,
as well. So a change that holds the job's row
* tells the due row of the job's chain of the version that is coming (`tell_chains`): that waits for a firing which is
  at the row, and from then on firing leaves the row to those who know of that version;
* then sees what was fired (`fired_beyond`), and takes over after that.
The row stays where it is (rule of ownership 9). A lock alone would not do: at READ COMMITTED a statement that has
waited for one goes on with the job's version as its snapshot had it, and looks again only at the row that was changed.

Whatever is held here firing waits for, in batches with others: only a few quick statements may follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from core.buckets import BucketScale
from core.clock import US_PER_S
from core.ids import chain_id
from core.states import JobState
from core.store.database import Transaction
from core.store.jobs import JobRecord
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_HOLD = statement(
    "hold_jobs",
    Kind.READ,
    # By their keys, ascending, so that two batches wait for each other instead of blocking each other.
    """
    SELECT j.job_id, j.version
    FROM unnest(CAST(:job_ids AS UUID[])) AS i(job_id)
    JOIN jobs j ON j.job_id = i.job_id
    WHERE j.deleted_us = 0
    FOR UPDATE OF j
    """,
)
_FIND = statement(
    "find_chains_to_tell",
    Kind.READ,
    """
    SELECT d.shard, d.bucket, d.due_at_us, d.id
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    JOIN shard_marks m ON m.shard = s.shard
    CROSS JOIN LATERAL (
      SELECT n.shard, n.bucket, n.due_at_us, n.id
      FROM due n
      WHERE n.shard = m.shard AND n.bucket >= m.watermark AND n.bucket < CAST(:to_bucket AS BIGINT)
        AND n.id = ANY(CAST(:ids AS UUID[]))
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS d
    """,
)
_TELL = statement(
    "tell_chains",
    Kind.TELL,
    # By the whole key: a row that was fired meanwhile stands elsewhere, and is looked for again.
    """
    UPDATE due AS d SET told_version = i.told_version
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:buckets AS BIGINT[]), CAST(:due_ats_us AS BIGINT[]),
                CAST(:ids AS UUID[]), CAST(:told_versions AS BIGINT[]))
      AS i(shard, bucket, due_at_us, id, told_version)
    WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.id
    RETURNING d.id
    """,
)
_FIRED_BEYOND = statement(
    "find_fired_beyond",
    Kind.READ,
    # Skipped ranges of a job lie apart: the one that begins last ends last.
    """
    SELECT i.job_id, last_run.scheduled_for_us, last_skip.to_us
    FROM unnest(CAST(:job_ids AS UUID[]), CAST(:cutovers_us AS BIGINT[])) AS i(job_id, cutover_us)
    LEFT JOIN LATERAL (
      SELECT r.scheduled_for_us FROM runs r
      WHERE r.job_id = i.job_id AND r.scheduled_for_us > i.cutover_us AND r.cause = 1
      ORDER BY r.scheduled_for_us DESC, r.run_id DESC LIMIT 1
    ) AS last_run ON TRUE
    LEFT JOIN LATERAL (
      SELECT s.to_us FROM skips s WHERE s.job_id = i.job_id ORDER BY s.from_us DESC LIMIT 1
    ) AS last_skip ON TRUE
    """,
)
# A chain whose row is due later than this cannot be fired before the change has committed: the session's limits end the
# few statements that follow well before.
_AHEAD_US = 30 * US_PER_S
# Each look at a row that has moved on was won by a firing in between.
_MOST_LOOKS = 20


async def hold_jobs(tx: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """The versions of those jobs that still live, as they will stand until the transaction ends."""
    return {row.job_id: row.version for row in await tx.run(_HOLD, {"job_ids": sorted(job_ids)})}


async def tell_chains(tx: Transaction, jobs: Sequence[JobRecord], *, now_us: int, scale: BucketScale) -> None:
    """Let nobody fire the chains of these jobs any more who does not know of the versions that are to follow.

    The jobs are held, and each of them gets its next version in this transaction.
    """
    chains = {chain_id(job.job_id, job.version): job for job in jobs if _may_have_chain(job)}
    to_bucket = scale.bucket_of(now_us + _AHEAD_US) + 1
    for _ in range(_MOST_LOOKS):
        if not chains:
            return
        shards = sorted({job.shard for job in chains.values()})
        sought = {"shards": shards, "ids": sorted(chains), "to_bucket": to_bucket, "row_limit": len(chains)}
        rows = sorted(tuple(row) for row in await tx.run(_FIND, sought))
        if not rows:
            return
        told = await tx.run(
            _TELL,
            {
                "shards": [shard for shard, *_ in rows],
                "buckets": [bucket for _, bucket, *_ in rows],
                "due_ats_us": [due_at_us for *_, due_at_us, _ in rows],
                "ids": [row_id for *_, row_id in rows],
                "told_versions": [chains[row_id].version + 1 for *_, row_id in rows],
            },
        )
        for row in told:
            del chains[row.id]
        if len(told) == len(rows):
            return  # the others have ended, or are not due for long
    raise RestartTransaction("a chain was fired at every look at it")


def _may_have_chain(job: JobRecord) -> bool:
    """A job that cannot be read may: its chain waits until it can be."""
    return job.state is JobState.ACTIVE and (job.spec is None or job.spec.schedule is not None)


async def fired_beyond(tx: Transaction, cutovers_us: Mapping[UUID, int]) -> dict[UUID, int]:
    """The last nominal instant that was run or skipped, of those jobs of which it lies after the given cut-over."""
    params = {"job_ids": list(cutovers_us), "cutovers_us": list(cutovers_us.values())}
    rows = await tx.run(_FIRED_BEYOND, params) if cutovers_us else ()
    last_us = {row.job_id: max(row.scheduled_for_us or 0, row.to_us or 0) for row in rows}
    return {job_id: at_us for job_id, at_us in last_us.items() if at_us > cutovers_us[job_id]}
