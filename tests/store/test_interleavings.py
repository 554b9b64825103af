"""Random acts of two owners and a lander, at once and from stale memories: the promises hold throughout.

Counting doubles alone would miss a lost fence, since the compare-and-set on the due row hides it: what each write and
each end of a term came to at its COMMIT is watched too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.buckets import NO_END
from core.states import RunState
from core.store.database import DatabaseConfig
from core.store.statement import STATEMENTS
from tests.support.databases import Databases
from tests.support.interleavings import LATE_WRITES, SHARD, WATCH, Play
from tests.support.store_world import StoreWorld, close_world, open_world, tiles

pytestmark = pytest.mark.usefixtures("on_postgresql")

STEPS = 60
SEEDS = range(5)
MORE_SEEDS = range(100, 160)


async def check_meanwhile(play: Play) -> None:
    """What holds in every state that anybody can see."""
    below = await play.world.eye.fetchval(
        "SELECT count(*) FROM due d JOIN shard_marks m ON m.shard = d.shard WHERE d.bucket < m.watermark"
    )
    assert below == 0, "a live row below the watermark"
    above = await play.world.eye.fetchval(
        "SELECT count(*) FROM shard_marks m JOIN shard_floors f ON f.shard = m.shard WHERE m.watermark > f.floor"
    )
    assert above == 0, "a watermark above the floor"
    history = await play.world.terms.history(SHARD)
    assert not history or tiles(history), history
    assert await play.world.eye.fetch(LATE_WRITES) == [], "a write under a closed term"


async def play_out(world: StoreWorld, seed: int) -> Play:
    await world.eye.execute(WATCH)
    play = Play(world, Random(seed))
    for _ in range(STEPS):
        await play.step()
        await check_meanwhile(play)
    await play.finish()
    await check_meanwhile(play)
    return play


async def check_at_the_end(play: Play) -> None:
    runs = await play.world.rows("runs")
    made = Counter((run["job_id"], run["scheduled_for_us"]) for run in runs)
    meant = Counter((job_id, at_us) for job_id, chain in play.chains.items() for at_us in chain.occurrences)
    assert made == meant
    assert all(run["created_us"] >= run["due_at_us"] for run in runs), "a run before its time"
    attempts = await play.world.rows("attempts")
    ended = {run["run_id"]: run["attempt"] for run in runs if run["state"] == RunState.SUCCEEDED}
    numbers = Counter(attempt["run_id"] for attempt in attempts)
    assert all(numbers[run_id] == last for run_id, last in ended.items()), "an attempt without its row"


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_occurrence_is_fired_once_whoever_races(world: StoreWorld, seed: int) -> None:
    play = await play_out(world, seed)
    await check_at_the_end(play)
    assert play.done["accepted"] > 0
    assert play.done["refused"] > 0, "nobody was ever refused: the play proves nothing"
    assert play.done["claims won"] > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
async def test_every_occurrence_is_fired_once_whoever_races_at_length(world: StoreWorld, seed: int) -> None:
    await check_at_the_end(await play_out(world, seed))


# A fault of the product: what is missing from its statements, and what the play must then complain of.
PLANTED = {
    "an owner whose term is not asked for": (
        "t.owner = CAST(:owner AS TEXT) AND t.state = 1",
        "TRUE",
        "a write under a closed term",
    ),
    "a landing that does not look at the floor": (
        "GREATEST(CAST(:bucket AS BIGINT), landing.floor)",
        "CAST(:bucket AS BIGINT)",
        "below the floor",
    ),
}
ENOUGH_SEEDS = 20


@pytest.mark.parametrize("name", PLANTED)
async def test_a_planted_fault_of_the_product_is_found(
    name: str, store_config: DatabaseConfig, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, instead, complaint = PLANTED[name]
    faulty = {name: text(s.sql.replace(there, instead)) for name, s in STATEMENTS.items() if there in s.sql}
    run = AsyncConnection.execute

    async def run_faulty(connection: AsyncConnection, clause: Any, *arguments: Any) -> Any:
        named = next((name for name, s in STATEMENTS.items() if s.clause is clause), "")
        return await run(connection, faulty.get(named, clause), *arguments)

    monkeypatch.setattr(AsyncConnection, "execute", run_faulty)
    for seed in range(ENOUGH_SEEDS):
        world = await open_world(replace(store_config, url=await databases.create()))
        try:
            await check_at_the_end(await play_out(world, seed))
        except (AssertionError, DBAPIError) as found:
            if complaint in str(found):
                return
            raise
        finally:
            await close_world(world)
            await databases.drop(world.database.config.url)
    raise AssertionError(f"not found in {ENOUGH_SEEDS} plays")


class TestTheChecksThemselves:
    """Each must see the fault that it is there for."""

    async def test_a_row_below_the_watermark_is_seen(self, world: StoreWorld) -> None:
        play = await play_out(world, 1)
        job = await world.plant_job()
        await world.eye.execute("DROP TRIGGER check_landing ON due")
        await world.plant_occurrence(job, 0)
        with pytest.raises(AssertionError, match="below the watermark"):
            await check_meanwhile(play)

    async def test_a_row_below_the_floor_is_seen(self, world: StoreWorld) -> None:
        await play_out(world, 1)
        job = await world.plant_job()
        with pytest.raises(Exception, match="below the floor"):
            await world.plant_occurrence(job, 0)

    async def test_a_write_under_a_closed_term_is_seen(self, world: StoreWorld) -> None:
        play = await play_out(world, 1)
        closed = [t.term for t in await world.terms.history(SHARD) if t.state.name == "CLOSED"]
        await world.plant_run(await world.plant_job(), home_term=closed[0])
        with pytest.raises(AssertionError, match="under a closed term"):
            await check_meanwhile(play)

    async def test_terms_that_do_not_tile_are_seen(self, world: StoreWorld) -> None:
        play = await play_out(world, 1)
        await world.eye.execute("UPDATE shard_terms SET from_bucket = from_bucket + 1 WHERE to_bucket = $1", NO_END)
        with pytest.raises(AssertionError):
            await check_meanwhile(play)

    async def test_a_lost_occurrence_is_seen(self, world: StoreWorld) -> None:
        play = await play_out(world, 1)
        await world.eye.execute("DELETE FROM runs WHERE run_id = (SELECT run_id FROM runs LIMIT 1)")
        with pytest.raises(AssertionError):
            await check_at_the_end(play)
