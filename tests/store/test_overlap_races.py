"""Random acts of two owners and of triggers on jobs whose runs must not overlap: at every moment at most one is open.

At READ COMMITTED statements of the same moment do not see each other's rows; the gate holds all the same, since a run
only starts where everything that was written before has ended, and of what waits the first.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from core.states import RunCause
from core.store.statement import STATEMENTS
from tests.support.overlap_play import STARTED_TOGETHER, OverlapPlay
from tests.support.store_world import StoreWorld

pytestmark = pytest.mark.usefixtures("on_postgresql")

STEPS = 60
SEEDS = range(3)
MORE_SEEDS = range(100, 140)


async def play_out(world: StoreWorld, seed: int) -> OverlapPlay:
    """Every step is followed by a look at what is started."""
    await world.eye.execute("UPDATE shard_marks SET open_from_us = 0")
    play = OverlapPlay(world, Random(seed))
    for _ in range(STEPS):
        await play.step()
        together = await world.eye.fetch(STARTED_TOGETHER)
        assert together == [], "two runs of a job are started"
    await play.finish()
    return play


async def check_at_the_end(play: OverlapPlay) -> None:
    runs = await play.world.rows("runs")
    accounted = Counter((r["job_id"], r["scheduled_for_us"]) for r in runs if r["cause"] == RunCause.SCHEDULE)
    accounted += Counter((s["job_id"], s["from_us"]) for s in await play.world.rows("skips"))
    assert accounted == Counter((job_id, at) for job_id, chain in play.chains.items() for at in chain.occurrences)
    assert sum(run["cause"] == RunCause.TRIGGER for run in runs) == play.triggers


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_two_runs_of_a_job_are_started_whoever_races(world: StoreWorld, seed: int) -> None:
    play = await play_out(world, seed)
    await check_at_the_end(play)
    assert min(play.done["kept back"], play.done["triggered"], play.done["claims won"]) > 0, play.done


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
async def test_no_two_runs_of_a_job_are_started_whoever_races_at_length(world: StoreWorld, seed: int) -> None:
    await check_at_the_end(await play_out(world, seed))


# What is missing from the product's statements, and which of them has it.
PLANTED = {
    "a firing that does not look at other runs": ("WHEN a.overlap = 2 OR a.run_id IS NULL THEN 0", "WHEN TRUE THEN 0"),
    "a lease that does not ask the gate": ("LEFT JOIN blocked b ON b.ord = i.ord", "LEFT JOIN blocked b ON FALSE"),
    "a met trigger that starts at once": ("AND NOT (r.gated AND r.attempt = 0)", ""),
}
TABLES = "runs, due, skips, jobs, open_runs, attempts, shard_terms, shard_term_events"


async def play_often(world: StoreWorld) -> None:
    for seed in range(20):
        await play_out(world, seed)
        await world.eye.execute(f"TRUNCATE {TABLES}")


@pytest.mark.parametrize("name", PLANTED)
async def test_a_planted_fault_of_the_gate_is_found(
    name: str, world: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, instead = PLANTED[name]
    faulty = {name: text(s.sql.replace(there, instead)) for name, s in STATEMENTS.items() if there in s.sql}
    assert faulty
    run = AsyncConnection.execute

    async def run_faulty(connection: AsyncConnection, clause: Any, *arguments: Any) -> Any:
        named = next((name for name, s in STATEMENTS.items() if s.clause is clause), "")
        return await run(connection, faulty.get(named, clause), *arguments)

    monkeypatch.setattr(AsyncConnection, "execute", run_faulty)
    with pytest.raises(AssertionError, match="two runs of a job are started"):
        await play_often(world)
