"""What PostgreSQL makes of the reconciler's statements: keys and ranges, however many rows there are."""

from __future__ import annotations

from typing import Any

import pytest

from core.ids import hashes_range, shard_hashes
from tests.support.plans import both_modes, conditions, crowd
from tests.support.store_world import NOW_US, SHARDS, StoreWorld

# Statement, binds, table, words of its index condition.
LOW, HIGH = hashes_range(shard_hashes(0, SHARDS))
LANDED = {"landing_shards": [0], "shard": 0, "bucket": 5, "due_at_us": NOW_US, "due_id": LOW}
AUDIT = {"namespace": "", "now_us": NOW_US, "audit_id": LOW, "actor": "a", "action": "b", "note": "c"}
PLANS: list[tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]] = [
    ("list_due_rows_below_watermark", {"shard": 0, "row_limit": 10}, {"due": ("shard =", "bucket <")}),
    (
        "list_recent_runs_to_inspect",
        {"lows": [LOW], "highs": [HIGH], "shard": 0, "row_limit": 10},
        {"runs": ("run_id >=", "run_id <")},
    ),
    (
        "list_standing_runs_to_inspect",
        {"shard": 0, "row_limit": 10},
        {"open_runs": ("shard =",), "runs": ("run_id =",)},
    ),
    ("read_runs_to_inspect_again", {"run_ids": [LOW]}, {"runs": ("run_id =",)}),
    (
        "walk_runs_to_inspect",
        {"after": LOW, "high": HIGH, "shard": 0, "row_limit": 10},
        {"runs": ("run_id >", "run_id <"), "open_runs": ("shard =", "run_id =")},
    ),
    (
        "read_end_of_account",
        {"job_id": LOW, "version": 1},
        {"runs": ("job_id =",), "skips": ("job_id =",), "job_versions": ("job_id =", "version =")},
    ),
    ("reland_stray_due_row", {**LANDED, **AUDIT}, {"shard_marks": ("shard =",)}),
    ("stand_unfound_run", {"run_id": LOW, "shard": 0, **AUDIT}, {"runs": ("run_id =",)}),
    (
        "land_missing_retry",
        {"landing_shards": [0], "run_id": LOW, "shard": 0, "attempt": 1, "not_before_us": 5, "bucket": 5, **AUDIT},
        {"runs": ("run_id =",), "due": ("shard =", "bucket >=")},
    ),
    (
        "land_lost_chain",
        {**LANDED, **AUDIT, "job_id": LOW, "job_version": 1, "scheduled_for_us": 1},
        {"due": ("shard =", "bucket >="), "jobs": ("job_id =",)},
    ),
]


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Many rows of everything."""
    return await crowd(world, "due", "runs", "open_runs", "skips")


@both_modes
async def test_rows_are_found_by_ranges_of_keys(crowded: StoreWorld, mode: str) -> None:
    for name, params, tables in PLANS:
        found = await conditions(crowded, name, mode, **params)
        for table, words in tables.items():
            assert any(all(word in condition for word in words) for condition in found[table]), (name, table, found)
