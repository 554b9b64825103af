"""Runs handlers: async ones as tasks of the event loop, others in threads; and tells them to stop.

For each attempt started, `finished` is called exactly once, in the event loop's thread, when the handler has ended.
One task (or one piece of work for a thread) per run, and nothing else: this is the hot path. Called by worker.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tidewheel.attempts import Attempt
from tidewheel.clock import Clock
from tidewheel.context import Stop, order_stop, stop_of
from tidewheel.handlers import Handler
from tidewheel.outcomes import settle_error, settle_value
from tidewheel.threads import HandlerThreads
from tidewheel.tracing import HandlerTracer
from tidewheel.v1.worker_service_pb2 import Result

log = logging.getLogger(__name__)

# What a handler that was cancelled gets for its own cleaning up when the worker ends.
CLOSE_WITHIN_S = 1.0

Finished = Callable[[Attempt, Result], None]


class Executor:
    """The handlers of one worker at work. Made in the event loop that runs them."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        threads: HandlerThreads,
        clock: Clock,
        finished: Finished,
        tracer: HandlerTracer | None,
    ) -> None:
        self._handlers = handlers
        self._threads = threads
        self._clock = clock
        self._finished = finished
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}

    def start(self, attempt: Attempt) -> None:
        """Start the attempt's handler."""
        handler = self._handlers[attempt.handler]
        if handler.is_async:
            self._tasks[attempt] = self._loop.create_task(self._run(attempt, handler.call))
        else:
            self._threads.submit(lambda: self._run_in_thread(attempt, handler.call))

    def stop(self, attempt: Attempt, stop: Stop) -> None:
        """Tell the handler to stop: a task is cancelled, a thread has to look at its context."""
        if stop_of(attempt.context) is not None:
            return
        order_stop(attempt.context, stop)
        task = self._tasks.get(attempt)
        if task is None:
            return
        task.cancel()
        if not attempt.started:
            # A task that is cancelled before its first step never runs any of its code, so nobody else reports it.
            result = Result(ref=attempt.ref)
            settle_error(result, asyncio.CancelledError(), stop)
            self._end(attempt, result)

    async def close(self) -> None:
        """End every task: those told to stop get a moment for it, then are cancelled once more, then are left behind.

        Threads are left to themselves.
        """
        self._threads.close()
        for _ in range(2):
            if self._tasks:
                await asyncio.wait(list(self._tasks.values()), timeout=CLOSE_WITHIN_S)
            for task in list(self._tasks.values()):
                task.cancel()

    async def _run(self, attempt: Attempt, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
        attempt.started = True
        result = Result(ref=attempt.ref)
        began_s = self._began(result)
        try:
            if self._tracer is None:
                value = await call(attempt.context)
            else:
                with self._tracer.span(attempt.context):
                    value = await call(attempt.context)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            self._raised(result, attempt, error)
        else:
            settle_value(result, value, stop_of(attempt.context))
        self._took(result, began_s)
        self._end(attempt, result)

    def _run_in_thread(self, attempt: Attempt, call: Callable[[Any], Any]) -> None:
        result = Result(ref=attempt.ref)
        began_s = self._began(result)
        try:
            # An order that came while the attempt waited for its thread.
            attempt.context.raise_if_cancelled()
            if self._tracer is None:
                value = call(attempt.context)
            else:
                with self._tracer.span(attempt.context):
                    value = call(attempt.context)
        except BaseException as error:
            self._raised(result, attempt, error)
        else:
            settle_value(result, value, stop_of(attempt.context))
        self._took(result, began_s)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, attempt, result)

    def _raised(self, result: Result, attempt: Attempt, error: BaseException) -> None:
        settle_error(result, error, stop_of(attempt.context))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("handler %r failed in run %s", attempt.handler, attempt.ref.run_id, exc_info=error)

    def _end(self, attempt: Attempt, result: Result) -> None:
        self._tasks.pop(attempt, None)
        self._finished(attempt, result)

    def _began(self, result: Result) -> float:
        now_ns = self._clock.wall_ns()
        result.started_at.seconds, result.started_at.nanos = divmod(now_ns, 1_000_000_000)
        return self._clock.monotonic_s()

    def _took(self, result: Result, began_s: float) -> None:
        took_ns = max(0, int((self._clock.monotonic_s() - began_s) * 1e9))
        result.took.seconds, result.took.nanos = divmod(took_ns, 1_000_000_000)
