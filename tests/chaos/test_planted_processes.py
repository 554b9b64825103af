"""The checker finds defects planted into real dispatcher processes (tests/support/planted_process.py)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.support.chaos_system import ChaosSystem, Watched
from tests.support.history import Violation, report
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


async def the_greatest_owner(chaos: ChaosSystem) -> Watched:
    """Who came late may have got no shard."""
    counts = Counter(row["owner"] for row in await chaos.rows("SELECT owner FROM shard_terms WHERE state = 1"))
    (name, _), *_ = counts.most_common(1)
    return next(each for each in chaos.running if chaos.owner_of(each) == name)


async def a_frozen_owner_goes_on(defects: str, *, rest_within_s: float) -> tuple[list[Violation], float]:
    """What is found, and how many writes the fence refused."""
    with temporary_home() as home:
        async with planted(home, defects, 2) as chaos:
            load = chaos.load(Random(1), seconds=18)
            await load.register(steady=60, busy=1)
            await asyncio.sleep(1)
            victim = await the_greatest_owner(chaos)
            chaos.freeze(victim)
            await asyncio.sleep(FROZEN_S)
            await eventually(chaos.all_owned, within_s=30, what="the other one takes its shards over")
            chaos.thaw(victim)
            return judge(await chaos.history(within_s=rest_within_s)), chaos.refused_writes


async def test_a_fence_without_a_look_at_the_term_is_found_when_a_frozen_owner_goes_on() -> None:
    found, _ = await a_frozen_owner_goes_on(f"no_term_check,{OTHER_GUARDS}", rest_within_s=REST_WITHIN_S)
    assert "VALID_TERM" in names(found), report(found)


async def test_the_look_at_the_term_alone_keeps_a_frozen_owner_from_harm() -> None:
    """The same episode, the other guards gone and this one there."""
    found, refused = await a_frozen_owner_goes_on(OTHER_GUARDS, rest_within_s=60)
    assert not found, report(found)
    assert refused > 0, "nothing was tried"


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
