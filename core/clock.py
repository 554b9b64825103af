"""The Clock port: the only place where the product reads time or waits.

Instants are integers, microseconds since 1970-01-01T00:00:00Z. One clock decides: the database's. `DatabaseClock`
follows it by a lower bound that moves on the monotonic clock, so that no reading of ours is ever ahead of the
database's own (promise 2, "never early"). Waiting is always on the monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

US_PER_S = 1_000_000


class Clock(Protocol):
    """Time as the product sees it."""

    def now_us(self) -> int:
        """The present instant, in microseconds since the epoch, by the database's clock where one is followed."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never jumps; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock. Zero or less yields once."""
        ...


class SystemClock:
    """The machine's own clocks: before a database is known, and in processes that decide nothing."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def process_cpu_s() -> float:
    """Processor seconds that this process has used, all its threads together; only differences mean something."""
    return time.process_time()


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One look at the database's clock: `server_us` was read somewhere between the two monotonic instants."""

    server_us: int
    sent_s: float
    received_s: float

    @property
    def offset_floor_us(self) -> int:
        """The database's time was at least monotonic + this, at `received_s`."""
        return self.server_us - round(self.received_s * US_PER_S)

    @property
    def offset_ceiling_us(self) -> int:
        """The database's time was at most monotonic + this, at `sent_s`."""
        return self.server_us - round(self.sent_s * US_PER_S)


class DatabaseClock:
    """Follows the database's clock: monotonic time plus the best lower bound of the last readings.

    The largest floor of the recent readings is the tightest bound that is never ahead. Old readings age out, so slow
    drift is followed. A reading whose ceiling lies below the present bound by more than `jump_us`, or whose floor lies
    above it by more than that, is a jump of the database's clock: `holding` turns true, `now_us` stands still on the
    old offset, and dispatch waits until `confirm` readings in a row agree on the new offset (fault row 30).
    """

    def __init__(self, base: Clock, *, jump_us: int = 2 * US_PER_S, keep: int = 30, confirm: int = 5) -> None:
        self._base = base
        self._jump_us = jump_us
        self._readings: deque[ClockReading] = deque(maxlen=keep)
        self._suspects: list[ClockReading] = []
        self._confirm = confirm
        self._offset_us: int | None = None
        self.jumps = 0

    @property
    def ready(self) -> bool:
        """Whether the database's clock has been read at least once."""
        return self._offset_us is not None

    @property
    def holding(self) -> bool:
        """Whether a suspected jump of the database's clock is being looked at; nothing may be fired meanwhile."""
        return bool(self._suspects)

    @property
    def wall_offset_us(self) -> int:
        """The database's clock minus this machine's wall clock, for the `clock_offset` gauge."""
        return self.now_us() - self._base.now_us()

    def now_us(self) -> int:
        if self._offset_us is None:
            return self._base.now_us()
        return round(self._base.monotonic_s() * US_PER_S) + self._offset_us

    def monotonic_s(self) -> float:
        return self._base.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._base.sleep(seconds)

    def observe(self, reading: ClockReading) -> None:
        """Take one reading into account."""
        if self._offset_us is not None and self._is_jump(reading, self._offset_us):
            if self._suspects and self._is_jump(reading, self._suspects[0].offset_floor_us):
                self._suspects.clear()  # it contradicts the others as well: the counting begins anew
            self._suspects.append(reading)
            if len(self._suspects) < self._confirm:
                return
            self.jumps += 1
            self._readings.clear()
            self._readings.extend(self._suspects)
        else:
            self._readings.append(reading)
        self._suspects.clear()
        floor = max(r.offset_floor_us for r in self._readings)
        ceiling = min(r.offset_ceiling_us for r in self._readings)
        # Readings can contradict each other by drift; then the newest is the one to believe.
        self._offset_us = floor if floor <= ceiling else reading.offset_floor_us

    def _is_jump(self, reading: ClockReading, offset_us: int) -> bool:
        ahead = reading.offset_floor_us - offset_us
        behind = offset_us - reading.offset_ceiling_us
        return ahead > self._jump_us or behind > self._jump_us
