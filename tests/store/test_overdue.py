"""What the missed-fire watch reads: late rows with their jobs, chains that were put off, and where rows stand."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.errors import Invalid
from core.schedule import Schedule
from core.states import DueKind, JobState
from core.store.overdue import DuePlace, LateRow, Overdue
from tests.support.api_store import ApiStore, spec
from tests.support.store_world import NOW_US, SHARDS, Job, StoreWorld

ALL = list(range(SHARDS))
BEFORE_US = NOW_US - 30 * US_PER_S


async def version(world: StoreWorld, job: Job, number: int = 1, cutover_us: int = 0) -> None:
    """A version of a planted job; what it says is of no matter here."""
    await world.eye.execute(
        "INSERT INTO job_versions VALUES ($1, $2, 1, '{}', '', $3, $3, 'a', 'r', '')", job.job_id, number, cutover_us
    )


async def plant(
    world: StoreWorld, job: Job, due_at_us: int, *, bucket: int | None = None, scheduled_us: int | None = None
) -> UUID:
    """A chain's row; it lands in the bucket of its time unless told otherwise."""
    at = world.scale.bucket_of(due_at_us) if bucket is None else bucket
    row = (job.shard, at, due_at_us, job.chain_id, int(DueKind.OCCURRENCE), job.job_id, job.version)
    await world.eye.execute("INSERT INTO due VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row, scheduled_us or due_at_us)
    return job.chain_id


async def late(world: StoreWorld, limit: int = 200) -> list[LateRow]:
    return await Overdue(world.database).late(
        ALL, before_us=BEFORE_US, high_bucket=world.bucket + 2, limit_per_shard=limit
    )


async def below(world: StoreWorld, watermark: int) -> None:
    await world.eye.execute("UPDATE shard_marks SET watermark = $1", watermark)


async def test_late_rows_come_oldest_first_with_their_jobs(world: StoreWorld) -> None:
    await below(world, 0)
    jobs = [await world.plant_job(shard) for shard in (0, 1, 2)]
    for seconds, job in zip((31, 300, 29), jobs, strict=True):
        await version(world, job)
        await plant(world, job, NOW_US - seconds * US_PER_S)
    found = await late(world)
    assert [row.job_id for row in found] == [jobs[1].job_id, jobs[0].job_id], "29 s is not late yet"
    assert [(row.namespace, row.name, row.has_version) for row in found] == [
        ("default", str(jobs[n].job_id), True) for n in (1, 0)
    ]


async def test_a_row_that_landed_late_is_found_at_the_floor(world: StoreWorld) -> None:
    job = await world.plant_job()
    await version(world, job)
    await plant(world, job, NOW_US - 3_600 * US_PER_S, bucket=world.bucket + 1)
    (row,) = await late(world)
    assert (row.bucket, row.due_at_us) == (world.bucket + 1, NOW_US - 3_600 * US_PER_S)


async def test_dead_rows_below_the_watermark_are_not_walked(world: StoreWorld) -> None:
    job = await world.plant_job()
    await version(world, job)
    await plant(world, job, NOW_US - 3_600 * US_PER_S)
    assert await late(world) == [], "the watermark stands at the present bucket"
    await below(world, 0)
    assert len(await late(world)) == 1


async def test_each_shard_is_counted_up_to_the_limit(world: StoreWorld) -> None:
    await below(world, 0)
    for shard in (0, 0, 0, 1):
        job = await world.plant_job(shard)
        await version(world, job)
        await plant(world, job, NOW_US - 60 * US_PER_S)
    assert sorted(row.shard for row in await late(world, limit=2)) == [0, 0, 1]


async def test_what_a_row_names_may_be_gone(world: StoreWorld) -> None:
    await below(world, 0)
    without_version = await world.plant_job()
    nobody = Job(UUID(int=5), shard=1)
    for job in (without_version, nobody):
        await plant(world, job, NOW_US - 60 * US_PER_S)
    found = {row.job_id: (row.name, row.has_version) for row in await late(world)}
    assert found == {without_version.job_id: (str(without_version.job_id), False), nobody.job_id: ("", False)}


async def test_a_row_that_an_edit_left_behind_is_no_occurrence(world: StoreWorld) -> None:
    await below(world, 0)
    edited_before, edited_after = await world.plant_job(), await world.plant_job()
    for job, cutover_us in ((edited_before, NOW_US - 61 * US_PER_S), (edited_after, NOW_US - 60 * US_PER_S)):
        await version(world, job)
        await version(world, job, 2, cutover_us)
        await plant(world, job, NOW_US - 60 * US_PER_S)
    assert [row.job_id for row in await late(world)] == [edited_after.job_id], "what was due at the edit still fires"


async def test_chains_ahead_of_an_old_occurrence_are_listed_oldest_first(world: StoreWorld) -> None:
    jobs = [await world.plant_job(shard) for shard in (0, 1, 2)]
    for seconds, job in zip((90, 3_600, 5), jobs, strict=True):
        await version(world, job)
        await plant(world, job, NOW_US + 20 * US_PER_S, scheduled_us=NOW_US - seconds * US_PER_S)
    coming = range(world.bucket, world.bucket + 13)
    reads = Overdue(world.database)

    async def listed(limit: int) -> list[UUID]:
        rows = await reads.put_off(ALL, coming, before_us=BEFORE_US, limit_per_shard=100, limit=limit)
        return [row.job_id for row in rows]

    assert await listed(10) == [jobs[1].job_id, jobs[0].job_id]
    assert await listed(1) == [jobs[1].job_id]


async def test_a_row_is_found_at_its_place_and_anywhere_in_its_shard(world: StoreWorld) -> None:
    job, moved = await world.plant_job(0), await world.plant_job(1)
    due_us = NOW_US + 60 * US_PER_S
    place = DuePlace(0, world.scale.bucket_of(due_us), due_us, await plant(world, job, due_us))
    elsewhere = DuePlace(1, place.bucket, due_us, await plant(world, moved, NOW_US + 3_600 * US_PER_S))
    reads = Overdue(world.database)
    assert await reads.standing([place, elsewhere]) == {job.chain_id}
    nowhere = UUID(int=9)
    assert await reads.anywhere({job.chain_id: 0, moved.chain_id: 1, nowhere: 2}) == {job.chain_id, moved.chain_id}
    assert await reads.anywhere({moved.chain_id: 0}) == set(), "it stands in another shard"


async def test_jobs_are_walked_by_id_in_their_present_version(world: StoreWorld) -> None:
    api = ApiStore(world)
    for number in range(5):
        await api.create(f"job-{number}", job_id=UUID(int=10 - number))
    await api.change("job-4")
    reads = Overdue(world.database)
    first = await reads.walk(UUID(int=0), 3)
    rest = await reads.walk(first[-1].job_id, 3)
    assert [job.job_id.int for job in [*first, *rest]] == [6, 7, 8, 9, 10]
    assert (first[0].name, first[0].version, first[0].state) == ("job-4", 2, JobState.ACTIVE)
    assert first[0].spec.read(Enumerator()).schedule == spec().schedule
    assert [job.job_id.int for job in await reads.again([UUID(int=9), UUID(int=99)])] == [9]


async def test_a_stored_form_that_is_spoilt_is_invalid_and_nothing_worse(world: StoreWorld) -> None:
    good = await ApiStore(world).create("job", spec(Schedule(cron=("0 4 * * *",))))
    assert good.landed_shard is not None
    job_id = await world.eye.fetchval("SELECT job_id FROM jobs")
    reads = Overdue(world.database)
    key = (job_id, 1)
    assert (await reads.specs([key, (job_id, 7)])).keys() == {key}
    for stored in ('"text"', "[]", "5", '{"schedule": 1}'):
        await world.eye.execute("UPDATE job_versions SET spec = $1", stored)
        (found,) = (await reads.specs([key])).values()
        with pytest.raises(Invalid):
            found.read(Enumerator())
