"""Loads: smoothed, kept over a change of owner, forgotten when nobody confirms them; nonsense is passed over."""

from __future__ import annotations

import pytest

from controlplane.loads import COST_OF_A_SHARD, NO_LOADS, Loads
from core.wire import internal_pb2 as pb
from tests.support.clock import ManualClock


def report(name: str, *loads: pb.ShardLoad, cpu: float = 0.0) -> pb.DispatcherReport:
    return pb.DispatcherReport(dispatcher_id=name, loads=loads, cpu=cpu)


def load(shard: int, fires: float, open_runs: int = 0, *, term: int = 1) -> pb.ShardLoad:
    return pb.ShardLoad(shard=shard, term=term, fires_per_second=fires, open_runs=open_runs)


async def test_a_cost_is_a_constant_and_what_is_fired_and_open(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, 3.0, 100), load(1, 0.0)))
    assert loads.view().costs([0, 1]) == {0: 6.0, 1: COST_OF_A_SHARD}


async def test_without_loads_every_shard_costs_the_same_and_the_unknown_cost_as_the_average() -> None:
    assert NO_LOADS.costs([0, 1]) == {0: 1.0, 1: 1.0}
    assert not NO_LOADS.known


async def test_an_unmeasured_shard_is_taken_for_an_average_one(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, 1.0), load(1, 3.0)))
    assert loads.view().costs([2]) == {2: 3.0}


async def test_a_change_shows_in_part_at_once_and_nearly_whole_after_a_minute(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, 0.0), cpu=0.0))
    loads.report(report("a", load(0, 0.0), cpu=0.5))
    seen = []
    for _ in range(60):
        await clock.advance(1)
        loads.report(report("a", load(0, 10.0), cpu=0.5))
        seen.append(loads.view().shards[0].fires_per_second)
    assert 0.5 < seen[0] < 0.8
    assert 6.0 < seen[14] < 6.6
    assert seen[-1] > 9.7
    assert loads.view().cpus["a"] == pytest.approx(0.5, rel=0.05)


async def test_the_owner_before_does_not_speak_against_the_new_one(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, 8.0, term=1)))
    loads.report(report("b", load(0, 0.0, term=2)))
    kept = loads.view().shards[0]
    assert (kept.term, kept.fires_per_second) == (2, 8.0), "not measured yet does not mean idle"
    await clock.advance(1)
    loads.report(report("a", load(0, 99.0, term=1)))
    assert loads.view().shards[0].fires_per_second == 8.0


async def test_what_nobody_confirms_is_forgotten(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, 8.0), cpu=0.3))
    await clock.advance(59)
    assert loads.view().known
    await clock.advance(2)
    assert not loads.view().known
    assert loads.view().cpus == {}


async def test_nonsense_is_passed_over(clock: ManualClock) -> None:
    loads = Loads(clock)
    loads.report(report("a", load(0, float("nan")), load(1, -1.0), load(2, 1.0, -5), cpu=float("inf")))
    loads.report(report("b"))
    assert not loads.view().known
    assert loads.view().cpus == {}
