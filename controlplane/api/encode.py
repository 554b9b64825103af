"""Core records as messages. Pure: what is computed for display comes in as a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from tidewheel.v1 import job_pb2, run_pb2

from controlplane.api.decode_schedule import duration, encode_schedule, timestamp
from controlplane.api.etags import etag_of
from controlplane.api.explain import explain
from core.jobspec import JobSpec
from core.occurrences import Occurrence
from core.policy import CatchUpMode, CatchUpOrder, Overlap
from core.states import AttemptOutcome, JobState, RunCause, RunState
from core.store.jobs import JobRecord
from core.store.runs import AttemptRecord, RunRecord

JOB_STATES: Final = {
    JobState.ACTIVE: job_pb2.JOB_STATE_ACTIVE,
    JobState.PAUSED: job_pb2.JOB_STATE_PAUSED,
    JobState.DELETED: job_pb2.JOB_STATE_DELETED,
}
RUN_STATES: Final = {
    RunState.PENDING: run_pb2.RUN_STATE_PENDING,
    RunState.LEASED: run_pb2.RUN_STATE_LEASED,
    RunState.SUCCEEDED: run_pb2.RUN_STATE_SUCCEEDED,
    RunState.FAILED: run_pb2.RUN_STATE_FAILED,
    RunState.DEAD: run_pb2.RUN_STATE_DEAD,
    RunState.CANCELED: run_pb2.RUN_STATE_CANCELED,
}
_CAUSES: Final = {
    RunCause.SCHEDULE: run_pb2.RUN_CAUSE_SCHEDULE,
    RunCause.TRIGGER: run_pb2.RUN_CAUSE_TRIGGER,
    RunCause.BACKFILL: run_pb2.RUN_CAUSE_BACKFILL,
}
_OUTCOMES: Final = {
    None: run_pb2.ATTEMPT_OUTCOME_OPEN,
    AttemptOutcome.SUCCEEDED: run_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
    AttemptOutcome.FAILED: run_pb2.ATTEMPT_OUTCOME_FAILED,
    AttemptOutcome.TIMED_OUT: run_pb2.ATTEMPT_OUTCOME_TIMED_OUT,
    AttemptOutcome.LOST: run_pb2.ATTEMPT_OUTCOME_LOST,
    AttemptOutcome.CANCELED: run_pb2.ATTEMPT_OUTCOME_CANCELED,
}
_OVERLAPS: Final = {
    Overlap.SKIP: job_pb2.OVERLAP_POLICY_SKIP,
    Overlap.ALLOW: job_pb2.OVERLAP_POLICY_ALLOW,
    Overlap.BUFFER_ONE: job_pb2.OVERLAP_POLICY_BUFFER_ONE,
    Overlap.BUFFER_ALL: job_pb2.OVERLAP_POLICY_BUFFER_ALL,
    Overlap.CANCEL_OTHER: job_pb2.OVERLAP_POLICY_CANCEL_OTHER,
}
_CATCH_UPS: Final = {
    CatchUpMode.LATEST: job_pb2.CATCH_UP_MODE_LATEST,
    CatchUpMode.SKIP: job_pb2.CATCH_UP_MODE_SKIP,
    CatchUpMode.ALL: job_pb2.CATCH_UP_MODE_ALL,
}
_ORDERS: Final = {
    CatchUpOrder.OLDEST_FIRST: job_pb2.CATCH_UP_ORDER_OLDEST_FIRST,
    CatchUpOrder.NEWEST_FIRST: job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
}


def encode_job(job: JobRecord, *, following: Occurrence | None) -> job_pb2.Job:
    """The job as it stands; `following` is its next occurrence. A job whose stored form is not readable is shown with
    the reason in `error`."""
    message = job_pb2.Job(
        namespace=job.namespace,
        name=job.name,
        job_id=str(job.job_id),
        payload=job.payload,
        state=JOB_STATES[job.state],
        version=job.version,
        etag=etag_of(job),
        create_time=timestamp(job.created_us),
        update_time=timestamp(job.updated_us),
        error=job.fault or job.error,
    )
    if following is not None:
        message.next_occurrence.CopyFrom(timestamp(following.nominal_us))
        message.next_due.CopyFrom(timestamp(following.due_us))
    if job.spec is not None:
        add_spec(message, job.spec)
        if job.spec.schedule is not None and job.spec.schedule.jitter_us:
            message.jitter_offset.CopyFrom(duration(job.spec.pins.jitter_offset_us))
    return message


def encode_run(run: RunRecord, *, now_us: int, traceparent: Callable[[UUID], str]) -> run_pb2.Run:
    """The run as it stands."""
    message = run_pb2.Run(
        run_id=str(run.run_id),
        namespace=run.namespace,
        job=run.job_name,
        job_id=str(run.job_id),
        job_version=run.job_version,
        cause=_CAUSES[run.cause],
        scheduled_for=timestamp(run.scheduled_for_us),
        due_at=timestamp(run.due_at_us),
        state=RUN_STATES[run.state],
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        create_time=timestamp(run.created_us),
        last_error=run.last_error,
        result=run.result or b"",
        result_type=run.result_type,
        progress=run.progress or b"",
        traceparent=traceparent(run.run_id),
        shard=run.shard,
        home_term=run.home_term,
        explanation=explain(run, now_us),
        operation_id="" if run.operation_id is None else str(run.operation_id),
        buffered=run.gated and run.state is RunState.PENDING and run.attempt == 0,
    )
    for name, instant_us in (
        ("not_before", run.not_before_us if run.state is RunState.PENDING and run.attempt > 0 else 0),
        ("lease_until", run.lease_until_us),
        ("cancel_requested", run.cancel_requested_us),
        ("start_time", run.started_us),
        ("end_time", run.ended_us),
    ):
        if instant_us > 0:
            getattr(message, name).CopyFrom(timestamp(instant_us))
    if run.state is RunState.LEASED:
        message.worker = run.worker
    return message


def encode_attempt(attempt: AttemptRecord) -> run_pb2.Attempt:
    """One attempt."""
    message = run_pb2.Attempt(
        attempt=attempt.attempt,
        worker=attempt.worker,
        outcome=_OUTCOMES[attempt.outcome],
        start_time=timestamp(attempt.started_us),
        error=attempt.error,
        term=attempt.term,
    )
    if attempt.outcome is not None:
        message.end_time.CopyFrom(timestamp(attempt.ended_us))
    return message


def add_spec(message: job_pb2.Job, spec: JobSpec) -> None:
    """Have the message say what a version says, payload aside."""
    message.handler = spec.handler
    message.queue = spec.queue
    message.payload_type = spec.payload_type
    if spec.schedule is not None:
        message.schedule.CopyFrom(encode_schedule(spec.schedule))
    retry = message.retry
    retry.max_attempts = spec.retry.max_attempts
    retry.first_delay.CopyFrom(duration(spec.retry.first_delay_us))
    retry.factor = spec.retry.factor
    retry.max_delay.CopyFrom(duration(spec.retry.max_delay_us))
    retry.jitter = spec.retry.jitter
    message.overlap = _OVERLAPS[spec.overlap]
    message.catch_up.mode = _CATCH_UPS[spec.catch_up.mode]
    message.catch_up.grace.CopyFrom(duration(spec.catch_up.grace_us))
    message.catch_up.max_runs = spec.catch_up.max_runs
    message.catch_up.window.CopyFrom(duration(spec.catch_up.window_us))
    message.catch_up.order = _ORDERS[spec.catch_up.order]
    message.max_buffered = spec.max_buffered
    message.start_to_close_timeout.CopyFrom(duration(spec.timeout_us))
    message.description = spec.description
    message.contact = spec.contact
    message.labels.update(spec.labels)
