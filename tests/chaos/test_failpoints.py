"""Row 40: the old owner, the new one or the leader dies or stands still at each named place of a move.

Every move ends, completed or rolled back, within 5 s of the fault or of the boundary (six times that decides here),
and the history of it all holds.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.support.chaos_failpoints import PLACES, Drill, alternating
from tests.support.chaos_system import ChaosSystem
from tests.support.history_check import hold
from tests.support.live_system import Size, now_us
from tools.servers.homes import temporary_home

SEED = 40


@pytest.mark.parametrize("first", ["kill", pytest.param("freeze", marks=pytest.mark.long)])
async def test_row_40_a_move_ends_whoever_stumbles_wherever(first: str) -> None:
    with temporary_home() as home:
        chaos = ChaosSystem(home, Size(control_planes=2, dispatchers=4, workers=1))
        drill = Drill(chaos, alternating(first), Random(SEED))
        async with chaos:
            load = chaos.load(Random(SEED), seconds=3600)
            await load.register(steady=20, busy=1)
            for place in PLACES:
                await drill.at(place)
            await load.end()
            chaos.horizon_us = now_us()
            hold(await chaos.history())
    assert set(drill.ends) == set(PLACES)
