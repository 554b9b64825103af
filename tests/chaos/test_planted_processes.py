"""The checker finds defects planted into real dispatcher processes (tests/support/planted_process.py)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.support.chaos_system import ChaosSystem
from tests.support.history import report
from tests.support.history_check import judge, names
from tests.support.live_system import Size
from tests.support.planted_process import VARIABLE
from tests.support.polling import eventually
from tools.servers.homes import temporary_home

PLANTED = "tests.support.planted_process"
# A system that is broken on purpose need not come to rest.
REST_WITHIN_S = 6.0


def planted(home: Path, defect: str, dispatchers: int) -> ChaosSystem:
    return ChaosSystem(home, Size(1, dispatchers, 1), dispatcher_environ={VARIABLE: defect}, dispatcher_module=PLANTED)


# What else keeps a frozen owner from harm: it looks at its terms as it wakes, and a takeover cuts the range of a term
# as it closes it, so that what the old owner would fire lies outside.
OTHER_GUARDS = "no_range_check,terms_looked_at_late"
# Longer than a dispatcher in good health may be away from its terms (terms_looked_at_late).
FROZEN_S = 4.0


async def test_a_fence_without_a_look_at_the_term_is_found_when_a_frozen_owner_goes_on() -> None:
    with temporary_home() as home:
        async with planted(home, f"no_term_check,{OTHER_GUARDS}", 2) as chaos:
            load = chaos.load(Random(1), seconds=18)
            await load.register(steady=60, busy=1)
            await asyncio.sleep(1)
            chaos.freeze(chaos.watched[0])
            await asyncio.sleep(FROZEN_S)
            await eventually(chaos.all_owned, within_s=30, what="the other one takes its shards over")
            chaos.thaw(chaos.watched[0])
            found = judge(await chaos.history(within_s=REST_WITHIN_S))
    assert "VALID_TERM" in names(found), report(found)


@pytest.mark.long
async def test_a_name_that_outlives_its_process_is_found() -> None:
    with temporary_home() as home:
        async with planted(home, "named_like_its_host", 1) as chaos:
            load = chaos.load(Random(1), seconds=24)
            await load.register(steady=20, busy=1)
            chaos.kill(chaos.watched[0])
            await asyncio.sleep(5.5)  # as long as a statement of the dead process might be under way, and some
            chaos.start_dispatcher()
            found = judge(await chaos.history(within_s=REST_WITHIN_S))
    assert "ONE_LIFE" in names(found), report(found)
