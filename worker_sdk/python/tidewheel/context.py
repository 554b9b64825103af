"""What a handler gets: the facts of its attempt, and the words it can say back. Made by attempts.py and testing.py.

It is read and written by the handler (in the event loop or in a thread) and by the worker (in the loop); each field
that crosses is one assignment, so no lock is needed.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from tidewheel.clock import Clock
from tidewheel.errors import Cancelled
from tidewheel.payloads import encode
from tidewheel.schedules import to_datetime
from tidewheel.v1.worker_service_pb2 import Assignment

MOST_PROGRESS_BYTES = 16_384


class StopKind(Enum):
    """Why a handler is told to stop."""

    CANCEL = "cancel requested"
    TIMED_OUT = "timed out"
    LEASE_LOST = "lease lost"
    # A newer attempt exists, or the run has ended.
    STALE = "no longer this worker's"
    SHUTDOWN = "worker shut down"


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to stop, and how the log should call it."""

    kind: StopKind
    reason: str


class RunContext:
    """One attempt, as its handler sees it. `run_id` is the idempotency key: the same in every attempt of the run."""

    __slots__ = ("_assignment", "_clock", "_deadline_s", "_progress", "_stop", "_stopped")

    def __init__(self, assignment: Assignment, deadline_s: float, clock: Clock) -> None:
        """`deadline_s` is on the clock's monotonic time."""
        self._assignment = assignment
        self._clock = clock
        self._deadline_s = deadline_s
        self._stop: Stop | None = None
        self._stopped: threading.Event | None = None
        # How often progress was reported, and the last report.
        self._progress: tuple[int, bytes] = (0, b"")

    @property
    def run_id(self) -> str:
        return self._assignment.ref.run_id

    @property
    def attempt(self) -> int:
        """1 for the first delivery of the run."""
        return self._assignment.ref.attempt

    @property
    def max_attempts(self) -> int:
        return self._assignment.max_attempts

    @property
    def fencing_token(self) -> int:
        """Grows with every attempt: a sink that remembers the greatest it saw can refuse an older attempt."""
        return self._assignment.fencing_token

    @property
    def namespace(self) -> str:
        return self._assignment.namespace

    @property
    def job(self) -> str:
        """The job's name."""
        return self._assignment.job

    @property
    def job_id(self) -> str:
        return self._assignment.job_id

    @property
    def job_version(self) -> int:
        return self._assignment.job_version

    @property
    def handler(self) -> str:
        return self._assignment.handler

    @property
    def queue(self) -> str:
        return self._assignment.queue

    @property
    def payload(self) -> bytes:
        return self._assignment.payload

    @property
    def payload_type(self) -> str:
        """Media type, as the job's owner gave it."""
        return self._assignment.payload_type

    def text(self) -> str:
        """The payload as UTF-8 text."""
        return self._assignment.payload.decode()

    def json(self) -> Any:
        """The payload, read as JSON."""
        return json.loads(self._assignment.payload)

    @property
    def scheduled_for(self) -> datetime:
        """The nominal instant of the occurrence, in UTC."""
        return to_datetime(self._assignment.scheduled_for)

    @property
    def due_at(self) -> datetime:
        """When the run was allowed to start, in UTC."""
        return to_datetime(self._assignment.due_at)

    @property
    def traceparent(self) -> str:
        """W3C trace context of the run; empty if it is not traced."""
        return self._assignment.traceparent

    @property
    def last_progress(self) -> bytes:
        """What the attempt before this one reported last; empty for the first."""
        return self._assignment.progress

    @property
    def remaining_s(self) -> float:
        """Seconds until the attempt times out; not below zero."""
        return max(0.0, self._deadline_s - self._clock.monotonic_s())

    @property
    def deadline(self) -> datetime:
        """When the attempt times out, by this machine's wall clock, in UTC. Only `remaining_s` survives its jumps."""
        now = datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)
        return now + timedelta(seconds=self._deadline_s - self._clock.monotonic_s())

    def heartbeat(self, progress: object = None) -> None:
        """Report progress: bytes, text, or anything with a JSON form; it travels with the next heartbeat.

        The worker itself keeps the lease, so a handler never has to call this. None reports nothing new. ValueError if
        it takes more than 16,384 bytes. May be called from any thread.
        """
        if progress is None:
            return
        data, _ = encode(progress)
        if len(data) > MOST_PROGRESS_BYTES:
            raise ValueError(f"progress of {len(data):,} bytes; at most {MOST_PROGRESS_BYTES:,} are kept")
        self._progress = (self._progress[0] + 1, data)

    @property
    def cancelled(self) -> bool:
        """Whether the handler was told to stop: canceled, timed out, lease lost, or the worker shuts down."""
        return self._stop is not None

    @property
    def cancel_reason(self) -> str:
        """Why; empty while it was not told to stop."""
        return "" if self._stop is None else self._stop.reason

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the handler was told to stop. For handlers that run in a thread."""
        if self._stop is not None:
            raise Cancelled(self._stop.reason)

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Block up to `timeout_s`, less if told to stop; whether it was. A sleep for handlers that run in a thread."""
        if self._stopped is None:
            self._stopped = threading.Event()
        # Looked at after the event is in place: an order in between either sees the event or is seen here.
        return self._stop is not None or self._stopped.wait(timeout_s)


def order_stop(context: RunContext, stop: Stop) -> None:
    """Tell the handler to stop; the first reason stays. For the worker, not for handlers."""
    if context._stop is not None:
        return
    context._stop = stop
    if context._stopped is not None:
        context._stopped.set()


def stop_of(context: RunContext) -> Stop | None:
    """The order to stop, if one was given. For the worker."""
    return context._stop


def progress_of(context: RunContext) -> tuple[int, bytes]:
    """How often progress was reported, and the last report. For the worker."""
    return context._progress
