"""How many due rows were fired lately, by shard and job: counted by the due loop, read by loads.py. No I/O.

It costs two increments a row. Memory is bounded: of the jobs of a shard only those that may be the hottest are
remembered by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from core.store.discovery import DueRow

# Rates are over the present window and the whole one before it.
WINDOW_S = 5.0


class JobCounts:
    """Counts by job, of at most `limit` jobs: a Misra-Gries summary, thinned out when it is full.

    A job with more than about 2/limit of all counts is never lost, and no count is too high.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._counts: dict[UUID, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, job_id: UUID) -> None:
        counts = self._counts
        counts[job_id] = counts.get(job_id, 0) + 1
        if len(counts) > self._limit:
            self._thin_out()

    def items(self) -> Iterable[tuple[UUID, int]]:
        return self._counts.items()

    def _thin_out(self) -> None:
        """Take the median off every count: the lower half goes, so that this is paid once in many counts."""
        median = sorted(self._counts.values())[len(self._counts) // 2]
        self._counts = {job_id: count - median for job_id, count in self._counts.items() if count > median}


class _ShardFires:
    __slots__ = ("before", "jobs", "jobs_before", "now")

    def __init__(self) -> None:
        self.now = self.before = 0
        self.jobs, self.jobs_before = JobCounts(), JobCounts()

    def turn(self) -> None:
        self.before, self.now = self.now, 0
        self.jobs_before, self.jobs = self.jobs, JobCounts()


class FireCounts:
    """Due rows that were consumed, by shard and job, over the present window and the one before."""

    def __init__(self) -> None:
        self.total = 0
        self._shards: dict[int, _ShardFires] = {}
        self._began_s: float | None = None
        self._span_before_s = 0.0

    def count(self, rows: Iterable[DueRow]) -> None:
        """Rows that a statement consumed."""
        shards = self._shards
        for row in rows:
            fires = shards.get(row.shard)
            if fires is None:
                fires = shards[row.shard] = _ShardFires()
            fires.now += 1
            fires.jobs.add(row.job_id)
            self.total += 1

    def look(self, now_s: float, held: Iterable[int]) -> float:
        """To be called before rates are asked for: turns the windows, forgets shards that are not held.

        Returns the seconds that the counts are about, never less than one.
        """
        if self._began_s is None:
            self._began_s = now_s - 1.0
        span_s = now_s - self._began_s
        if span_s >= WINDOW_S:
            for fires in self._shards.values():
                fires.turn()
            self._began_s, self._span_before_s, span_s = now_s, span_s, 0.0
            keep = set(held)
            self._shards = {s: f for s, f in self._shards.items() if s in keep or f.before}
        return max(1.0, span_s + self._span_before_s)

    def of_shard(self, shard: int) -> int:
        """Rows fired in the two windows."""
        fires = self._shards.get(shard)
        return 0 if fires is None else fires.now + fires.before

    def hottest(self, shard: int, jobs: int) -> list[tuple[UUID, int]]:
        """The jobs that fired most in the two windows, hottest first."""
        fires = self._shards.get(shard)
        if fires is None:
            return []
        both: Counter[UUID] = Counter()
        for counts in (fires.jobs, fires.jobs_before):
            for job_id, count in counts.items():
                both[job_id] += count
        return both.most_common(jobs)
