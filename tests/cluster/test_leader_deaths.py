"""The leader killed or frozen again and again, under load: no occurrence is lost, and moves and takeovers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.support.live_system import LiveSystem, Size
from tests.support.polling import eventually
from tests.support.steady_load import SteadyLoad, p99
from tools.fleet import Member
from tools.servers.homes import temporary_home

ROUNDS = 4
# A shard may move again soon after it came.
_MOVABLE = {"TIDEWHEEL_CONTROLPLANE_MIN_RESIDENCY_S": "1.0", "TIDEWHEEL_CONTROLPLANE_REBALANCE_INTERVAL_S": "2.0"}
# Who is held up by a busy machine is not taken for dead: that is no error, but here nobody is to be.
_PATIENT = {"TIDEWHEEL_CONTROLPLANE_MISSED_REPORTS": "8", "TIDEWHEEL_CONTROLPLANE_BROKEN_STREAM_GRACE_S": "3.0"}
# What is owned is not delayed by any of it; about three times what a busy machine makes of a second's lateness.
LATE_LIMIT_S = 5.0


@pytest.fixture
async def live() -> AsyncIterator[LiveSystem]:
    """Three control planes, two dispatchers, two workers."""
    with temporary_home() as home:
        async with LiveSystem(home, {**_MOVABLE, **_PATIENT}, Size(control_planes=3)) as system:
            yield system


async def _leader(live: LiveSystem) -> Member:
    """The one that leads and is not frozen."""
    for plane in live.control_planes:
        with suppress(OSError, AssertionError):
            if await live.metric(plane, "tidewheel_leader") == 1:
                return plane
    raise AssertionError("nobody leads")


async def test_b67_the_leader_dies_again_and_again_and_everything_goes_on(live: LiveSystem) -> None:
    """Case B67: after a re-election nothing was scheduled any more."""
    load = await SteadyLoad(live, 70).begin()
    leaders = []
    for number in range(ROUNDS):
        leader = await eventually(lambda: _leader(live), within_s=60, what="somebody leads")
        leaders.append(leader.name)
        live.control_planes.remove(leader)
        live.fleet.kill(leader)
        # At the address that clients and workers know.
        port = int(leader.address.rpartition(":")[2])
        live.control_planes.append(live.fleet.start_control_plane(f"controlplane-new-{number}", port=port))
        await asyncio.sleep(1)
    assert len(set(leaders)) == ROUNDS, "each time another one led"
    # Who leads now does a leader's work: one dispatcher joins and gets shards, another dies and loses its own.
    joined = live.fleet.start_dispatcher("dispatcher-3")
    live.dispatchers.append(joined)
    await eventually(lambda: _has_shards(live, joined), within_s=60, what="who joins gets shards")
    victim = live.dispatchers[0]
    victim_id = live.owner_id(victim)
    live.fleet.kill(victim)
    await eventually(lambda: _has_none(live, victim_id), within_s=60, what="who dies loses its shards")
    await load.judge(within_s=90)
    print(f"p99 lateness {p99(load.late_s()):.3f} s, worst {load.late_s()[-1]:.3f} s")


async def test_b70_a_frozen_leader_comes_back_to_another_s_plan(live: LiveSystem) -> None:
    """Case B70: a leader that was paused took the lock back, and there were two."""
    load = await SteadyLoad(live, 60).begin()
    for _ in range(2):
        frozen = await eventually(lambda: _leader(live), within_s=60, what="somebody leads")
        frozen.child.freeze()
        others = [plane for plane in live.control_planes if plane is not frozen]

        async def another_leads(others: list[Member] = others) -> bool:
            return sum([await live.metric(plane, "tidewheel_leader") for plane in others]) == 1

        try:
            await eventually(another_leads, within_s=60, what="another one leads")
        finally:
            frozen.child.thaw()

        async def steps_down(frozen: Member = frozen) -> bool:
            return await live.metric(frozen, "tidewheel_leader") == 0

        await eventually(steps_down, within_s=60, what="the frozen one steps down")
        await asyncio.sleep(1)
    taken = await live.rows("SELECT shard FROM shard_term_events WHERE reason = 'takeover'")
    assert not taken, "nobody was taken for dead"
    await load.judge(within_s=90)
    assert load.late_s()[-1] < LATE_LIMIT_S


async def _has_shards(live: LiveSystem, member: Member) -> bool:
    return bool(await live.owned_shards(member))


async def _has_none(live: LiveSystem, owner: str) -> bool:
    return not await live.rows("SELECT shard FROM shard_terms WHERE state = 1 AND owner = $1", owner)
