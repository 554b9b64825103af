"""What each held shard costs: rates over some seconds, open and waiting runs, lag, the hottest jobs, the processor."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.buckets import NO_END, BucketScale
from core.fence import TermRow
from core.states import TermState
from core.store.marks import Marks
from dispatcher.agenda import Agenda
from dispatcher.attempts import Attempts
from dispatcher.fires import WINDOW_S, FireCounts, JobCounts
from dispatcher.gates import Gates
from dispatcher.holdings import Holdings
from dispatcher.loads import SHARDS_A_REPORT, HotJob, Loads
from dispatcher.routes import Routes
from dispatcher.runtime import Memory
from tests.support.clock import ManualClock
from tests.support.dispatcher_parts import due_row, live_attempt, new_id, waiting_run

SCALE = BucketScale(5_000)


class Measured:
    """A memory, and what is measured of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        jobs: Any = None
        self.memory = Memory(Holdings(), Agenda(), jobs, Routes(100_000), Attempts(), Gates(100))
        self.cpu_s = 0.0
        self.loads = Loads(self.clock, SCALE, self.memory, lambda: self.cpu_s)

    def hold(self, shard: int, term: int = 1, *, behind: int = 0, low: int = 0, high: int = NO_END) -> None:
        watermark = SCALE.bucket_of(self.clock.now_us()) - behind
        row = TermRow(shard, term, low, high, "me", TermState.OPEN)
        self.memory.holdings.add(row, Marks(shard, watermark, watermark, 0), proven_s=0.0)

    def fire(self, shard: int, job: UUID, times: int = 1) -> None:
        self.memory.fires.count(due_row(shard=shard, job_id=job) for _ in range(times))


@pytest.fixture
def measured() -> Measured:
    return Measured()


def test_a_shard_is_told_with_its_runs_and_its_lag(measured: Measured) -> None:
    measured.hold(3, term=7, behind=2)
    measured.hold(5)
    for _ in range(4):
        measured.memory.routes.wait(waiting_run(shard=3, term=7))
    measured.memory.attempts.add(live_attempt(shard=3, term=7))
    three, five = measured.loads.measure()
    assert (three.shard, three.term, three.open_runs, three.waiting_runs) == (3, 7, 5, 4)
    assert three.watermark_lag_ms == 10_000
    assert (five.shard, five.open_runs, five.waiting_runs, five.watermark_lag_ms, five.hottest) == (5, 0, 0, 0, ())


async def test_fires_are_a_rate_over_some_seconds_and_fade(measured: Measured) -> None:
    measured.hold(0)
    job = new_id()
    for _ in range(12):
        measured.fire(0, job, 40)
        measured.loads.measure()
        await measured.clock.advance(1.0)
    (load,) = measured.loads.measure()
    assert load.fires_per_s == pytest.approx(40, rel=0.2)
    assert load.hottest == (HotJob(job, load.fires_per_s),)
    for _ in range(3):
        await measured.clock.advance(WINDOW_S)
        (load,) = measured.loads.measure()
    assert (load.fires_per_s, load.hottest) == (0.0, ())


def test_the_three_hottest_jobs_of_a_shard_are_named(measured: Measured) -> None:
    measured.hold(0)
    hot = [new_id() for _ in range(4)]
    for place, job in enumerate(hot):
        measured.fire(0, job, 100 - 10 * place)
    (load,) = measured.loads.measure()
    assert [each.job_id for each in load.hottest] == hot[:3]


def test_a_hot_job_among_many_is_found_with_little_memory() -> None:
    counts, hot, others = JobCounts(limit=64), new_id(), 0
    for number in range(20_000):
        if number % 10 == 0:
            counts.add(hot)
        else:
            others += 1
            counts.add(new_id())
    assert len(counts) <= 64
    assert max(counts.items(), key=lambda item: item[1])[0] == hot
    assert dict(counts.items())[hot] <= 2_000


async def test_what_is_no_longer_held_is_forgotten() -> None:
    clock, fires = ManualClock(), FireCounts()
    fires.count([due_row(shard=1), due_row(shard=2)])
    fires.look(clock.monotonic_s(), [1, 2])
    for _ in range(2):
        await clock.advance(WINDOW_S)
        fires.look(clock.monotonic_s(), [1])
    assert fires.of_shard(2) == 0
    assert fires.total == 2


async def test_a_shard_held_in_two_ranges_is_one_load(measured: Measured) -> None:
    now = SCALE.bucket_of(measured.clock.now_us())
    measured.hold(0, 1, behind=1, high=now + 2)
    measured.hold(0, 2, behind=1, low=now + 2)
    (load,) = measured.loads.measure()
    assert (load.term, load.watermark_lag_ms) == (2, 5_000)


def test_of_many_shards_each_report_tells_the_next_thousand(measured: Measured) -> None:
    for shard in range(SHARDS_A_REPORT + 5):
        measured.hold(shard)
    told = [[load.shard for load in measured.loads.measure()] for _ in range(3)]
    assert told == [list(range(SHARDS_A_REPORT)), list(range(SHARDS_A_REPORT, SHARDS_A_REPORT + 5)), told[0]]


async def test_a_crowd_of_open_runs_is_counted_more_rarely(measured: Measured) -> None:
    measured.hold(0)
    for _ in range(20_000):
        measured.memory.routes.wait(waiting_run())
    assert measured.loads.measure()[0].waiting_runs == 20_000
    measured.memory.routes.wait(waiting_run())
    await measured.clock.advance(1.0)
    assert measured.loads.measure()[0].waiting_runs == 20_000
    await measured.clock.advance(4.0)
    assert measured.loads.measure()[0].waiting_runs == 20_001


async def test_the_processor_s_share_is_since_the_last_question(measured: Measured) -> None:
    await measured.clock.advance(2.0)
    measured.cpu_s = 1.5
    assert measured.loads.cpu() == pytest.approx(0.75)
    await measured.clock.advance(1.0)
    assert measured.loads.cpu() == 0.0
