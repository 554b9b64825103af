"""Campaigns for the leadership for as long as the process lives, and has the leader's duties done while it holds.

An etcd that is away is waited out by the port itself. What a lost leadership leaves behind is nothing: each tenure
begins from what SQL and etcd say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from core.clock import Clock
from core.coord.layout import LeaderInfo
from core.coord.ports import LeaderCoord, Leadership
from core.errors import TidewheelError

log = logging.getLogger(__name__)

_PAUSE_S = 0.1
_RESIGN_LIMIT_S = 2.0


class Campaign:
    """Runs `lead` in every tenure of this replica."""

    def __init__(
        self, coord: LeaderCoord, info: LeaderInfo, clock: Clock, lead: Callable[[Leadership], Awaitable[None]]
    ) -> None:
        self._coord = coord
        self._info = info
        self._clock = clock
        self._lead = lead

    async def run(self) -> None:
        """For ever; a cancel while leading resigns, so that the next leader need not wait for the lease."""
        while True:
            leadership = await self._coord.campaign(self._info)
            log.info("%s leads (election revision %d)", self._info.replica_id, leadership.term_revision)
            try:
                await self._lead(leadership)
            finally:
                await self._resign(leadership)
            await self._clock.sleep(_PAUSE_S)

    async def _resign(self, leadership: Leadership) -> None:
        if not leadership.valid:
            return
        try:
            async with asyncio.timeout(_RESIGN_LIMIT_S):
                await self._coord.resign(leadership)
        except (TidewheelError, TimeoutError) as error:
            log.info("the leadership could not be given up (%s); it ends with the lease", error or "no answer")
