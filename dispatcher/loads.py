"""What each held shard costs, for the leader's placement: fires, open runs, lag, its hottest jobs; and the processor.

Asked by the reports, about once a second. Fires are counted where they happen (fires.py); everything else is measured
here, from memory alone: no run pays for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock, process_cpu_s
from dispatcher.holdings import HeldTerm
from dispatcher.runtime import Memory

# How many of the jobs of a shard are named.
HOTTEST = 3
# Shards in one report; with more of them, the reports take turns.
SHARDS_A_REPORT = 1_000
# Counting open runs by shard walks over all of them: so many cost about a millisecond.
_RUNS_A_LOOK = 5_000


@dataclass(frozen=True, slots=True)
class HotJob:
    """A job and how many of its due rows were fired a second."""

    job_id: UUID
    fires_per_s: float


@dataclass(frozen=True, slots=True)
class ShardLoad:
    """What one held shard costs. `term` is the newest that is held, `watermark_lag_ms` that of the oldest."""

    shard: int
    term: int
    fires_per_s: float
    open_runs: int
    waiting_runs: int
    watermark_lag_ms: int
    hottest: tuple[HotJob, ...]


class Loads:
    """Measures the held shards, and the share of one processor that this process used."""

    def __init__(
        self, clock: Clock, scale: BucketScale, memory: Memory, cpu_s: Callable[[], float] = process_cpu_s
    ) -> None:
        self._clock = clock
        self._scale = scale
        self._memory = memory
        self._cpu_s = cpu_s
        self._cpu_before_s = cpu_s()
        self._cpu_at_s = clock.monotonic_s()
        self._open: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()
        self._count_again_s = 0.0
        self._next_shard = 0

    def cpu(self) -> float:
        """Processor time over time since the last call; 1.0 is one core."""
        used_s, now_s = self._cpu_s(), self._clock.monotonic_s()
        spent_s, passed_s = used_s - self._cpu_before_s, now_s - self._cpu_at_s
        self._cpu_before_s, self._cpu_at_s = used_s, now_s
        return spent_s / passed_s if passed_s > 0 else 0.0

    def measure(self) -> list[ShardLoad]:
        """The loads of the held shards, by shard; of many shards the next thousand."""
        now_s, now_us = self._clock.monotonic_s(), self._clock.now_us()
        shards = sorted(self._memory.holdings.shards)
        span_s = self._memory.fires.look(now_s, shards)
        self._count_runs(now_s)
        return [self._load(shard, span_s, now_us) for shard in self._turn(shards)]

    def _turn(self, shards: list[int]) -> list[int]:
        if len(shards) <= SHARDS_A_REPORT:
            return shards
        ahead = [shard for shard in shards if shard >= self._next_shard][:SHARDS_A_REPORT]
        self._next_shard = ahead[-1] + 1 if ahead and ahead[-1] != shards[-1] else 0
        return ahead

    def _count_runs(self, now_s: float) -> None:
        if now_s < self._count_again_s:
            return
        memory = self._memory
        self._waiting = Counter(run.shard for run in memory.routes.waiting_runs())
        self._waiting.update(run.shard for run in memory.gates.waiting_runs())
        self._open = Counter(run.shard for run in memory.open_runs())
        self._count_again_s = now_s + self._open.total() / _RUNS_A_LOOK

    def _load(self, shard: int, span_s: float, now_us: int) -> ShardLoad:
        fires, held = self._memory.fires, self._memory.holdings.of_shard(shard)
        return ShardLoad(
            shard,
            max(each.term for each in held),
            fires.of_shard(shard) / span_s,
            self._open[shard],
            self._waiting[shard],
            max(self._lag_ms(each, now_us) for each in held),
            tuple(HotJob(job_id, count / span_s) for job_id, count in fires.hottest(shard, HOTTEST)),
        )

    def _lag_ms(self, held: HeldTerm, now_us: int) -> int:
        watermark = max(held.watermark, held.from_bucket)
        return max(0, now_us - self._scale.start_us(watermark)) // 1000
