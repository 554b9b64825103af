"""Floors and watermarks: they only grow, in order, by their owner; and a landing and a raise never pass each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core.buckets import NO_END
from core.states import DueKind
from core.store.database import DatabaseConfig
from core.store.discovery import BucketRange, Discovery
from core.store.landing import Landing, land
from core.store.marks import Marks, Raise, Raised
from tests.support.raw_statements import Call, captured, connect, fetch, until_waiting
from tests.support.store_world import NOW_US, OTHER, OWNER, SHARDS, Job, StoreWorld

RaiseMark = Callable[[StoreWorld, str, list[Raise]], Awaitable[Raised]]


async def raise_floors(world: StoreWorld, owner: str, raises: list[Raise]) -> Raised:
    return await world.marks(owner).raise_floors(raises)


async def raise_watermarks(world: StoreWorld, owner: str, raises: list[Raise]) -> Raised:
    return await world.marks(owner).raise_watermarks(raises)


async def raise_open_from(world: StoreWorld, owner: str, raises: list[Raise]) -> Raised:
    return await world.marks(owner).raise_open_from(raises)


async def marks_of(world: StoreWorld, shard: int = 0) -> Marks:
    return (await world.marks().read([shard]))[shard]


async def test_every_shard_starts_where_the_cluster_was_founded(world: StoreWorld) -> None:
    marks = await world.marks().read(range(SHARDS))
    assert marks == {s: Marks(s, world.bucket, world.bucket, NOW_US) for s in range(SHARDS)}


async def test_the_floor_rises_first_and_the_watermark_follows(world: StoreWorld) -> None:
    await world.own(0)
    b = world.bucket
    assert (await raise_floors(world, OWNER, [Raise(0, 1, b, b + 1)])).shards == {0}
    assert (await raise_watermarks(world, OWNER, [Raise(0, 1, b, b + 1)])).shards == {0}
    assert await marks_of(world) == Marks(0, b + 1, b + 1, NOW_US)


async def test_the_watermark_never_passes_the_floor(world: StoreWorld) -> None:
    await world.own(0)
    b = world.bucket
    raised = await raise_watermarks(world, OWNER, [Raise(0, 1, b, b + 1)])
    assert (raised.shards, set(raised.fences)) == (frozenset(), {(0, 1)})
    assert (await marks_of(world)).watermark == b


async def test_the_open_from_mark_rises_by_itself(world: StoreWorld) -> None:
    await world.own(0)
    assert (await raise_open_from(world, OWNER, [Raise(0, 1, NOW_US, NOW_US + 60)])).shards == {0}
    assert (await marks_of(world)).open_from_us == NOW_US + 60


async def test_marks_of_several_shards_rise_in_one_statement(world: StoreWorld) -> None:
    for shard in range(3):
        await world.own(shard)
    b = world.bucket
    raised = await raise_floors(world, OWNER, [Raise(shard, 1, b, b + 1 + shard) for shard in (2, 0, 1)])
    assert raised.shards == {0, 1, 2}
    assert [m.floor for m in (await world.marks().read([0, 1, 2])).values()] == [b + 1, b + 2, b + 3]


@pytest.mark.parametrize("act", [raise_floors, raise_watermarks], ids=["floor", "watermark"])
class TestAMarkStays:
    async def raised(self, world: StoreWorld, act: RaiseMark, owner: str, one: Raise) -> Raised:
        return await act(world, owner, [one])

    async def test_when_its_old_value_is_another(self, world: StoreWorld, act: RaiseMark) -> None:
        await world.own(0)
        b = world.bucket
        raised = await self.raised(world, act, OWNER, Raise(0, 1, b - 1, b + 1))
        assert (raised.shards, set(raised.fences)) == (frozenset(), {(0, 1)})

    async def test_when_it_would_fall_or_stand(self, world: StoreWorld, act: RaiseMark) -> None:
        await world.own(0)
        b = world.bucket
        for new in (b - 1, b):
            assert (await self.raised(world, act, OWNER, Raise(0, 1, b, new))).shards == frozenset()

    async def test_for_a_stranger_and_a_former_owner(self, world: StoreWorld, act: RaiseMark) -> None:
        term = await world.own(0)
        b = world.bucket
        assert (await self.raised(world, act, OTHER, Raise(0, 1, b, b + 1))).fences == {}
        await world.take_over(term)
        assert (await self.raised(world, act, OWNER, Raise(0, 1, b, b + 1))).fences == {}
        assert await marks_of(world) == Marks(0, b, b, NOW_US)

    async def test_beyond_the_owners_range(self, world: StoreWorld, act: RaiseMark) -> None:
        term = await world.own(0)
        b = world.bucket
        successor = await world.split(term, b + 2)
        past_its_end = await self.raised(world, act, OWNER, Raise(0, 1, b, b + 3))
        before_its_begin = await self.raised(world, act, OTHER, Raise(0, successor.term, b, b + 3))
        assert (past_its_end.shards, before_its_begin.shards) == (frozenset(), frozenset())
        assert (set(past_its_end.fences), set(before_its_begin.fences)) == ({(0, 1)}, {(0, 2)})


def landing_of(world: StoreWorld, job: Job, due_at_us: int = NOW_US) -> Landing:
    bucket = world.scale.bucket_of(due_at_us)
    return Landing(0, bucket, due_at_us, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, due_at_us)


async def landing_call(world: StoreWorld, row: Landing) -> Call:
    """The statement by which `row` lands, to be run on a connection of the test's own."""
    row_values = {
        "landing_shards": [row.shard],
        "shard": row.shard,
        "bucket": row.bucket,
        "due_at_us": row.due_at_us,
        "due_id": row.due_id,
        "kind": int(row.kind),
        "job_id": row.job_id,
        "job_version": row.job_version,
        "scheduled_for_us": row.scheduled_for_us,
    }
    return Call("land_occurrence", row_values)


