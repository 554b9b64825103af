"""Keeps a process's clock on the database's time: one look a second, more often while it matters.

Owned by each role's main function. While the database is away the clock runs on by the monotonic one.
"""

from __future__ import annotations

import logging

from core.clock import DatabaseClock
from core.errors import OutcomeUnknown, Unavailable
from core.store.database import Database

log = logging.getLogger(__name__)

_PROBE_S = 1.0
_SUSPECT_PROBE_S = 0.1
_SILENCE_S = 3.0


class ClockProbe:
    """Reads the database's clock and lets a DatabaseClock follow it."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock
        self._read_s: float | None = None

    @property
    def silence(self) -> str:
        """Why the database counts as away: it did not answer for a while. Empty when it did."""
        if self._read_s is None:
            return "the database has not answered yet"
        silent_s = self._clock.monotonic_s() - self._read_s
        return f"the database has not answered for {silent_s:.0f} s" if silent_s > _SILENCE_S else ""

    async def begin(self, looks: int = 5) -> None:
        """The first looks, before anything is decided by the clock. Raises Unavailable."""
        for _ in range(looks):
            await self.step()

    async def run(self) -> None:
        """For ever."""
        held = False
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.debug("the database's clock was not read: %s", error)
            if self._clock.holding is not held:
                held = self._clock.holding
                log.warning(
                    "the database's clock %s", "may have jumped: dispatch is held" if held else "is trusted again"
                )
            await self._clock.sleep(_SUSPECT_PROBE_S if held else _PROBE_S)

    async def step(self) -> None:
        """One look."""
        self._clock.observe(await self._database.read_clock())
        self._read_s = self._clock.monotonic_s()
