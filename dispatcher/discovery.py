"""The discovery loop: due rows of the held ranges come into memory before their time.

Each pass reads from the watermark up to the end of the coming bucket, never from a cursor (rule of ownership 4). A pass
runs at every tick, and at once over the shards in which a row is known to have landed. The more rows a shard holds
ahead, the more rarely the tick alone reads it again, at most half a bucket apart, so that the cost of ticking does not
grow with what is due: with 20,000 rows ahead, reading all of them four times a second took a third of the dispatcher.

A shard in two hands is read every 50 ms: either owner may land a row that the other one has to find.
"""

from __future__ import annotations

import logging

from core.errors import OutcomeUnknown, Unavailable
from core.handoff import TICK_S
from core.store.discovery import BucketRange, Discovery
from core.telemetry.dispatcher_metrics import Stage
from core.telemetry.health import Pulse
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# A shard with so many rows in its window is read at every tick; with twice as many at every second one, and so on.
_ROWS_PER_TICK = 50


class DiscoveryLoop:
    """Scans for due rows. `last_pass_s` is when the last whole pass began, `tried_s` when one last ended at all."""

    def __init__(self, runtime: Runtime, memory: Memory, discovery: Discovery) -> None:
        self._runtime = runtime
        self._memory = memory
        self._discovery = discovery
        self.last_pass_s = self.tried_s = runtime.clock.monotonic_s()
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
            self.tried_s = self._runtime.clock.monotonic_s()
            tick_s = self._runtime.settings.tick_s
            await self._memory.wakes.discover.wait(
                self._runtime.clock, min(tick_s, TICK_S) if self._memory.handoffs else tick_s
            )

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
            self._next_read_s[each.shard] = began_s + self._rest_s(each.shard, scan.seen.get(each.shard, 0))
        if found:
            now_us = self._runtime.clock.now_us()
            late_us = [now_us - row.due_at_us for row in rows if row.due_at_us <= now_us]
            self._runtime.metrics.lateness(Stage.DISCOVER, late_us)
            self._memory.wakes.fire.set()
            # Who takes a shard over at a boundary has not met its jobs yet: the first rows beyond it must not wait.
            await self._memory.jobs.load((r.job_id, r.job_version) for r in rows if r.shard in self._memory.handoffs)

    def _rest_s(self, shard: int, rows: int) -> float:
        ticks, tick_s = rows // _ROWS_PER_TICK, self._runtime.settings.tick_s
        handoffs = self._memory.handoffs
        if shard in handoffs:
            tick_s = min(tick_s, TICK_S)
        elif handoffs:  # passes come for the sake of others now
            ticks = max(ticks, 1)
        return min(ticks * tick_s, self._runtime.scale.width_ms / 2000)

    def _ranges(self) -> list[BucketRange]:
        current = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        ranges = []
        for held in self._memory.holdings:
            low = max(held.watermark, held.from_bucket)
            high = min(held.to_bucket, max(held.floor, current) + 2)
            if held.acting and low < high:
                ranges.append(BucketRange(held.shard, low, high))
        return ranges
