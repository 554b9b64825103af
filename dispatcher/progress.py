"""The progress loop: finished buckets are closed behind us.

In order: floors rise to the present bucket (every bucket below has ended by the database's clock), then a scan with a
new snapshot looks below them, then the watermarks follow to the first live row (rule of ownership 3). Beside that,
open runs that got old are made to stand in open_runs, and the open-from mark passes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from core.errors import OutcomeUnknown, Unavailable
from core.store.discovery import BucketRange, Discovery
from core.store.leases import Leases
from core.store.marks import MarkKeeper, Raise, Raised
from core.tasks import Wake
from core.telemetry.metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm, Key
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, RestingRun, Runtime

log = logging.getLogger(__name__)

_STEP_S = 1.0
# Above every bucket: a range without a live row.
_NO_ROW = 2**62

OpenInMemory = LiveAttempt | WaitingRun | RestingRun


class ProgressLoop:
    """Raises floors, watermarks and open-from marks of the held terms."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        marks: MarkKeeper,
        discovery: Discovery,
        leases: Leases,
        watch: FenceWatch,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._marks = marks
        self._discovery = discovery
        self._leases = leases
        self._watch = watch

    async def run(self) -> None:
        """For ever, about once a second or once a bucket, whichever is shorter."""
        wake = Wake()
        step_s = min(_STEP_S, self._runtime.scale.width_ms / 2000)
        while True:
            try:
                if not self._runtime.clock.holding:
                    await self.finish_buckets()
                    await self.stand_old_runs()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("progress waits for the database: %s", error)
            await wake.wait(self._runtime.clock, step_s)

    async def finish_buckets(self) -> None:
        """Raise floors over ended buckets, then watermarks over empty ones."""
        current = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        floors = {h.key: min(current, h.to_bucket) for h in self._acting()}
        raises = [
            Raise(h.shard, h.term, h.floor, floors[h.key])
            for h in self._acting()
            if h.key in floors and h.from_bucket <= h.floor < floors[h.key]
        ]
        if raises:
            done = await self._raise(raises, "floor")
            for held in self._acting():
                if held.shard in done.shards and held.key in floors:
                    held.floor = max(held.floor, floors[held.key])
        await self._follow_with_watermarks()

    async def _follow_with_watermarks(self) -> None:
        behind = [h for h in self._acting() if h.from_bucket <= h.watermark < min(h.floor, h.to_bucket)]
        if not behind:
            return
        ranges = [BucketRange(h.shard, h.watermark, min(h.floor, h.to_bucket)) for h in behind]
        lowest = await self._discovery.lowest(ranges)
        targets = {h.key: min(lowest.get(h.shard, _NO_ROW), h.floor, h.to_bucket) for h in behind}
        raises = [Raise(h.shard, h.term, h.watermark, targets[h.key]) for h in behind if targets[h.key] > h.watermark]
        if raises:
            done = await self._raise(raises, "watermark")
            for held in behind:
                if held.shard in done.shards:
                    held.watermark = max(held.watermark, targets[held.key])

    async def stand_old_runs(self) -> None:
        """Make open runs older than the bound stand in open_runs, then raise the open-from marks past them."""
        bound_us = self._runtime.clock.now_us() - round(self._runtime.settings.stand_after_s * 1_000_000)
        keys = {h.key for h in self._acting() if h.adopted and h.open_from_us < bound_us}
        if not keys:
            return
        old = [r for r in self._open_runs() if not r.stands_open and r.scheduled_for_us < bound_us]
        old = [r for r in old if (r.shard, r.term) in keys]
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(old), limit):
            keys -= await self._stand(old[start : start + limit])
        held = [h for h in self._acting() if h.key in keys]
        if held:
            done = await self._raise([Raise(h.shard, h.term, h.open_from_us, bound_us) for h in held], "open-from")
            for each in held:
                if each.shard in done.shards:
                    each.open_from_us = max(each.open_from_us, bound_us)

    async def _stand(self, runs: list[OpenInMemory]) -> set[Key]:
        sent_s = self._runtime.clock.monotonic_s()
        seen = await self._leases.stand([(r.shard, r.term, r.job_id, r.run_id) for r in runs])
        refused = self._watch.note([(r.shard, r.term) for r in runs], seen, sent_s=sent_s, kind=RefusedWrite.STAND)
        for run in runs:
            run.stands_open = True
        return refused

    def _open_runs(self) -> Iterator[OpenInMemory]:
        yield from self._memory.attempts
        yield from self._memory.routes.waiting_runs()
        yield from self._memory.resting.values()

    async def _raise(self, raises: list[Raise], mark: str) -> Raised:
        write = {
            "floor": self._marks.raise_floors,
            "watermark": self._marks.raise_watermarks,
            "open-from": self._marks.raise_open_from,
        }[mark]
        sent_s = self._runtime.clock.monotonic_s()
        done = await write(raises)
        self._watch.note([(r.shard, r.term) for r in raises], done.fences, sent_s=sent_s, kind=RefusedWrite.MARK)
        return done

    def _acting(self) -> list[HeldTerm]:
        return [h for h in self._memory.holdings if h.acting]
