"""The progress loop: finished buckets are closed behind us.

In order: floors rise to the present bucket (every bucket below has ended by the database's clock), then a scan with a
new snapshot looks below them, then the watermarks follow to the first live row (rule of ownership 3). Beside that,
open runs that got old are made to stand in open_runs, and the open-from mark passes them. It never passes a run that
memory may have missed: after the next adoption nobody would find that run again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from core.errors import OutcomeUnknown, Unavailable
from core.store.discovery import BucketRange, Discovery
from core.store.marks import MarkKeeper, Raise, Raised
from core.store.open_runs import OpenRuns
from core.tasks import Wake
from core.telemetry.metrics import RefusedWrite
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm, Key
from dispatcher.runtime import Memory, OpenInMemory, Runtime

log = logging.getLogger(__name__)

_STEP_S = 1.0
# Above every bucket: a range without a live row.
_NO_ROW = 2**62


class ProgressLoop:
    """Raises floors, watermarks and open-from marks of the held terms."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        marks: MarkKeeper,
        discovery: Discovery,
        open_runs: OpenRuns,
        watch: FenceWatch,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._marks = marks
        self._discovery = discovery
        self._open_runs = open_runs
        self._watch = watch
        # Waits until no batch of the due loop is under way; set when the loops are built.
        self.quiet: Callable[[], Awaitable[None]] | None = None

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
        passing = [h for h in self._acting() if h.whole and h.open_from_us < bound_us]
        if not passing:
            return
        for held in passing:
            # From here on runs that are made older than the bound stand from their birth.
            held.stand_before_us = max(held.stand_before_us, bound_us)
        if self.quiet is not None:
            await self.quiet()  # what was planned before that is in memory now
        keys = {h.key for h in passing}
        old = [r for r in self._memory.open_runs() if not r.stands_open and r.scheduled_for_us < bound_us]
        old = [r for r in old if (r.shard, r.term) in keys]
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(old), limit):
            keys -= await self._stand(old[start : start + limit])
        passed = [h for h in self._acting() if h.key in keys and h.whole]
        if passed:
            await self._raise_open_from(passed, bound_us)

    async def _raise_open_from(self, passed: list[HeldTerm], bound_us: int) -> None:
        done = await self._raise([Raise(h.shard, h.term, h.open_from_us, bound_us) for h in passed], "open-from")
        for held in passed:
            if held.shard in done.shards:
                held.open_from_us = max(held.open_from_us, bound_us)

    async def _stand(self, runs: list[OpenInMemory]) -> set[Key]:
        sent_s = self._runtime.clock.monotonic_s()
        seen = await self._open_runs.stand([(r.shard, r.term, r.job_id, r.run_id) for r in runs])
        refused = self._watch.note([(r.shard, r.term) for r in runs], seen, sent_s=sent_s, kind=RefusedWrite.STAND)
        for run in runs:
            run.stands_open = True
        return refused

    async def _raise(self, raises: list[Raise], mark: str) -> Raised:
        write = {
            "floor": self._marks.raise_floors,
            "watermark": self._marks.raise_watermarks,
            "open-from": self._marks.raise_open_from,
        }[mark]
        sent_s = self._runtime.clock.monotonic_s()
        done = await write(raises)
        self._watch.note([(r.shard, r.term) for r in raises], done.fences, sent_s=sent_s, kind=RefusedWrite.MARK)
        unmoved = [r.shard for r in raises if (r.shard, r.term) in done.fences and r.shard not in done.shards]
        if unmoved:
            await self._read_marks(unmoved)
        return done

    async def _read_marks(self, shards: list[int]) -> None:
        """A mark stands elsewhere than memory believed (a raise whose answer was lost, say): believe what stands."""
        for shard, marks in (await self._marks.read(shards)).items():
            for held in self._memory.holdings.of_shard(shard):
                held.floor, held.watermark, held.open_from_us = marks.floor, marks.watermark, marks.open_from_us
                held.stand_before_us = max(held.stand_before_us, marks.open_from_us)

    def _acting(self) -> list[HeldTerm]:
        return [h for h in self._memory.holdings if h.acting]
