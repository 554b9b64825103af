"""What the client's calls return: plain, frozen values made from the messages. Called by client.py.

Each keeps the message it was made from as `message`, for fields that have no plain form (a job's schedule) and for
printing as protobuf JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tidewheel.schedules import to_datetime
from tidewheel.v1 import job_pb2, run_pb2


@dataclass(frozen=True, slots=True)
class Job:
    """A job as registered. `state` is "ACTIVE", "PAUSED" or "DELETED"; `next_due` is when the next run may start."""

    namespace: str
    name: str
    job_id: str
    handler: str
    queue: str
    payload: bytes
    payload_type: str
    state: str
    version: int
    etag: str
    next_occurrence: datetime | None
    next_due: datetime | None
    error: str
    message: job_pb2.Job = field(repr=False, compare=False)

    @staticmethod
    def of(job: job_pb2.Job) -> Job:
        return Job(
            namespace=job.namespace,
            name=job.name,
            job_id=job.job_id,
            handler=job.handler,
            queue=job.queue,
            payload=job.payload,
            payload_type=job.payload_type,
            state=job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_"),
            version=job.version,
            etag=job.etag,
            next_occurrence=_time(job, "next_occurrence"),
            next_due=_time(job, "next_due"),
            error=job.error,
            message=job,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One occurrence of a job, or one trigger.

    `state` is "PENDING", "LEASED", "SUCCEEDED", "FAILED", "DEAD" or "CANCELED"; `cause` is "SCHEDULE", "TRIGGER" or
    "BACKFILL".
    """

    run_id: str
    namespace: str
    job: str
    job_id: str
    cause: str
    scheduled_for: datetime | None
    due_at: datetime | None
    state: str
    attempt: int
    max_attempts: int
    worker: str
    start_time: datetime | None
    end_time: datetime | None
    last_error: str
    result: bytes
    result_type: str
    progress: bytes
    explanation: str
    message: run_pb2.Run = field(repr=False, compare=False)

    @staticmethod
    def of(run: run_pb2.Run) -> Run:
        return Run(
            run_id=run.run_id,
            namespace=run.namespace,
            job=run.job,
            job_id=run.job_id,
            cause=run_pb2.RunCause.Name(run.cause).removeprefix("RUN_CAUSE_"),
            scheduled_for=_time(run, "scheduled_for"),
            due_at=_time(run, "due_at"),
            state=run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_"),
            attempt=run.attempt,
            max_attempts=run.max_attempts,
            worker=run.worker,
            start_time=_time(run, "start_time"),
            end_time=_time(run, "end_time"),
            last_error=run.last_error,
            result=run.result,
            result_type=run.result_type,
            progress=run.progress,
            explanation=run.explanation,
            message=run,
        )

    @property
    def ended(self) -> bool:
        """Whether the run will not change any more, but for an operator's replay."""
        return self.state in ("SUCCEEDED", "FAILED", "DEAD", "CANCELED")

    def json(self) -> Any:
        """The result, read as JSON. ValueError if it is none."""
        return json.loads(self.result)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery of a run. `outcome` is "OPEN", "SUCCEEDED", "FAILED", "TIMED_OUT", "LOST" or "CANCELED"."""

    attempt: int
    worker: str
    outcome: str
    start_time: datetime | None
    end_time: datetime | None
    error: str
    message: run_pb2.Attempt = field(repr=False, compare=False)

    @staticmethod
    def of(attempt: run_pb2.Attempt) -> Attempt:
        return Attempt(
            attempt=attempt.attempt,
            worker=attempt.worker,
            outcome=run_pb2.AttemptOutcome.Name(attempt.outcome).removeprefix("ATTEMPT_OUTCOME_"),
            start_time=_time(attempt, "start_time"),
            end_time=_time(attempt, "end_time"),
            error=attempt.error,
            message=attempt,
        )


def _time(message: Message, name: str) -> datetime | None:
    if not message.HasField(name):
        return None
    value: Timestamp = getattr(message, name)
    return to_datetime(value)
