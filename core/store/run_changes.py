"""Triggers and cancels: what the API may do to runs. Each is one transaction that a repeat recognises by its key.

A trigger makes its run, PENDING and without a home term, together with the due row that stands for it; the owner of
the shard adopts it when it meets that row. It obeys its job's overlap policy: here it is refused where the policy lets
no further run wait, and the run's gate keeps it from starting beside another one, also where a scheduled occurrence
fired in the very instant (overlap.py). A cancel is a compare-and-set on the run's state, without a fence: it takes
nothing from anybody, since every dispatcher's write compares the state as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock
from core.errors import Conflict, InvariantBroken
from core.ids import trigger_run_id
from core.policy import Overlap
from core.states import ENDED_RUN_STATES, RunCause, RunEvent, RunState, next_run_state
from core.store.audit import AUDITED, Call, audited_params
from core.store.database import Database, Transaction
from core.store.fencing import LANDING
from core.store.jobs import JobRecord, job_in
from core.store.overlap import BACKFILL, OPEN, OPEN_OR_WAITING, WAITING, count_of, none_of
from core.store.requests import ANSWERED, answer, answered_params, once
from core.store.runs import RunRecord, run_in
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_LOCK_JOB = statement(
    "lock_job",
    Kind.READ,
    # Two triggers of a job whose overlap policy asks what is open decide one after the other.
    "SELECT version FROM jobs WHERE job_id = CAST(:job_id AS UUID) FOR UPDATE",
)
_FIND_OPEN = statement(
    "find_open_run",
    Kind.READ,
    # The same question that firing asks. (The mark as a scalar sub-select: joined, the planner walked all runs of the
    # job.)
    f"""
    SELECT b.run_id FROM (
      (SELECT r.run_id FROM runs r
       WHERE r.job_id = CAST(:job_id AS UUID)
         AND r.scheduled_for_us >= (SELECT m.open_from_us FROM shard_marks m WHERE m.shard = CAST(:shard AS BIGINT))
         AND {OPEN_OR_WAITING}
       LIMIT 1)
      UNION ALL
      (SELECT r.run_id FROM open_runs o JOIN runs r ON r.run_id = o.run_id
       WHERE o.shard = CAST(:shard AS BIGINT) AND o.job_id = CAST(:job_id AS UUID)
         AND {OPEN_OR_WAITING}
       LIMIT 1)
    ) AS b
    LIMIT 1
    """,
)
_COUNT_WAITING = statement(
    "count_waiting_runs",
    Kind.READ,
    # How many wait behind an open run, or behind the first of them where none is open: as firing counts.
    f"""
    SELECT {count_of("a", f"{WAITING} AND NOT ({BACKFILL})", open_from="a.open_from_us")}
           - CASE WHEN {none_of("a", OPEN, open_from="a.open_from_us")} THEN 1 ELSE 0 END AS waiting
    FROM (
      SELECT m.shard, m.open_from_us, CAST(:job_id AS UUID) AS job_id, CAST(:run_id AS UUID) AS run_id
      FROM shard_marks m WHERE m.shard = CAST(:shard AS BIGINT)
    ) AS a
    """,
)
_TRIGGER = statement(
    "trigger_run",
    Kind.LAND,
    f"""
    WITH {LANDING}, changed AS (
      INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                        home_term, not_before_us, trace, request_id, payload, gated)
      SELECT CAST(:run_id AS UUID), CAST(:job_id AS UUID), CAST(:job_version AS BIGINT), landing.shard, 2,
             CAST(:now_us AS BIGINT), CAST(:due_at_us AS BIGINT), CAST(:now_us AS BIGINT), 1, 0,
             CAST(:due_at_us AS BIGINT), CAST(:trace AS TEXT), CAST(:shown_request_id AS TEXT),
             CAST(:payload AS BYTEA), CAST(:gated AS BOOLEAN)
      FROM landing
      ON CONFLICT (run_id) DO NOTHING
      RETURNING run_id, shard, job_id, job_version, scheduled_for_us, due_at_us
    ), landed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT c.shard, GREATEST(CAST(:bucket AS BIGINT), landing.floor), c.due_at_us, c.run_id, 2, c.job_id,
             c.job_version, c.scheduled_for_us
      FROM changed c JOIN landing ON landing.shard = c.shard
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING id
    ), {AUDITED}, {ANSWERED}
    SELECT l.id FROM landed l
    """,
)
_CANCEL = statement(
    "cancel_run",
    Kind.WRITE,
    # PENDING ends at once; LEASED only hears of it. Its due row, if one stands, dies when it is met.
    f"""
    WITH changed AS (
      UPDATE runs AS r
      SET state = CAST(:new_state AS SMALLINT), ended_us = CAST(:ended_us AS BIGINT), not_before_us = 0,
          cancel_requested_us = CAST(:now_us AS BIGINT)
      WHERE r.run_id = CAST(:run_id AS UUID) AND r.state = CAST(:old_state AS SMALLINT)
        AND r.attempt = CAST(:attempt AS BIGINT) AND r.cancel_requested_us = 0
      RETURNING r.run_id, r.job_id, r.shard, r.state
    ), closed AS (
      DELETE FROM open_runs AS o USING changed c
      WHERE c.state = 6 AND o.shard = c.shard AND o.job_id = c.job_id AND o.run_id = c.run_id
    ), {AUDITED}, {ANSWERED}
    SELECT c.run_id FROM changed c
    """,
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A wish for one run now, or `delay_us` later. `payload` None: that of the job."""

    job_name: str
    payload: bytes | None
    delay_us: int
    allow_overlap: bool


