"""The discovery loop: due rows of the held ranges come into memory before their time.

Each pass reads from the watermark up to the end of the coming bucket, never from a cursor (rule of ownership 4). A pass
runs at every tick, and at once over the shards in which a row is known to have landed. A shard that holds many rows is
read again only once a second by the tick alone: with 20,000 rows ahead, reading them all four times a second took a
third of the dispatcher's time.
"""

from __future__ import annotations

import logging

from core.errors import OutcomeUnknown, Unavailable
from core.store.discovery import BucketRange, Discovery
from core.telemetry.health import Pulse
from core.telemetry.metrics import Stage
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# Above so many rows in its window a shard is read again at this interval, unless a hint asks for it.
_MANY_ROWS = 200
_MANY_ROWS_INTERVAL_S = 1.0


class DiscoveryLoop:
    """Scans for due rows. `last_pass_s` is when the last whole pass began, for readiness."""

    def __init__(self, runtime: Runtime, memory: Memory, discovery: Discovery) -> None:
        self._runtime = runtime
        self._memory = memory
        self._discovery = discovery
        self.last_pass_s = runtime.clock.monotonic_s()
        self._pulse: Pulse | None = None
        self._next_read_s: dict[int, float] = {}

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
        """One pass over the held ranges whose turn it is."""
        began_s = self._runtime.clock.monotonic_s()
        landed = set(self._memory.landed)
        self._memory.landed.clear()
        ranges = [r for r in self._ranges() if r.shard in landed or self._next_read_s.get(r.shard, 0.0) <= began_s]
        if ranges:
            try:
                await self._read(ranges, began_s)
            except BaseException:
                self._memory.landed.update(landed)
                raise
        self.last_pass_s = began_s
        if self._pulse is not None:
            self._pulse.beat()

    async def _read(self, ranges: list[BucketRange], began_s: float) -> None:
        agenda, rows = self._memory.agenda, []
        agenda.begin_scan()
        try:
            scan = await self._discovery.scan(
                ranges, limit_per_shard=self._runtime.settings.scan_limit_per_shard, known=agenda.knows
            )
            rows = scan.rows
        finally:
            found = agenda.end_scan(rows)
        for each in ranges:
            many = scan.seen.get(each.shard, 0) > _MANY_ROWS
            self._next_read_s[each.shard] = began_s + (_MANY_ROWS_INTERVAL_S if many else 0.0)
        if found:
            now_us = self._runtime.clock.now_us()
            late_us = [now_us - row.due_at_us for row in rows if row.due_at_us <= now_us]
            self._runtime.metrics.lateness(Stage.DISCOVER, late_us)
            self._memory.wakes.fire.set()

    def _ranges(self) -> list[BucketRange]:
        current = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        ranges = []
        for held in self._memory.holdings:
            low = max(held.watermark, held.from_bucket)
            high = min(held.to_bucket, max(held.floor, current) + 2)
            if held.acting and low < high:
                ranges.append(BucketRange(held.shard, low, high))
        return ranges
