"""Takeovers whose leader is in trouble as well: frozen, or killed in the middle; and one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.live_system import LiveSystem, Size, now_us
from tests.support.polling import eventually
from tests.support.steady_load import SteadyLoad, p99
from tools.fleet import Member
from tools.servers.homes import temporary_home

# A takeover keeps to 3 s (p99) and 5 s, without a leader to its election on top: some 6 s more. About three times that.
KILL_LIMIT_S = 15.0
ELECTION_LIMIT_S = 30.0


@pytest.fixture
async def three() -> AsyncIterator[LiveSystem]:
    """Three control planes, three dispatchers, two workers."""
    with temporary_home() as home:
        async with LiveSystem(home, size=Size(control_planes=3, dispatchers=3)) as live:
            yield live


async def _leader(live: LiveSystem) -> Member:
    for plane in live.control_planes:
        if plane.running and await live.metric(plane, "tidewheel_leader") == 1:
            return plane
    raise AssertionError("nobody leads")


async def _taken_over(live: LiveSystem, owner: str) -> None:
    async def has_nothing() -> bool:
        rows = await live.rows("SELECT shard FROM shard_terms WHERE state = 1 AND owner = $1", owner)
        return not rows

    await eventually(has_nothing, within_s=60, what=f"the shards of {owner} are taken over")


async def test_one_death_after_the_other_leaves_the_last_with_everything(three: LiveSystem) -> None:
    load = await SteadyLoad(three, 26).begin()
    await asyncio.sleep(4)
    killed_us = []
    for victim in three.dispatchers[:2]:
        owner = three.owner_id(victim)
        killed_us.append(now_us())
        three.fleet.kill(victim)
        await _taken_over(three, owner)
        await asyncio.sleep(2)
    await load.judge(within_s=90)
    calm, after = load.late_s(until_us=killed_us[0]), load.late_s(from_us=killed_us[0])
    print(f"p99 lateness: undisturbed {p99(calm):.3f} s, with two deaths {p99(after):.3f} s, worst {after[-1]:.3f} s")
    assert after[-1] < KILL_LIMIT_S
    survivor = three.dispatchers[2]
    assert len(await three.owned_shards(survivor)) == 16


async def test_a_dispatcher_dies_while_the_leader_is_frozen(three: LiveSystem) -> None:
    load = await SteadyLoad(three, 26).begin()
    leader = await eventually(lambda: _leader(three), within_s=20, what="somebody leads")
    await asyncio.sleep(2)
    leader.child.freeze()
    try:
        victim = three.dispatchers[0]
        owner = three.owner_id(victim)
        three.fleet.kill(victim)
        await _taken_over(three, owner)
        others = [plane for plane in three.control_planes if plane is not leader]

        async def one_leads() -> bool:
            return sum([await three.metric(plane, "tidewheel_leader") for plane in others]) == 1

        await eventually(one_leads, within_s=30, what="the next leader, who did it, leads")
    finally:
        leader.child.thaw()

    async def stepped_down() -> bool:
        return await three.metric(leader, "tidewheel_leader") == 0

    await eventually(stepped_down, within_s=60, what="the frozen one learns that it leads no more")
    await load.judge(within_s=90)
    assert load.late_s()[-1] < ELECTION_LIMIT_S


async def test_the_leader_is_killed_in_the_middle_of_a_takeover(three: LiveSystem) -> None:
    load = await SteadyLoad(three, 26).begin()
    leader = await eventually(lambda: _leader(three), within_s=20, what="somebody leads")
    await asyncio.sleep(2)
    victim = three.dispatchers[0]
    owner = three.owner_id(victim)
    three.fleet.kill(victim)
    await eventually(
        lambda: f"{owner} is to lose its shards" in leader.child.log.read_text(), within_s=30, what="it is suspected"
    )
    three.fleet.kill(leader)
    await _taken_over(three, owner)
    await load.judge(within_s=90)
    assert load.late_s()[-1] < ELECTION_LIMIT_S
