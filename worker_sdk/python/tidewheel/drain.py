"""Leaving in good order: when a drain began, when its limit is reached, when it is over; and the signals that start it.

Called by worker.py.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidewheel.clock import Clock

# From the limit on: how long cancelled handlers and their results have to get through.
FLUSH_S = 5.0


class Drain:
    """The phases of a drain, on the monotonic clock. `changed` is called when one begins."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._limit_s = math.inf
        self.begun = False

    def begin(self, limit_s: float) -> None:
        """Start, or shorten what has started."""
        self._limit_s = min(self._limit_s, self._clock.monotonic_s() + limit_s)
        self.begun = True
        self._changed()

    @property
    def limit_reached(self) -> bool:
        """Handlers that still run are to be cancelled."""
        return self._clock.monotonic_s() >= self._limit_s

    @property
    def is_over(self) -> bool:
        """Whatever has not got through by now will not."""
        return self._clock.monotonic_s() >= self._limit_s + FLUSH_S

    @property
    def next_s(self) -> float:
        """When the next phase begins."""
        return self._limit_s + FLUSH_S if self.limit_reached else self._limit_s


@contextmanager
def signals_of(begin: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `begin` in the running event loop; a second one ends the process as by default.

    Outside the main thread signals are not ours to handle, and nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    seen: list[int] = []

    def arrived(number: int) -> None:
        if seen:
            # The default action, not an exception in the middle of a loop that is busy leaving.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        seen.append(number)
        begin()

    for number in numbers:
        loop.add_signal_handler(number, arrived, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            # None: a handler that was not installed from Python, which cannot be put back.
            if before[number] is not None:
                signal.signal(number, before[number])
