"""Tasks and wake-ups: the only place where the product starts a task.

Every loop of the product has the same shape: it sleeps on a `Wake`, which is both a hint (set by whoever knows that
there is work) and a tick (a bound on how long a lost hint can matter).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from core.clock import Clock

log = logging.getLogger(__name__)

# Longer than any loop takes to clean up after itself.
_CANCEL_AGAIN_S = 2.0
T = TypeVar("T")


class Tasks:
    """A set of named background tasks that live and end together.

    A task that fails is reported once through `on_failure` (by default it is logged); the others go on until
    `close()`. Failures are never swallowed: the role's main function watches `failed`.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed: asyncio.Event = asyncio.Event()
        self.failure: BaseException | None = None

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start `coro` under `name`; the set keeps it alive."""
        task = asyncio.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task %s failed: %s", task.get_name(), error, exc_info=error)
            self.failure = self.failure or error
            self.failed.set()

    async def close(self) -> None:
        """Cancel every task and wait until each has ended.

        A task is cancelled again as long as it goes on: grpc.aio swallows a cancellation that comes while it prepares
        a call, and whoever waits for the call then loops on.
        """
        going_on = set(self._tasks)
        while going_on:
            for task in going_on:
                task.cancel()
            _, going_on = await asyncio.wait(going_on, timeout=_CANCEL_AGAIN_S)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end although the caller may be cancelled meanwhile; the cancellation is raised afterwards.

    For what must not be left half done and has a bound of its own, as a COMMIT.
    """
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError from task.exception()
    return task.result()


class Wake:
    """A one-slot, coalescing wake-up: many `set()` calls before a `wait()` are one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, clock: Clock, tick_s: float) -> bool:
        """Wait for a `set()`, but at most `tick_s`; true when it was a hint, false when it was the tick."""
        if self._event.is_set():
            self._event.clear()
            return True
        hinted = asyncio.create_task(self._event.wait())
        ticked = asyncio.create_task(clock.sleep(tick_s))
        try:
            await asyncio.wait({hinted, ticked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hinted.cancel()
            ticked.cancel()
        was_hint = self._event.is_set()
        self._event.clear()
        return was_hint


async def repeat(clock: Clock, wake: Wake, tick_s: float, step: Callable[[], Awaitable[None]]) -> None:
    """Run `step` for ever: at each hint, and at least every `tick_s` seconds. The first run is at once."""
    while True:
        await step()
        await wake.wait(clock, tick_s)
