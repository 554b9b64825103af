"""The discovery loop: due rows of the held ranges come into memory before their time.

Each pass reads from the watermark up to the end of the coming bucket, never from a cursor (rule of ownership 4). It
runs at every tick and at once when a row is known to have landed.
"""

from __future__ import annotations

import logging

from core.errors import OutcomeUnknown, Unavailable
from core.store.discovery import BucketRange, Discovery
from core.telemetry.health import Pulse
from core.telemetry.metrics import Stage
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)


class DiscoveryLoop:
    """Scans for due rows. `last_pass_s` is when the last whole pass began, for readiness."""

    def __init__(self, runtime: Runtime, memory: Memory, discovery: Discovery) -> None:
        self._runtime = runtime
        self._memory = memory
        self._discovery = discovery
        self.last_pass_s = runtime.clock.monotonic_s()
        self._pulse: Pulse | None = None

    def watch(self, pulse: Pulse) -> None:
        """Let readiness follow this loop."""
        self._pulse = pulse

    async def run(self) -> None:
        """For ever: scan, then wait for a hint or the tick."""
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("discovery waits for the database: %s", error)
            await self._memory.wakes.discover.wait(self._runtime.clock, self._runtime.settings.tick_s)

    async def step(self) -> None:
        """One pass over all held ranges."""
        began_s = self._runtime.clock.monotonic_s()
        ranges = self._ranges()
        if ranges:
            limit = self._runtime.settings.scan_limit_per_shard
            self._memory.agenda.begin_scan()
            rows = []
            try:
                rows = await self._discovery.scan(ranges, limit_per_shard=limit)
            finally:
                found = self._memory.agenda.end_scan(rows)
            if found:
                now_us = self._runtime.clock.now_us()
                self._runtime.metrics.lateness(
                    Stage.DISCOVER, [now_us - r.due_at_us for r in rows if r.due_at_us <= now_us]
                )
                self._memory.wakes.fire.set()
        self.last_pass_s = began_s
        if self._pulse is not None:
            self._pulse.beat()

    def _ranges(self) -> list[BucketRange]:
        current = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        ranges = []
        for held in self._memory.holdings:
            low = max(held.watermark, held.from_bucket)
            high = min(held.to_bucket, max(held.floor, current) + 2)
            if held.acting and low < high:
                ranges.append(BucketRange(held.shard, low, high))
        return ranges
