"""What PostgreSQL makes of the statements of calendars and operations: bounded ranges and whole keys, however many
rows there are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.operation_store import OperationStore
from tests.support.plans import both_modes, conditions
from tests.support.store_world import NOW_US, StoreWorld

pytestmark = pytest.mark.usefixtures("on_postgresql")

ROWS = 5_000
ID = UUID(int=7)


@pytest.fixture
def isolation() -> str:
    """Plans are the same at every level."""
    return "READ COMMITTED"


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Many jobs, calendars with many jobs, operations of which few are open, runs; with fresh statistics."""
    assert OperationStore(world).backfills
    eye = world.eye
    await eye.execute(
        f"""INSERT INTO jobs (job_id, namespace, name, hash, shard, version, state, cutover_us, created_us, updated_us)
            SELECT gen_random_uuid(), 'n' || n % 3, 'job-' || n, 0, n % 4, 1, 1, 0, 0, 0
            FROM generate_series(1, {ROWS}) AS n"""
    )
    await eye.execute("INSERT INTO job_versions SELECT job_id, 1, 1, '{}', '', 0, 0, '', '', '' FROM jobs")
    await eye.execute(
        """INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)
           SELECT gen_random_uuid(), 'n' || n % 3, 'c-' || n, 1, 0, 0 FROM generate_series(1, 300) AS n"""
    )
    await eye.execute("INSERT INTO calendar_versions SELECT calendar_id, 1, '{}', '', 0, '', '', '' FROM calendars")
    await eye.execute(
        "INSERT INTO calendar_jobs SELECT c.calendar_id, j.job_id FROM jobs j JOIN calendars c ON c.name = 'c-1'"
    )
    await eye.execute(
        f"""INSERT INTO operations (namespace, operation_id, kind, state, subject, spec, progress, done, total,
                                    unchanged, created_us, updated_us, ended_us, author, note)
            SELECT 'n' || n % 3, gen_random_uuid(), 2, CASE WHEN n % 1000 = 0 THEN 1 ELSE 2 END, '', '{{}}', '', 0, 0,
                   0, n, n, CASE WHEN n % 1000 = 0 THEN 0 ELSE n END, '', '' FROM generate_series(1, {ROWS}) AS n"""
    )
    await eye.execute(
        f"""INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                              home_term, ended_us)
            SELECT gen_random_uuid(), gen_random_uuid(), 1, n % 4, 1, $1::bigint - n, $1, $1, 3, 1, 1
            FROM generate_series(1, {ROWS}) AS n""",
        NOW_US,
    )
    await eye.execute(
        f"INSERT INTO open_runs SELECT 0, gen_random_uuid(), gen_random_uuid() FROM generate_series(1, {ROWS}) AS n"
    )
    await eye.execute("ANALYZE")
    return world


# Statement, binds, table, words of its index condition.
FOUND: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    (
        "get_calendar_by_name",
        {"namespace": "n1", "name": "c-1", "wanted": 0},
        "calendars",
        ("namespace", "deleted_us", "name ="),
    ),
    ("list_calendars", {"namespace": "n1", "after": "", "row_limit": 101}, "calendars", ("namespace", "name >")),
    (
        "list_calendar_versions",
        {"namespace": "n1", "name": "c-1", "before": 9, "row_limit": 101},
        "calendar_versions",
        ("calendar_id", "version <"),
    ),
    ("find_job_of_calendar", {"calendar_id": ID}, "calendar_jobs", ("calendar_id =",)),
    (
        "walk_jobs_of_calendar",
        {"calendar_id": ID, "after": ID, "row_limit": 100},
        "calendar_jobs",
        ("calendar_id =", "job_id >"),
    ),
    (
        "walk_jobs_by_name",
        {"namespace": "n1", "after": "", "row_limit": 1000},
        "jobs",
        ("namespace", "deleted_us", "name >"),
    ),
    ("hold_jobs", {"job_ids": [ID]}, "jobs", ("job_id =",)),
    ("get_operation", {"namespace": "n1", "operation_id": ID}, "operations", ("operation_id =",)),
    (
        "lock_operation",
        {"namespace": "n1", "created_us": 1, "operation_id": ID},
        "operations",
        ("operation_id =",),
    ),
    (
        "list_operations",
        {"namespace": "n1", "before_us": 1 << 62, "before_id": ID, "row_limit": 101},
        "operations",
        ("namespace", "created_us"),
    ),
    ("find_instants_with_run", {"job_id": ID, "instants_us": [1, 2]}, "runs", ("job_id", "scheduled_for_us =")),
    (
        "walk_runs_of_range",
        {"job_id": ID, "to_us": NOW_US, "after_us": 0, "after_id": ID, "row_limit": 1000},
        "runs",
        ("job_id", "scheduled_for_us", "run_id"),
    ),
    ("take_back_runs", {"run_ids": [ID], "now_us": 1}, "runs", ("run_id =",)),
]
# The versions of one calendar: as many as it was edited.
SORTED = ("list_calendar_versions",)


@both_modes
@pytest.mark.parametrize(("name", "binds", "table", "words"), FOUND, ids=[each[0] for each in FOUND])
async def test_rows_are_found_by_their_keys_and_never_sorted(
    crowded: StoreWorld, mode: str, name: str, binds: dict[str, Any], table: str, words: tuple[str, ...]
) -> None:
    found = await conditions(crowded, name, mode, **binds)
    assert all(word in found[table][0] for word in words), found
    assert "sorts" not in found or name in SORTED


async def test_open_operations_are_found_without_those_that_have_ended(crowded: StoreWorld) -> None:
    """The index holds the open ones alone, in the order that is asked for."""
    plan = await crowded.eye.fetch(
        """EXPLAIN SELECT operation_id FROM operations WHERE ended_us = 0
           ORDER BY created_us, operation_id LIMIT 1000"""
    )
    assert "operations_open" in plan[1][0]
