"""The progress loop: finished buckets are closed behind us.

In order: floors rise to the present bucket (every bucket below has ended by the database's clock), then a scan with a
new snapshot looks below them, then the watermarks follow to the first live row (rule of ownership 3). Beside that,
open runs that got old are made to stand in open_runs, and the open-from mark passes them. It never passes a run that
memory may have missed: after the next adoption nobody would find that run again.

While a shard is in two hands, the owner before the boundary alone finishes buckets, and does it promptly once the
boundary has passed; the open-from mark rests until one memory holds every open run again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from core.buckets import NO_END
from core.errors import OutcomeUnknown, Unavailable
from core.handoff import TICK_S
from core.store.discovery import BucketRange, Discovery
from core.store.marks import MarkKeeper, Raise, Raised
from core.store.open_runs import OpenRuns
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm, Key
from dispatcher.runtime import Memory, OpenInMemory, Runtime

log = logging.getLogger(__name__)

_STEP_S = 1.0
_LAST_FLOOR, _LAST_WATERMARK = "last_floor", "last_watermark"
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
        clock, step_s = self._runtime.clock, min(_STEP_S, self._runtime.scale.width_ms / 2000)
        stood_s = float("-inf")
        while True:
            try:
                if not clock.holding:
                    await self.finish_buckets()
                    if clock.monotonic_s() >= stood_s + step_s:
                        stood_s = clock.monotonic_s()
                        await self.stand_old_runs()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("progress waits for the database: %s", error)
                await clock.sleep(TICK_S)
            await self._memory.wakes.progress.wait(clock, self._sleep_s(step_s))

    def _sleep_s(self, step_s: float) -> float:
        """Until the next step, or the next boundary at which a range of ours is to be finished."""
        ends = [h.to_bucket for h in self._acting() if h.to_bucket != NO_END and h.watermark < h.to_bucket]
        if not ends:
            return step_s
        left_us = self._runtime.scale.start_us(min(ends)) - self._runtime.clock.now_us()
        return min(step_s, max(TICK_S, left_us / 1_000_000))

    async def finish_buckets(self) -> None:
        """Raise floors over ended buckets, then watermarks over empty ones."""
        current = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        targets = {h.key: min(current, h.to_bucket) for h in self._acting() if self._finishes(h)}
        raises = [
            Raise(h.shard, h.term, h.floor, targets[h.key])
            for h in self._acting()
            if h.key in targets and h.from_bucket <= h.floor < targets[h.key]
        ]
        if raises:
            last = await self._pass_last("owner.before_", _LAST_FLOOR, raises)
            done = await self._raise(raises, "floor")
            for shard, term in done.keys:
                for held in self._memory.holdings.of_shard(shard):
                    held.floor = max(held.floor, targets[shard, term])
            if last:
                await self._pass_last("owner.after_", _LAST_FLOOR, raises)
        await self._follow_with_watermarks()

    def _finishes(self, held: HeldTerm) -> bool:
        """Whether it is for this term to finish its buckets: not while the range before it is open."""
        handoff = self._memory.handoffs.get(held.shard)
        return handoff is None or handoff.after.key != held.key

    async def _pass_last(self, place: str, step: str, raises: list[Raise]) -> bool:
        """Pass the failpoint of a mark that reaches the end of its range; whether any does."""
        ends = {h.key: h.to_bucket for h in self._acting()}
        last = any(r.new == ends.get((r.shard, r.term)) for r in raises)
        if last:
            await self._runtime.pass_by(place + step)
        return last

    async def _follow_with_watermarks(self) -> None:
        behind = [h for h in self._acting() if h.from_bucket <= h.watermark < min(h.floor, h.to_bucket)]
        behind = [h for h in behind if self._finishes(h)]
        if not behind:
            return
        ranges = [BucketRange(h.shard, h.watermark, min(h.floor, h.to_bucket)) for h in behind]
        lowest = await self._discovery.lowest(ranges)
        targets = {h.key: min(lowest.get(h.shard, _NO_ROW), h.floor, h.to_bucket) for h in behind}
        raises = [Raise(h.shard, h.term, h.watermark, targets[h.key]) for h in behind if targets[h.key] > h.watermark]
        if raises:
            last = await self._pass_last("owner.before_", _LAST_WATERMARK, raises)
            done = await self._raise(raises, "watermark")
            for shard, term in done.keys:
                for held in self._memory.holdings.of_shard(shard):
                    held.watermark = max(held.watermark, targets[shard, term])
            if last:
                await self._pass_last("owner.after_", _LAST_WATERMARK, raises)
                self._memory.wakes.handoff.set()

    async def stand_old_runs(self) -> None:
        """Make open runs older than the bound stand in open_runs, then raise the open-from marks past them."""
        bound_us = self._runtime.clock.now_us() - round(self._runtime.settings.stand_after_s * 1_000_000)
        passing = [h for h in self._acting() if h.whole and h.open_from_us < bound_us and self._is_one_hand(h)]
        if not passing:
            return
        for held in passing:
            # From here on runs that are made older than the bound stand from their birth.
            held.stand_before_us = max(held.stand_before_us, bound_us)
        if self.quiet is not None:
            await self.quiet()  # what was planned before that is in memory now
        old = [r for r in self._memory.open_runs() if not r.stands_open and r.scheduled_for_us < bound_us]
        # Under a term that was dropped nothing can be made to stand; the run may be at home in the one that passes.
        stray = {r.shard for r in old if self._memory.holdings.get((r.shard, r.term)) is None}
        keys = {h.key for h in passing if h.shard not in stray}
        old = [r for r in old if (r.shard, r.term) in keys]
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(old), limit):
            keys -= await self._stand(old[start : start + limit])
        passed = [h for h in self._acting() if h.key in keys and h.whole]
        if passed:
            await self._raise_open_from(passed, bound_us)

    def _is_one_hand(self, held: HeldTerm) -> bool:
        return held.to_bucket == NO_END and held.shard not in self._memory.handoffs

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
        unmoved = [r.shard for r in raises if (r.shard, r.term) in done.fences.keys() - done.keys]
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
