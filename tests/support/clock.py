"""A Clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from core.clock import US_PER_S

NEW_YEAR_2026_US = 1_767_225_600 * US_PER_S
SETTLE_ROUNDS = 50


class ManualClock:
    """Implements core.clock.Clock. Time passes only in `advance`; `set_wall` makes the wall clock alone jump."""

    def __init__(self, wall_us: int = NEW_YEAR_2026_US) -> None:
        self._wall_us = wall_us
        self._elapsed_us = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_us(self) -> int:
        return self._wall_us

    def monotonic_s(self) -> float:
        return self._elapsed_us / US_PER_S

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake_us = self._elapsed_us + max(1, round(seconds * US_PER_S))
        heapq.heappush(self._sleepers, (wake_us, next(self._order), woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many sleeps are waiting now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def set_wall(self, wall_us: int) -> None:
        """Let the wall clock jump; nobody who sleeps is woken by it."""
        self._wall_us = wall_us

    async def advance(self, seconds: float) -> None:
        """Let time pass: sleepers wake in the order of their instants, and tasks run in between.

        Tasks that wait for a socket are not waited for: see `tests.support.polling.eventually`.
        """
        target_us = self._elapsed_us + round(seconds * US_PER_S)
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target_us:
            wake_us, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue  # its sleep was cancelled
            self._pass_until(wake_us)
            woken.set_result(None)
            await settle()
        self._pass_until(target_us)

    async def leap(self, seconds: float) -> None:
        """Let time pass at once, as for a process that stood still: whoever's sleep is over wakes once, at the end."""
        self._pass_until(self._elapsed_us + round(seconds * US_PER_S))
        while self._sleepers and self._sleepers[0][0] <= self._elapsed_us:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
        await settle()

    def _pass_until(self, elapsed_us: int) -> None:
        passed_us = max(0, elapsed_us - self._elapsed_us)
        self._elapsed_us += passed_us
        self._wall_us += passed_us


async def settle() -> None:
    """Let every task that can run do so, without any time passing."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
