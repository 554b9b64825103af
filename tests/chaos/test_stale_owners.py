"""Owners that stand still while others take over: what they say when they go on is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.support.chaos_system import ChaosSystem
from tests.support.history_check import hold
from tests.support.live_system import US
from tests.support.polling import eventually
from tools.servers.homes import temporary_home


async def test_row_3_a_dispatcher_that_stood_still_over_a_takeover_is_refused() -> None:
    with temporary_home() as home:
        await _stand_still(home)


async def _stand_still(home: Path) -> None:
    async with ChaosSystem(home) as chaos:
        load = chaos.load(Random(1), seconds=20)
        await load.register(steady=60, busy=4)
        trouble = asyncio.create_task(load.trouble(chaos.horizon_us - 8 * US))
        await asyncio.sleep(2)
        victim = chaos.watched[0]
        chaos.freeze(victim)
        await eventually(chaos.all_owned, within_s=30, what="the others take its shards over")
        await asyncio.sleep(1)
        chaos.thaw(victim)
        await trouble
        hold(await chaos.history(), refused_writes=chaos.refused_writes)
