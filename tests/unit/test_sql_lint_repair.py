"""The SQL linter on the reconciler's repairs: each guard that is taken out of one of them is missed."""

from __future__ import annotations

from itertools import chain

import pytest

from core.store import repairs
from core.store.statement import Kind, Statement
from tests.support.planted_sql import BY_KEY, rules_broken
from tools.sql_lint.lint import registered

MOVE, STAND, RETRY, CHAIN = "reland_stray_due_row", "stand_unfound_run", "land_missing_retry", "land_lost_chain"
NO_TWIN = ("o.id = i.due_id", "TRUE")
FAULTS: dict[str, dict[str, tuple[str, str, set[str]]]] = {
    MOVE: {
        "any row of a time": (" AND d.id = i.due_id", "", {"repair"}),
        "what an owner may act on": ("AND d.bucket < m.watermark", "", {"repair"}),
        "below another mark": ("d.bucket < m.watermark", "d.bucket < m.open_from_us", {"repair"}),
        "below any shard's mark": ("JOIN shard_marks m ON m.shard = i.shard", "CROSS JOIN shard_marks m", {"repair"}),
        "below no mark in particular": ("JOIN shard_marks m", "LEFT JOIN shard_marks m", {"repair"}),
        "to below the floor": ("GREATEST(i.bucket, lands.floor)", "i.bucket", {"landing"}),
        "beside its twin": (*NO_TWIN, {"repair"}),
        "where its twin stands": ("IS NULL", "IS NOT NULL", {"repair"}),
    },
    STAND: {
        "any run": ("r.run_id = CAST(:run_id AS UUID) AND ", "", {"repair"}),
        "a run in whatever state": (" AND r.state IN (1, 2)", "", {"repair"}),
        "a run that may end meanwhile": ("FOR UPDATE OF r", "", {"repair"}),
        "a run under a lock that lets others write": ("FOR UPDATE OF r", "FOR SHARE OF r", {"repair"}),
        "over what stands": ("DO NOTHING", "DO UPDATE SET job_id = excluded.job_id", {"repair"}),
        "what was never looked at": ("FROM open i", "FROM due i", {"repair"}),
        "with a note of its own": ("FROM changed c\n    )", "FROM open c\n    )", {"repair"}),
    },
    RETRY: {
        "of any attempt": ("AND r.attempt = CAST(:attempt AS BIGINT)", "", {"repair"}),
        "of any rest": (" AND r.not_before_us = CAST(:not_before_us AS BIGINT)", "", {"repair"}),
        "of a run in whatever state": (" AND r.state = 1", "", {"repair"}),
        "unlocked": ("FOR UPDATE OF r", "", {"repair"}),
        "beside its twin": (*NO_TWIN, {"repair"}),
        "without asking for a twin": ("IS NULL", "IS NOT NULL", {"repair"}),
        "below the floor": ("GREATEST(CAST(:bucket AS BIGINT), lands.floor)", "CAST(:bucket AS BIGINT)", {"landing"}),
    },
    CHAIN: {
        "of any version": (" AND j.version = CAST(:job_version AS BIGINT)", "", {"repair"}),
        "of a job that is paused": (" AND j.state = 1", "", {"repair"}),
        "of any job": ("j.job_id = CAST(:job_id AS UUID) AND ", "", {"repair"}),
        "under a lock that gives way": ("FOR UPDATE OF j", "FOR UPDATE OF j NOWAIT", {"repair"}),
        "beside its twin": (*NO_TWIN, {"repair"}),
        "below the floor": ("GREATEST(CAST(:bucket AS BIGINT), lands.floor)", "CAST(:bucket AS BIGINT)", {"landing"}),
    },
}
PLANTED = list(chain.from_iterable(((name, fault) for fault in faults) for name, faults in FAULTS.items()))


def sql_of(name: str) -> str:
    return next(statement.sql for statement in registered() if statement.name == name)


@pytest.mark.parametrize(("name", "fault"), PLANTED)
def test_a_repair_without_one_of_its_guards_is_found(name: str, fault: str) -> None:
    was, becomes, rules = FAULTS[name][fault]
    sql = sql_of(name)
    assert was in sql
    assert rules_broken(sql, Kind.REPAIR) == set()
    assert rules <= rules_broken(sql.replace(was, becomes), Kind.REPAIR)


AUDIT = """INSERT INTO audit (namespace, at_us, audit_id, actor, action, object, version, request_id, note, server_us)
      SELECT '', 0, CAST(:audit_id AS UUID), '', '', '', 0, '', '', 0 FROM changed c"""
OUT_OF_PLACE = {
    "a run": f"UPDATE runs AS r SET lease_until_us = 0, state = 1 {BY_KEY} AND r.state = 2 RETURNING r.run_id",
    "a mark": """UPDATE shard_marks AS m SET open_from_us = 0 WHERE m.shard = CAST(:shard AS BIGINT)
                 RETURNING m.shard""",
    "nothing: it deletes": """DELETE FROM due AS d WHERE d.shard = CAST(:s AS BIGINT) AND d.bucket = CAST(:b AS BIGINT)
                 AND d.due_at_us = CAST(:t AS BIGINT) AND d.id = CAST(:id AS UUID) RETURNING d.id""",
    "a table that is not the reconciler's": f"""INSERT INTO skips (job_id, from_us, to_us, reason, job_version, shard,
                 term, recorded_us) SELECT r.job_id, 0, 0, 1, 1, r.shard, 1, 0 FROM runs r {BY_KEY}
                 ON CONFLICT (job_id, from_us) DO NOTHING RETURNING job_id""",
}


@pytest.mark.parametrize("what", OUT_OF_PLACE)
def test_a_repair_that_changes_anything_else_is_found(what: str) -> None:
    sql = f"WITH changed AS ({OUT_OF_PLACE[what]}), audited AS ({AUDIT}) SELECT 1 AS one FROM changed c"
    assert "repair" in rules_broken(sql, Kind.REPAIR)


def test_a_repair_that_leaves_no_trace_is_found() -> None:
    sql = sql_of(STAND)
    begin, end = sql.index(", audited AS"), sql.index("SELECT c.id FROM changed c")
    assert rules_broken(f"{sql[:begin]} {sql[end:]}", Kind.REPAIR) == {"repair"}


def test_all_that_the_reconciler_writes_is_held_to_this() -> None:
    written = [each for each in vars(repairs).values() if isinstance(each, Statement) and each.kind is not Kind.READ]
    assert {each.name for each in written} == FAULTS.keys()
    assert {each.kind for each in written} == {Kind.REPAIR}
