"""What PostgreSQL makes of a statement: the index conditions by which it finds rows, with either kind of plan.

A test of plans has a crowd first: rows of other jobs, shards and times by the thousand, and statistics of them.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.support.raw_statements import Call
from tests.support.store_world import NOW_US, SHARDS, StoreWorld
from tools.sql_lint.lint import registered

ROWS: Final = 5_000
CROWDS: Final = {
    "jobs": f"""
        INSERT INTO jobs
          (job_id, namespace, name, hash, shard, version, state, cutover_us, created_us, updated_us, deleted_us)
        SELECT gen_random_uuid(), 'n' || n % 3, 'job-' || n, 0, n % {SHARDS}, 1, CASE WHEN n % 10 = 0 THEN 1 ELSE 3 END,
               0, 0, 0, CASE WHEN n % 10 = 0 THEN 0 ELSE n END
        FROM generate_series(1, {ROWS}) AS n""",
    "job_versions": "INSERT INTO job_versions SELECT job_id, 1, 1, '{}', '', 0, 0, '', '', '' FROM jobs",
    "calendars": f"""
        INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)
        SELECT gen_random_uuid(), 'n' || n % 3, 'calendar-' || n, 1, 0, 0 FROM generate_series(1, {ROWS}) AS n""",
    "due": f"""
        INSERT INTO due SELECT n % {SHARDS}, :bucket + n % 100, n, gen_random_uuid(), 1, gen_random_uuid(), 1, n
        FROM generate_series(1, {ROWS}) AS n""",
    "runs": f"""
        INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                          home_term, ended_us)
        SELECT gen_random_uuid(), gen_random_uuid(), 1, n % {SHARDS}, 1, {NOW_US} - n, {NOW_US}, {NOW_US}, 3, 1, 1
        FROM generate_series(1, {ROWS}) AS n""",
    "open_runs": f"""
        INSERT INTO open_runs SELECT n % {SHARDS}, gen_random_uuid(), gen_random_uuid()
        FROM generate_series(1, {ROWS}) AS n""",
    "skips": f"""
        INSERT INTO skips SELECT gen_random_uuid(), n, n, 1, 1, 0, 0, 0 FROM generate_series(1, {ROWS}) AS n""",
}

# A statement, its binds, a table, words of its index condition there.
Lookup = tuple[str, dict[str, Any], str, tuple[str, ...]]

both_modes = pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"], ids=["custom", "generic"])


def each_of(lookups: list[Lookup]) -> pytest.MarkDecorator:
    """For a test of one `lookup`."""
    return pytest.mark.parametrize("lookup", lookups, ids=[name for name, *_ in lookups])


async def crowd(world: StoreWorld, *tables: str, besides: tuple[str, ...] = ()) -> StoreWorld:
    """Fill these tables as CROWDS has it, and then by the statements `besides`; with fresh statistics."""
    registered()
    for sql in (*(CROWDS[table] for table in tables), *besides):
        await world.eye.execute(sql.replace(":bucket", str(world.bucket)))
    await world.eye.execute("ANALYZE")
    return world


async def check(world: StoreWorld, lookup: Lookup, mode: str, *, sorts: bool = False) -> None:
    """That the statement finds its rows of the table by these words, and sorts none unless it may."""
    name, binds, table, words = lookup
    found = await conditions(world, name, mode, **binds)
    assert all(word in condition for condition in found[table] for word in words), found
    assert sorts or "sorts" not in found, found


async def conditions(world: StoreWorld, statement: str, mode: str, **params: Any) -> dict[str, list[str]]:
    """The index conditions of the statement's plan, by table; a scan without an index fails."""
    sql, arguments = Call(statement, params).compiled()
    async with world.eye.transaction():
        for kind in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"):  # as the product's sessions have it
            await world.eye.execute(f"SET LOCAL enable_{kind} = off")
        await world.eye.execute(f"SET LOCAL plan_cache_mode = {mode}")
        shown = await world.eye.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *arguments)
    found: dict[str, list[str]] = {}
    pending = [json.loads(shown)[0]["Plan"]]
    while pending:
        node = pending.pop()
        pending += node.get("Plans", ())
        if node["Node Type"].startswith("Sort"):
            found.setdefault("sorts", []).append(str(node["Sort Key"]))
        if "Relation Name" in node and node["Node Type"] not in ("ModifyTable", "LockRows"):
            assert "Index Cond" in node, node
            found.setdefault(node["Relation Name"], []).append(node["Index Cond"])
    return found
