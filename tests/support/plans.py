"""What PostgreSQL makes of a statement: the index conditions by which it finds rows, with either kind of plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw_statements import Call
from tests.support.store_world import StoreWorld

both_modes = pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"], ids=["custom", "generic"])


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
