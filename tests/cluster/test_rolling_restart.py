"""Every dispatcher ended and started anew, one after the other, under load: nothing is lost and nothing delayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.live_system import LiveSystem, Size, now_us
from tests.support.polling import eventually
from tests.support.steady_load import SteadyLoad, p99
from tools.servers.homes import temporary_home

CALM_S = 8
# The goal of the drain of a third of all shards is 15 s, and the product's own limit is dispatcher.drain_limit_s.
DRAINED_WITHIN_S = 45.0
# The benchmark aims at 50 ms above the undisturbed p99. Here it is about three times that p99, but at least this much.
FLOOR_S = 3.0
# What rebalancing has moved may be moved again soon, by three restarts in a row as by three in an hour.
_MOVABLE = {"TIDEWHEEL_CONTROLPLANE_MIN_RESIDENCY_S": "1.0", "TIDEWHEEL_CONTROLPLANE_REBALANCE_INTERVAL_S": "2.0"}
# No attempt is to be lost here, not for a busy machine either.
_CALM = {"TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "15.0", "TIDEWHEEL_DISPATCHER_DRAIN_LIMIT_S": "40.0"}


@pytest.fixture
async def three() -> AsyncIterator[LiveSystem]:
    """Two control planes, three dispatchers, two workers."""
    with temporary_home() as home:
        async with LiveSystem(home, {**_MOVABLE, **_CALM}, Size(dispatchers=3)) as live:
            yield live


async def test_a_rolling_restart_of_all_dispatchers_loses_and_delays_nothing(three: LiveSystem) -> None:
    load = await SteadyLoad(three, 110).begin()
    settled_us = now_us() + 3_000_000
    await asyncio.sleep(3 + CALM_S)
    began_us = now_us()
    for number, old in enumerate(list(three.dispatchers), start=1):
        old_id = three.owner_id(old)
        await _end(three, old.name)
        assert not await three.rows("SELECT shard FROM shard_terms WHERE state = 1 AND owner = $1", old_id)
        three.dispatchers[three.dispatchers.index(old)] = three.fleet.start_dispatcher(f"dispatcher-new-{number}")
        await _serves(three, number)
    ended_us = now_us()
    await load.judge(within_s=90)
    taken = await three.rows("SELECT count(*) AS n FROM shard_term_events WHERE reason = 'takeover' AND event = 'open'")
    calm, restarts = load.late_s(settled_us, began_us), load.late_s(began_us, ended_us)
    print(
        f"p99 lateness: undisturbed {p99(calm):.3f} s, during the restarts {p99(restarts):.3f} s, worst"
        f" {restarts[-1]:.3f} s, in {(ended_us - began_us) / 1e6:.0f} s; {taken[0]['n']} takeovers"
    )
    repeated = [start for start in three.starts() if start.attempt > 1]
    assert not repeated, "no attempt was lost on the way"
    assert p99(restarts) < max(3 * p99(calm), FLOOR_S)


async def _end(live: LiveSystem, name: str) -> None:
    """SIGTERM, as an operator's restart sends it; it hands off what it has, and exits with 0."""
    member = next(each for each in live.dispatchers if each.name == name)
    live.fleet.members.remove(member)
    member.child.process.terminate()
    code = await asyncio.to_thread(member.child.process.wait, DRAINED_WITHIN_S)
    assert code == 0, member.child.log.read_text()[-2_000:]


async def _serves(live: LiveSystem, number: int) -> None:
    """The new one has joined, has workers and shards: the next may go."""
    member = next(each for each in live.dispatchers if each.name == f"dispatcher-new-{number}")

    async def has_shards() -> bool:
        return bool(await live.owned_shards(member)) and await live.metric(member, "tidewheel_connected_workers") == 2

    await eventually(has_shards, within_s=60, what=f"{member.name} has shards and workers")
