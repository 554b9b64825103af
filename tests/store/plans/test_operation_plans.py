"""What PostgreSQL makes of the statements of calendars and operations: bounded ranges and whole keys, however many
rows there are."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.plans import ROWS, Lookup, both_modes, check, crowd, each_of
from tests.support.store_world import NOW_US, StoreWorld

ID = UUID(int=7)
CALENDAR_VERSIONS = "INSERT INTO calendar_versions SELECT calendar_id, 1, '{}', '', 0, '', '', '' FROM calendars"
CALENDAR_JOBS = """
    INSERT INTO calendar_jobs
    SELECT c.calendar_id, j.job_id FROM jobs j JOIN calendars c ON c.name = 'calendar-1'"""
OPERATIONS = f"""
    INSERT INTO operations (namespace, operation_id, kind, state, subject, spec, progress, done, total, unchanged,
                            created_us, updated_us, ended_us, author, note)
    SELECT 'n' || n % 3, gen_random_uuid(), 2, CASE WHEN n % 1000 = 0 THEN 1 ELSE 2 END, '', '{{}}', '', 0, 0, 0,
           n, n, CASE WHEN n % 1000 = 0 THEN 0 ELSE n END, '', '' FROM generate_series(1, {ROWS}) AS n"""


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Calendars, one of them with many jobs, operations of which few are open, and runs."""
    tables = ("jobs", "job_versions", "calendars", "runs", "open_runs")
    return await crowd(world, *tables, besides=(CALENDAR_VERSIONS, CALENDAR_JOBS, OPERATIONS))


FOUND: list[Lookup] = [
    (
        "get_calendar_by_name",
        {"namespace": "n1", "name": "calendar-1", "wanted": 0},
        "calendars",
        ("namespace", "deleted_us", "name ="),
    ),
    ("list_calendars", {"namespace": "n1", "after": "", "row_limit": 101}, "calendars", ("namespace", "name >")),
    (
        "list_calendar_versions",
        {"namespace": "n1", "name": "calendar-1", "before": 9, "row_limit": 101},
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
@each_of(FOUND)
async def test_rows_are_found_by_their_keys_and_never_sorted(crowded: StoreWorld, mode: str, lookup: Lookup) -> None:
    await check(crowded, lookup, mode, sorts=lookup[0] in SORTED)


async def test_open_operations_are_found_without_those_that_have_ended(crowded: StoreWorld) -> None:
    """The index holds the open ones alone, in the order that is asked for."""
    plan = await crowded.eye.fetch(
        """EXPLAIN SELECT operation_id FROM operations WHERE ended_us = 0
           ORDER BY created_us, operation_id LIMIT 1000"""
    )
    assert "operations_open" in plan[1][0]