class TestLandingAgainstARaise:
    """Whoever comes second waits; so the scan below a raised floor sees everything that is ever to be there."""

    async def test_a_landing_in_flight_holds_the_raise_back(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        await world.own(0)
        b, job = world.bucket, await world.plant_job()
        lander = await connect(store_config, "lander")
        begun = lander.transaction()
        await begun.start()
        await fetch(lander, await landing_call(world, landing_of(world, job)))
        raising = asyncio.create_task(world.marks().raise_floors([Raise(0, 1, b, b + 1)]))
        await until_waiting(world.eye, "tidewheel")
        assert (await marks_of(world)).floor == b
        await begun.commit()
        assert (await raising).shards == {0}
        below = await Discovery(world.database).scan([BucketRange(0, b, b + 1)], limit_per_shard=10)
        assert [row.id for row in below.rows] == [job.chain_id]
        await lander.close()

    async def test_a_raise_in_flight_holds_the_landing_back_and_lifts_it(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        await world.own(0)
        b, job = world.bucket, await world.plant_job()
        raiser = await connect(store_config, "raiser")
        begun = raiser.transaction()
        await begun.start()
        call = await captured(world.database, lambda: world.marks().raise_floors([Raise(0, 1, b, b + 4)]))
        await fetch(raiser, call)
        landing = asyncio.create_task(world.database.transaction(lambda tx: land(tx, landing_of(world, job))))
        await until_waiting(world.eye, "tidewheel")
        await begun.commit()
        await landing
        (row,) = await world.due()
        assert (row.bucket, row.due_at_us) == (b + 4, NOW_US)
        await raiser.close()

    async def test_a_raise_that_is_taken_back_leaves_the_floor_to_the_landing(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        await world.own(0)
        b, job = world.bucket, await world.plant_job()
        raiser = await connect(store_config, "raiser")
        begun = raiser.transaction()
        await begun.start()
        await fetch(raiser, await captured(world.database, lambda: world.marks().raise_floors([Raise(0, 1, b, b + 4)])))
        landing = asyncio.create_task(world.database.transaction(lambda tx: land(tx, landing_of(world, job))))
        await until_waiting(world.eye, "tidewheel")
        await begun.rollback()
        await landing
        assert [row.bucket for row in await world.due()] == [b]
        await raiser.close()

    async def test_landings_do_not_wait_for_each_other(self, world: StoreWorld, store_config: DatabaseConfig) -> None:
        lander = await connect(store_config, "lander")
        begun = lander.transaction()
        await begun.start()
        await fetch(lander, await landing_call(world, landing_of(world, await world.plant_job())))
        row = landing_of(world, await world.plant_job())
        await world.database.transaction(lambda tx: land(tx, row))
        await begun.commit()
        assert len(await world.due()) == 2
        await lander.close()


async def test_the_lowest_live_bucket_is_found_from_the_watermark_up(world: StoreWorld) -> None:
    await world.own(0)
    b = world.bucket
    for at_us in (NOW_US + 60_000_000, NOW_US + 25_000_000):
        await world.plant_occurrence(await world.plant_job(), at_us)
    discovery = Discovery(world.database)
    assert await discovery.lowest([BucketRange(0, b, NO_END), BucketRange(1, b, NO_END)]) == {0: b + 5}
    assert await discovery.lowest([BucketRange(0, b + 6, b + 12)]) == {}
