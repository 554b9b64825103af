"""For tests of handlers: runs one with a made-up attempt, without any server.

    from tidewheel.testing import run_handler

    async def test_report_counts_rows():
        outcome = await run_handler(report, payload={"day": "2030-01-01"})
        assert outcome.succeeded and outcome.json() == {"rows": 12}

Results, failures, cancellation and the limits on sizes mean here what they mean in a worker: the same code decides.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidewheel.attempts import Attempt
from tidewheel.clock import Clock, SystemClock
from tidewheel.context import Stop, StopKind, progress_of
from tidewheel.executor import Executor
from tidewheel.handlers import HandlerFunction, handler_of
from tidewheel.payloads import encode
from tidewheel.schedules import duration, timestamp
from tidewheel.threads import HandlerThreads
from tidewheel.v1.worker_service_pb2 import Assignment, AttemptRef, Result


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """What would have been reported. `error` is empty unless the attempt failed."""

    succeeded: bool
    canceled: bool
    result: bytes
    result_type: str
    error: str
    not_retryable: bool
    timed_out: bool
    # The last report of progress; empty if there was none.
    progress: bytes

    def json(self) -> Any:
        """The result, read as JSON."""
        return json.loads(self.result)


async def run_handler(
    function: HandlerFunction,
    *,
    payload: object = None,
    payload_type: str | None = None,
    run_id: str = "00000000-0000-4000-8000-000000000001",
    attempt: int = 1,
    max_attempts: int = 4,
    fencing_token: int = 1,
    job: str = "a-job",
    last_progress: object = None,
    scheduled_for: datetime | None = None,
    timeout_s: float = 3600.0,
    cancel_after_s: float | None = None,
    clock: Clock | None = None,
) -> HandlerOutcome:
    """Run `function` (async, or plain in a thread) once, as a worker would, and say how it ended.

    After `cancel_after_s` the handler is told that a cancel was requested, after `timeout_s` that its time is over.
    """
    data, derived_type = encode(payload)
    when = timestamp("scheduled_for", scheduled_for or datetime(2030, 1, 1, tzinfo=UTC))
    assignment = Assignment(
        ref=AttemptRef(run_id=run_id, attempt=attempt, token=bytes(32)),
        namespace="default",
        job=job,
        job_id="00000000-0000-4000-8000-000000000000",
        job_version=1,
        handler=job,
        queue="default",
        payload=data,
        payload_type=derived_type if payload_type is None else payload_type,
        scheduled_for=when,
        due_at=when,
        max_attempts=max_attempts,
        fencing_token=fencing_token,
        progress=encode(last_progress)[0],
        start_to_close_timeout=duration(timedelta(seconds=timeout_s)),
    )
    return await _run(function, assignment, timeout_s, cancel_after_s, clock or SystemClock())


async def _run(
    function: HandlerFunction, assignment: Assignment, timeout_s: float, cancel_after_s: float | None, clock: Clock
) -> HandlerOutcome:
    ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    held = Attempt(assignment, "", clock.monotonic_s(), timeout_s, clock)
    executor = Executor(
        {assignment.handler: handler_of(function)},
        HandlerThreads(1),
        clock,
        lambda _, result: ended.set_result(result),
        None,
    )
    orders = [_stop_later(executor, held, Stop(StopKind.TIMED_OUT, StopKind.TIMED_OUT.value), timeout_s, clock)]
    if cancel_after_s is not None:
        orders.append(_stop_later(executor, held, Stop(StopKind.CANCEL, StopKind.CANCEL.value), cancel_after_s, clock))
    tasks = [asyncio.ensure_future(order) for order in orders]
    executor.start(held)
    try:
        return _outcome(await ended, progress_of(held.context)[1])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await executor.close()


async def _stop_later(executor: Executor, attempt: Attempt, stop: Stop, after_s: float, clock: Clock) -> None:
    await clock.sleep(after_s)
    executor.stop(attempt, stop)


def _outcome(result: Result, progress: bytes) -> HandlerOutcome:
    return HandlerOutcome(
        succeeded=result.HasField("success"),
        canceled=result.HasField("canceled"),
        result=result.success.result,
        result_type=result.success.result_type,
        error=result.failure.message,
        not_retryable=result.failure.not_retryable,
        timed_out=result.failure.timed_out,
        progress=progress,
    )
