"""Retention: what is kept for a time only is removed after it, by the leader, in small chunks.

Today that is the idempotency keys of the API: 7 days; and moves of shards that have ended: 30 days. Runs, skips,
versions and the audit are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from core.clock import US_PER_S, Clock
from core.errors import OutcomeUnknown, Unavailable
from core.store.database import Database
from core.store.moves import forget_old_moves
from core.store.requests import forget_old

log = logging.getLogger(__name__)

_DAY_US = 24 * 3600 * US_PER_S
REQUESTS_KEPT_US = 7 * _DAY_US
MOVES_KEPT_US = 30 * _DAY_US
_EVERY_S = 600.0


class Retention:
    """Removes old rows while `leads` says that this replica is the leader."""

    def __init__(self, database: Database, clock: Clock, leads: Callable[[], bool]) -> None:
        self._database = database
        self._clock = clock
        self._leads = leads

    async def run(self) -> None:
        """For ever, every ten minutes."""
        while True:
            await self._clock.sleep(_EVERY_S)
            if self._leads():
                try:
                    await self.step()
                except (Unavailable, OutcomeUnknown) as error:
                    log.warning("retention waits for the database: %s", error)

    async def step(self) -> int:
        """Remove everything that is old by now; returns how many rows."""
        now_us, database = self._clock.now_us(), self._database
        keys = await _all(lambda: forget_old(database, before_us=now_us - REQUESTS_KEPT_US))
        moves = await _all(lambda: forget_old_moves(database, before_us=now_us - MOVES_KEPT_US))
        if keys or moves:
            log.info("removed %d idempotency keys older than 7 days, %d moves older than 30 days", keys, moves)
        return keys + moves


async def _all(chunk: Callable[[], Awaitable[int]]) -> int:
    """Remove chunk after chunk until nothing is left; returns how many rows."""
    removed = 0
    while found := await chunk():
        removed += found
    return removed
