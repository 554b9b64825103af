"""The SDK's Clock port: the only place where it reads time or waits.

Nothing is decided by the wall clock: leases, time limits and pauses run on the monotonic clock, so that a jump of the
machine's clock changes nothing. The wall clock is only reported (when a handler's first line ran).
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the SDK sees it."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never jumps; only differences mean something."""
        ...

    def wall_ns(self) -> int:
        """The machine's wall clock, in nanoseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic_s = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Pulse:
    """A wake-up that many may set and one waits for: a hint with a tick behind it.

    Must be made and used in the event loop's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next `set()` (or the one that came before), or after `timeout_s`."""
        if not self._event.is_set():
            hinted = asyncio.ensure_future(self._event.wait())
            ticked = asyncio.ensure_future(self._clock.sleep(timeout_s))
            try:
                await asyncio.wait({hinted, ticked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hinted.cancel()
                ticked.cancel()
        self._event.clear()