@dataclass(frozen=True, slots=True)
class RunChanged:
    """The answer for the caller. `shard` is where a due row landed; `canceled` the run whose cancel was written."""

    answer: bytes
    shard: int | None = None
    canceled: UUID | None = None


Render = Callable[[RunRecord], bytes]


class RunChanges:
    """Writes triggers and cancels."""

    def __init__(self, database: Database, clock: Clock, scale: BucketScale) -> None:
        self._database = database
        self._clock = clock
        self._scale = scale

    async def trigger(self, call: Call, wish: Trigger, render: Render) -> RunChanged:
        """Make one run of a job that is not deleted, paused or not.

        Raises NotFound, Conflict (the job's overlap policy lets no further run wait), RequestReused, Unavailable,
        OutcomeUnknown.
        """

        async def body(tx: Transaction, _: int) -> RunChanged:
            job = await job_in(tx, call.key.namespace, wish.job_name)
            policy = Overlap.ALLOW if wish.allow_overlap else _policy_of(job)
            if policy in (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL):
                await tx.run(_LOCK_JOB, {"job_id": job.job_id})
            accepted_us = self._clock.now_us()
            run = _triggered(call, wish, job, accepted_us, gated=policy is not Overlap.ALLOW)
            if policy is Overlap.SKIP:
                await self._refuse_overlap(tx, job)
            elif policy in (Overlap.BUFFER_ONE, Overlap.BUFFER_ALL):
                await self._refuse_overflow(tx, job, run.run_id)
            answer_bytes = render(run)
            landed = await tx.run(
                _TRIGGER,
                {
                    **audited_params(
                        call, action="job.trigger", subject=job.name, version=job.version, now_us=accepted_us
                    ),
                    **answered_params(call.key, answer_bytes),
                    "landing_shards": [job.shard],
                    "run_id": run.run_id,
                    "job_id": job.job_id,
                    "job_version": job.version,
                    "due_at_us": run.due_at_us,
                    "bucket": self._scale.bucket_of(run.due_at_us),
                    "trace": call.trace,
                    "payload": wish.payload,
                    "gated": run.gated,
                },
            )
            if len(landed) != 1:
                raise InvariantBroken(f"the run {run.run_id} of a new request was there already, or did not land")
            return RunChanged(answer_bytes, shard=job.shard)

        return await once(self._database, self._clock, call.key, body, RunChanged)

    async def cancel(self, call: Call, run_id: UUID, render: Render) -> RunChanged:
        """End a PENDING run, or ask for the end of a LEASED one; a run whose cancel was asked for stays as it is.

        Raises NotFound, Conflict (the run ended otherwise), RequestReused, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> RunChanged:
            present = await run_in(tx, call.key.namespace, run_id)
            if present.state is RunState.CANCELED or (
                present.state is RunState.LEASED and present.cancel_requested_us > 0
            ):
                answer_bytes = render(present)
                await answer(tx, call.key, answer_bytes)
                return RunChanged(answer_bytes)
            if present.state in ENDED_RUN_STATES:
                raise Conflict(f"run {run_id} has ended already: {present.state.name}", field="run_id")
            return await _cancel(tx, call, present, now_us, render)

        return await once(self._database, self._clock, call.key, body, RunChanged)

    async def _refuse_overlap(self, tx: Transaction, job: JobRecord) -> None:
        params = {"shard": job.shard, "job_id": job.job_id, "now_us": self._clock.now_us()}
        found = await tx.run(_FIND_OPEN, params)
        if found:
            raise Conflict(
                f"run {found[0].run_id} of job {job.name!r} is open and the job's overlap policy is skip; "
                "allow_overlap starts another one all the same",
                field="allow_overlap",
            )

    async def _refuse_overflow(self, tx: Transaction, job: JobRecord, run_id: UUID) -> None:
        params = {"shard": job.shard, "job_id": job.job_id, "run_id": run_id, "now_us": self._clock.now_us()}
        (counted,) = await tx.run(_COUNT_WAITING, params)
        may_wait = job.spec.max_buffered if job.spec is not None and job.spec.overlap is Overlap.BUFFER_ALL else 1
        if counted.waiting >= may_wait:
            waiting = "a run" if may_wait == 1 else f"{may_wait} runs"
            raise Conflict(
                f"{waiting} of job {job.name!r} wait{'s' if may_wait == 1 else ''} for the open one already, and the "
                "job's overlap policy buffers no more; allow_overlap starts another one all the same",
                field="allow_overlap",
            )


def _policy_of(job: JobRecord) -> Overlap:
    return Overlap.SKIP if job.spec is None else job.spec.overlap


async def _cancel(tx: Transaction, call: Call, present: RunRecord, now_us: int, render: Render) -> RunChanged:
    event = RunEvent.CANCEL_PENDING if present.state is RunState.PENDING else RunEvent.REQUEST_CANCEL
    state = next_run_state(present.state, event)
    ended_us = now_us if state is RunState.CANCELED else 0
    run = replace(present, state=state, ended_us=ended_us, not_before_us=0, cancel_requested_us=now_us)
    answer_bytes = render(run)
    subject = str(run.run_id)
    changed = await tx.run(
        _CANCEL,
        {
            **audited_params(call, action="run.cancel", subject=subject, version=run.job_version, now_us=now_us),
            **answered_params(call.key, answer_bytes),
            "run_id": run.run_id,
            "old_state": int(present.state),
            "new_state": int(state),
            "attempt": present.attempt,
            "ended_us": ended_us,
        },
    )
    if not changed:
        raise RestartTransaction("the run went on in between")
    return RunChanged(answer_bytes, shard=run.shard, canceled=run.run_id)


def _triggered(call: Call, wish: Trigger, job: JobRecord, accepted_us: int, *, gated: bool) -> RunRecord:
    run_id = trigger_run_id(call.key.namespace, call.key.request_id, job.hash16, accepted_us)
    return RunRecord(
        run_id=run_id,
        namespace=job.namespace,
        job_name=job.name,
        job_id=job.job_id,
        job_version=job.version,
        shard=job.shard,
        cause=RunCause.TRIGGER,
        scheduled_for_us=accepted_us,
        due_at_us=accepted_us + wish.delay_us,
        created_us=accepted_us,
        state=RunState.PENDING,
        queue="" if job.spec is None else job.spec.queue,
        max_attempts=0 if job.spec is None else job.spec.retry.max_attempts,
        not_before_us=accepted_us + wish.delay_us,
        gated=gated,
    )
