"""What dispatchers read of jobs: a version with what came after it, and the calendars that it is computed by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.calendars import CalendarPin, DayOff, DaysOff, content_to_json
from core.errors import Invalid
from core.jobspec import JobSpec
from core.states import JobState
from core.store.job_lookup import JobLookup, StoredVersion
from tests.support.store_world import OWNER, Job, StoreWorld

ACTIVE, PAUSED, DELETED = JobState.ACTIVE, JobState.PAUSED, JobState.DELETED
HOLIDAYS = DaysOff(days=(DayOff("2026-12-24/2026-12-26"),), working=("2026-12-25",))


@pytest.fixture
def lookup(world: StoreWorld) -> JobLookup:
    return JobLookup(world.database, OWNER)


async def plant(world: StoreWorld, *states: JobState) -> Job:
    """A job with these versions, 1, 2, ..., which took over at 100, 200, ..."""
    job = await world.plant_job(version=len(states))
    for version, state in enumerate(states, start=1):
        row = (job.job_id, version, int(state), json.dumps(JobSpec("work").to_json()), b"payload", version * 100)
        await world.eye.execute("INSERT INTO job_versions VALUES ($1, $2, $3, $4, $5, $6, $6, 'tester', '', '')", *row)
    return job


async def load(lookup: JobLookup, job: Job, version: int = 1) -> StoredVersion:
    return (await lookup.load([(job.job_id, version)]))[job.job_id, version]


async def test_the_present_version_has_nothing_after_it(world: StoreWorld, lookup: JobLookup) -> None:
    job = await plant(world, ACTIVE, ACTIVE)
    found = await load(lookup, job, 2)
    assert (found.current_version, found.superseded_us, found.stopped_us, found.stopped_as) == (2, None, None, None)
    assert (found.payload, found.namespace, found.name, found.error) == (b"payload", "default", str(job.job_id), "")


@pytest.mark.parametrize(
    ("after", "stopped"),
    [
        ([ACTIVE, ACTIVE], (None, None)),
        ([PAUSED], (200, PAUSED)),
        ([DELETED], (200, DELETED)),
        ([ACTIVE, PAUSED], (300, PAUSED)),
        ([PAUSED, PAUSED, ACTIVE, DELETED], (200, PAUSED)),
        ([ACTIVE, ACTIVE, DELETED], (400, DELETED)),
    ],
    ids=lambda value: "-".join(state.name for state in value) if isinstance(value, list) else None,
)
async def test_a_version_ends_with_the_next_one_and_is_stopped_by_the_first_pause_or_deletion(
    world: StoreWorld, lookup: JobLookup, after: list[JobState], stopped: tuple[Any, Any]
) -> None:
    job = await plant(world, ACTIVE, *after)
    found = await load(lookup, job)
    assert found.superseded_us == 200
    assert (found.stopped_us, found.stopped_as) == stopped


async def test_many_are_read_at_once_and_what_does_not_exist_is_missing(world: StoreWorld, lookup: JobLookup) -> None:
    jobs = [await plant(world, ACTIVE, PAUSED) for _ in range(3)]
    keys = [(job.job_id, version) for job in jobs for version in (1, 2, 3)]
    found = await lookup.load([*keys, (world.rand.uuid(), 1)])
    assert set(found) == {key for key in keys if key[1] < 3}
    assert {key[1]: version.stopped_us for key, version in found.items()} == {1: 200, 2: None}


async def test_calendars_are_read_by_version_and_one_that_is_spoilt_is_its_fault_alone(
    world: StoreWorld, lookup: JobLookup
) -> None:
    good, other, spoilt, missing = (CalendarPin(world.rand.uuid(), version) for version in (1, 2, 1, 1))
    for pin, content in ((good, content_to_json(HOLIDAYS)), (spoilt, {"days_off": 5}), (other, {"nothing": {}})):
        await world.eye.execute(
            "INSERT INTO calendar_versions VALUES ($1, $2, $3, '', 0, '', '', '')",
            *(pin.calendar_id, pin.version, json.dumps(content)),
        )
    found = await lookup.calendars([good, other, spoilt, missing, good])
    assert found[good] == HOLIDAYS
    assert isinstance(found[spoilt], Invalid)
    assert isinstance(found[other], Invalid)
    assert missing not in found
    assert await lookup.calendars([]) == {}
