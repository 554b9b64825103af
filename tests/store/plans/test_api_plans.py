"""What PostgreSQL makes of the API's statements: bounded ranges and whole keys, however many rows there are."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.plans import both_modes, conditions, crowd
from tests.support.store_world import NOW_US, StoreWorld

JOB = UUID(int=7)


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Many jobs, most of them deleted, and many runs of many jobs."""
    return await crowd(world, "jobs", "job_versions", "calendars", "skips", "due", "runs", "open_runs")


@both_modes
async def test_a_job_is_found_by_its_whole_name(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "get_job_by_name", mode, namespace="n1", name="job-10")
    assert all(word in found["jobs"][0] for word in ("namespace", "deleted_us", "name ="))
    assert all(word in found["job_versions"][0] for word in ("job_id", "version"))


@both_modes
async def test_live_jobs_are_listed_in_the_order_of_their_index(crowded: StoreWorld, mode: str) -> None:
    """However many of the same names were deleted: they are not walked."""
    found = await conditions(
        crowded, "list_job_names", mode, namespace="n1", after="", low="", high="\x7f", row_limit=101
    )
    assert all(word in found["jobs"][0] for word in ("namespace", "deleted_us", "name >"))
    assert "sorts" not in found


@both_modes
async def test_runs_of_a_job_are_walked_in_the_order_of_their_index(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(
        crowded, "walk_runs_of_job", mode, job_id=JOB, from_us=0, before_us=NOW_US, before_id=JOB, row_limit=101
    )
    assert all(word in found["runs"][0] for word in ("job_id", "scheduled_for_us", "run_id"))
    assert "sorts" not in found


@both_modes
async def test_an_open_run_is_looked_for_among_the_jobs_recent_ones(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "find_open_run", mode, shard=0, job_id=JOB, now_us=NOW_US)
    recent = [condition for condition in found["runs"] if "job_id" in condition]
    assert len(recent) == 1
    assert "scheduled_for_us" in recent[0]
    assert all("job_id" in condition and "shard" in condition for condition in found["open_runs"])


@both_modes
async def test_waiting_runs_are_counted_among_the_jobs_recent_ones(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "count_waiting_runs", mode, shard=0, job_id=JOB, run_id=JOB, now_us=NOW_US)
    recent = [condition for condition in found["runs"] if "job_id" in condition]
    assert len(recent) == 2, "how many wait, and whether one is open"
    assert all("scheduled_for_us" in condition for condition in recent)
    assert all("job_id" in condition and "shard" in condition for condition in found["open_runs"])


@both_modes
async def test_runs_are_read_by_their_key(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "get_runs", mode, run_ids=[JOB], namespace="n1")
    assert "run_id" in found["runs"][0]
    assert "job_id" in found["jobs"][0]


@both_modes
async def test_versions_of_a_job_are_listed_in_the_order_of_their_key(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "list_job_versions", mode, job_id=JOB, before=2**62, row_limit=101)
    assert all(word in found["job_versions"][0] for word in ("job_id", "version <"))
    assert "sorts" not in found
    found = await conditions(crowded, "get_job_versions", mode, job_id=JOB, versions=[1, 2])
    assert all(word in found["job_versions"][0] for word in ("job_id", "version = ANY"))


@both_modes
async def test_a_change_tells_a_chain_by_its_key_and_looks_behind_its_cut_over(crowded: StoreWorld, mode: str) -> None:
    ids = {"shards": [1], "ids": [JOB]}
    found = await conditions(crowded, "find_chains_to_tell", mode, to_bucket=crowded.bucket, row_limit=1, **ids)
    assert all(word in found["due"][0] for word in ("shard", "bucket >=", "bucket <"))
    found = await conditions(crowded, "tell_chains", mode, buckets=[1], due_ats_us=[1], told_versions=[2], **ids)
    assert all(word in found["due"][0] for word in ("shard", "bucket", "due_at_us", "id ="))
    found = await conditions(crowded, "find_fired_beyond", mode, job_ids=[JOB], cutovers_us=[NOW_US])
    assert all(word in found["runs"][0] for word in ("job_id", "scheduled_for_us >"))
    assert "job_id" in found["skips"][0]
    assert "sorts" not in found


@both_modes
async def test_what_a_job_ran_and_skipped_is_looked_for_among_its_own_rows(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "count_scheduled_runs", mode, job_ids=[JOB], most=100)
    assert len(found["runs"]) == 2
    assert all("job_id" in condition for condition in (*found["runs"], *found["skips"]))
    assert "sorts" not in found


@both_modes
async def test_minutes_are_measured_within_their_buckets(crowded: StoreWorld, mode: str) -> None:
    bucket = crowded.bucket
    found = await conditions(
        crowded,
        "measure_minutes",
        mode,
        shards=[0, 1],
        minutes=[7, 7],
        from_buckets=[bucket] * 2,
        to_buckets=[bucket + 12] * 2,
        most=500,
    )
    assert all(word in found["due"][0] for word in ("shard", "bucket >=", "bucket <"))


@both_modes
async def test_calendars_are_found_by_their_whole_names_and_held_by_their_keys(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "find_calendars_by_name", mode, namespace="n1", names=["calendar-1"])
    assert all(word in found["calendars"][0] for word in ("namespace", "deleted_us", "name ="))
    found = await conditions(crowded, "hold_calendars", mode, calendar_ids=[JOB])
    assert "calendar_id" in found["calendars"][0]


@both_modes
async def test_what_a_ledger_is_made_of_is_read_in_the_order_of_its_keys(crowded: StoreWorld, mode: str) -> None:
    bounds = {"job_id": JOB, "from_us": 0, "to_us": NOW_US, "row_limit": 100}
    found = await conditions(crowded, "list_runs_of_range", mode, **bounds)
    assert all(word in found["runs"][0] for word in ("job_id", "scheduled_for_us >=", "scheduled_for_us <"))
    assert "sorts" not in found
    found = await conditions(crowded, "list_skips_of_range", mode, **bounds)
    assert all(word in found["skips"][0] for word in ("job_id", "from_us >=", "from_us <"))
    assert "sorts" not in found
    found = await conditions(crowded, "list_skips_before", mode, job_id=JOB, from_us=NOW_US, row_limit=100)
    assert all(word in found["skips"][0] for word in ("job_id", "from_us <"))
    assert "sorts" not in found
    found = await conditions(crowded, "list_versions_of_range", mode, **bounds)
    assert all("job_id" in condition for condition in found["job_versions"])
    assert any("version >=" in condition for condition in found["job_versions"])
    assert "sorts" not in found


@both_modes
async def test_chains_are_looked_for_above_the_watermark(crowded: StoreWorld, mode: str) -> None:
    found = await conditions(crowded, "find_chains", mode, shard=1, to_bucket=crowded.bucket, ids=[JOB], row_limit=1)
    assert all(word in found["due"][0] for word in ("shard", "bucket >=", "bucket <"))
