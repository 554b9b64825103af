"""The SQL linter on our own protocol: scans of `due`, the fence, the floor, terms and kinds, one planted fault each."""

from __future__ import annotations

import pytest

from core.store.fencing import FENCE, HELD, LANDING, LANDS
from core.store.statement import Kind
from tests.support.planted_sql import BY_KEY, rules_broken
from tools.sql_lint.lint import registered

ITEM = "unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:news AS BIGINT[])) AS i(shard, term, new)"


SCAN = """SELECT d.id FROM due d WHERE d.shard = CAST(:s AS BIGINT) AND d.bucket >= CAST(:low AS BIGINT)
          AND d.bucket < CAST(:high AS BIGINT) ORDER BY d.shard, d.bucket, d.due_at_us, d.id LIMIT 10"""


@pytest.mark.parametrize(
    "missing",
    ["d.shard = CAST(:s AS BIGINT) AND ", "AND d.bucket < CAST(:high AS BIGINT)", "LIMIT 10"],
    ids=["the shard", "the upper bound", "the limit"],
)
def test_a_scan_of_due_without_a_bound_is_found(missing: str) -> None:
    assert rules_broken(SCAN, Kind.READ) == set()
    assert rules_broken(SCAN.replace(missing, ""), Kind.READ) == {"21"}


def test_a_scan_of_due_without_its_lower_bound_is_found() -> None:
    assert rules_broken(SCAN.replace("d.bucket >= CAST(:low AS BIGINT)\n", "TRUE\n"), Kind.READ) == {"21"}


ACT = f"""
    WITH {FENCE}, moved AS (
      UPDATE shard_marks AS k SET watermark = i.new
      FROM {ITEM} JOIN fence ON fence.shard = i.shard AND fence.term = i.term
      WHERE k.shard = i.shard
      RETURNING k.shard, i.term
    ), noted AS (
      INSERT INTO open_runs (shard, job_id, run_id)
      SELECT m.shard, CAST(:job_id AS UUID), CAST(:run_id AS UUID) FROM moved m
    )
    SELECT f.shard, m.shard AS moved FROM fence f LEFT JOIN moved m ON m.shard = f.shard AND m.term = f.term
"""
UNFENCED = {
    "no lock": ("FOR SHARE OF t", ""),
    "an exclusive lock instead of a shared one": ("FOR SHARE OF t", "FOR UPDATE OF t"),
    "no owner": ("t.owner = CAST(:owner AS TEXT) AND ", ""),
    "no state": (" AND t.state = 1", ""),
    "a closed state": ("t.state = 1", "t.state = 2"),
    "no term": (" AND t.term = f.term", ""),
    "no shard": ("t.shard = f.shard AND ", ""),
    "a fence that nobody asks": ("JOIN fence ON fence.shard = i.shard AND fence.term = i.term", ""),
    "an outer join to the fence": ("JOIN fence ON", "LEFT JOIN fence ON"),
    "a fence of any term": (" AND fence.term = i.term", ""),
    "a fence in a condition": (
        "JOIN fence ON fence.shard = i.shard AND fence.term = i.term\n      WHERE k.shard = i.shard",
        "WHERE k.shard = i.shard AND EXISTS (SELECT 1 FROM fence WHERE fence.shard = i.shard AND fence.term = i.term)",
    ),
    "a counted fence": (
        "SELECT t.shard, t.term, t.from_bucket, t.to_bucket",
        "SELECT count(t.shard) AS shard, 1 AS term",
    ),
    "a second branch without the first": (
        "CAST(:run_id AS UUID) FROM moved m",
        "CAST(:run_id AS UUID) FROM shard_marks m",
    ),
    "a counted branch": ("SELECT m.shard, CAST(:job_id AS UUID)", "SELECT count(m.shard), CAST(:job_id AS UUID)"),
    "a second branch on the loose side": (
        "FROM moved m\n    )",
        "FROM shard_marks k LEFT JOIN moved m ON m.shard = k.shard\n )",
    ),
    "a second branch without a join": ("FROM moved m\n    )", "FROM moved m CROSS JOIN jobs j\n )"),
    "a union with a free arm": (
        "FROM moved m\n    )",
        "FROM moved m UNION ALL SELECT k.shard, CAST(:j AS UUID), CAST(:r AS UUID) FROM shard_marks k\n )",
    ),
}


@pytest.mark.parametrize("name", UNFENCED)
def test_a_dispatchers_write_without_a_sound_fence_is_found(name: str) -> None:
    there, instead = UNFENCED[name]
    assert rules_broken(ACT, Kind.ACT) == set()
    assert there in ACT
    assert "22" in rules_broken(ACT.replace(there, instead), Kind.ACT)


LOOK = "SELECT f.from_bucket, f.to_bucket FROM fence f WHERE f.shard = i.shard AND f.term = i.term LIMIT 1"
ACT_BY_LOOKS = ACT.replace("JOIN fence ON fence.shard = i.shard AND fence.term = i.term", HELD)
UNFENCED_LOOKS = {
    "at any term": (" AND f.term = i.term", ""),
    "at any shard": ("f.shard = i.shard AND ", ""),
    "on the loose side": (
        f"CROSS JOIN LATERAL (\n        {LOOK}\n      ) AS held",
        f"LEFT JOIN LATERAL ({LOOK}) AS held ON TRUE",
    ),
    "that counts": (
        "SELECT f.from_bucket, f.to_bucket FROM fence f",
        "SELECT count(f.shard) AS from_bucket FROM fence f",
    ),
    "at the terms themselves": ("FROM fence f WHERE", "FROM shard_terms f WHERE"),
}


@pytest.mark.parametrize("name", UNFENCED_LOOKS)
def test_an_unsound_look_at_the_fence_is_found(name: str) -> None:
    there, instead = UNFENCED_LOOKS[name]
    assert rules_broken(ACT_BY_LOOKS, Kind.ACT) == set()
    assert there in ACT_BY_LOOKS
    assert "22" in rules_broken(ACT_BY_LOOKS.replace(there, instead), Kind.ACT)


def test_every_dispatchers_write_of_the_product_is_found_once_its_lock_is_gone() -> None:
    acts = [statement for statement in registered() if statement.kind is Kind.ACT]
    assert len(acts) >= 10
    for act in acts:
        unlocked = act.sql.replace("FOR SHARE OF t", "")
        assert unlocked != act.sql, act.name
        assert "22" in rules_broken(unlocked, Kind.ACT), act.name


@pytest.mark.parametrize(
    "bound", ["AND i.bucket >= held.from_bucket", "AND i.bucket < held.to_bucket"], ids=["from", "to"]
)
def test_consuming_due_rows_outside_the_terms_range_is_found(bound: str) -> None:
    for name in ("fire_and_move_chains", "fire_and_end_chains", "fire_due_runs"):
        sql = next(s.sql for s in registered() if s.name == name)
        assert "22" in rules_broken(sql.replace(bound, ""), Kind.ACT)


LAND = f"""
    WITH {LANDING}
    INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
    SELECT i.shard, GREATEST(i.bucket, l.floor), 0, CAST(:id AS UUID), 1, CAST(:job_id AS UUID), 1, 0
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:buckets AS BIGINT[])) AS i(shard, bucket)
    JOIN landing l ON l.shard = i.shard
    ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
"""
BELOW_THE_FLOOR = {
    "no floor": ("GREATEST(i.bucket, l.floor)", "i.bucket"),
    "the lesser": ("GREATEST", "LEAST"),
    "an unlocked floor": ("FOR SHARE OF l", ""),
    "another shard's floor": ("JOIN landing l ON l.shard = i.shard", "CROSS JOIN landing l"),
    "the floor of no shard in particular": ("JOIN shard_floors l ON l.shard = w.shard", "CROSS JOIN shard_floors l"),
    "an outer join to the floor": ("JOIN landing", "LEFT JOIN landing"),
}


@pytest.mark.parametrize("name", BELOW_THE_FLOOR)
def test_landing_below_the_floor_is_found(name: str) -> None:
    there, instead = BELOW_THE_FLOOR[name]
    assert rules_broken(LAND, Kind.LAND) == set()
    assert there in LAND
    assert "landing" in rules_broken(LAND.replace(there, instead), Kind.LAND)


LAND_BY_LOOKS = LAND.replace("JOIN landing l ON l.shard = i.shard", LANDS).replace("l.floor)", "lands.floor)")
UNSOUND_LOOKS = {
    "at any floor": ("WHERE l.shard = i.shard LIMIT 1", "LIMIT 1"),
    "at another shard's floor": ("WHERE l.shard = i.shard LIMIT 1", "WHERE l.shard = i.bucket LIMIT 1"),
    "at the floors themselves": ("FROM landing l WHERE", "FROM shard_floors l WHERE"),
    "at an unlocked floor": ("FOR SHARE OF l", ""),
}


@pytest.mark.parametrize("name", UNSOUND_LOOKS)
def test_an_unsound_look_at_the_floor_is_found(name: str) -> None:
    there, instead = UNSOUND_LOOKS[name]
    assert rules_broken(LAND_BY_LOOKS, Kind.LAND) == set()
    assert there in LAND_BY_LOOKS
    assert "landing" in rules_broken(LAND_BY_LOOKS.replace(there, instead), Kind.LAND)


def test_moving_a_chain_below_the_floor_is_found() -> None:
    sql = next(s.sql for s in registered() if s.name == "fire_and_move_chains")
    assert "landing" in rules_broken(sql.replace("GREATEST(i.next_bucket, lands.floor)", "i.next_bucket"), Kind.ACT)


def test_looking_up_another_shards_floor_or_term_is_found() -> None:
    sql = next(s.sql for s in registered() if s.name == "fire_and_move_chains")
    for there, instead, rule in (
        ("WHERE l.shard = i.shard LIMIT 1", "WHERE l.shard = i.term LIMIT 1", "landing"),
        ("WHERE l.shard = i.shard LIMIT 1", "LIMIT 1", "landing"),
        ("AND f.term = i.term LIMIT 1", "LIMIT 1", "22"),
    ):
        assert there in sql
        assert rule in rules_broken(sql.replace(there, instead), Kind.ACT)


BAD_BY_KIND = {
    "a read that writes": ("kinds", Kind.READ, f"UPDATE runs AS r SET worker = '' {BY_KEY}"),
    "a landing that lands nothing": ("kinds", Kind.LAND, f"SELECT r.state FROM runs r {BY_KEY}"),
    "a landing that is called a write": ("kinds", Kind.WRITE, LAND),
    "schema in the registry": ("kinds", Kind.SCHEMA, f"SELECT r.state FROM runs r {BY_KEY}"),
    "a write that consumes due rows": (
        "kinds",
        Kind.WRITE,
        """DELETE FROM due AS d WHERE d.shard = CAST(:s AS BIGINT) AND d.bucket = CAST(:b AS BIGINT)
           AND d.due_at_us = CAST(:d AS BIGINT) AND d.id = CAST(:id AS UUID)""",
    ),
    "a write that moves a floor": (
        "kinds",
        Kind.WRITE,
        "UPDATE shard_floors AS l SET floor = 0 WHERE l.shard = CAST(:s AS BIGINT)",
    ),
    "a write that makes a run stand": (
        "kinds",
        Kind.WRITE,
        f"""INSERT INTO open_runs (shard, job_id, run_id) SELECT r.shard, r.job_id, r.run_id FROM runs r {BY_KEY}
            ON CONFLICT (shard, job_id, run_id) DO NOTHING""",
    ),
    "a term closed by another kind": (
        "terms",
        Kind.ACT,
        """UPDATE shard_terms AS t SET state = 2 WHERE t.shard = CAST(:s AS BIGINT) AND t.term = CAST(:t AS BIGINT)""",
    ),
    "a claim that touches another table": (
        "terms",
        Kind.TERM,
        "UPDATE shard_floors AS l SET floor = 0 WHERE l.shard = CAST(:s AS BIGINT)",
    ),
    "a claim that does not name what it replaces": (
        "terms",
        Kind.TERM,
        """UPDATE shard_terms AS t SET state = 2 WHERE t.shard = CAST(:s AS BIGINT) AND t.term = CAST(:t AS BIGINT)
           AND t.state = 1""",
    ),
    "a term picked by a bucket": (
        "terms",
        Kind.READ,
        """SELECT t.owner FROM shard_terms t WHERE t.shard = CAST(:s AS BIGINT)
           AND t.from_bucket <= CAST(:b AS BIGINT) AND CAST(:b AS BIGINT) < t.to_bucket""",
    ),
}


@pytest.mark.parametrize("name", BAD_BY_KIND)
def test_a_statement_that_does_more_than_its_kind_is_found(name: str) -> None:
    rule, kind, sql = BAD_BY_KIND[name]
    assert rule in rules_broken(sql, kind)


TELL = """
    UPDATE due AS d SET told_version = i.told_version
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:buckets AS BIGINT[]), CAST(:due_ats_us AS BIGINT[]),
                CAST(:ids AS UUID[]), CAST(:told_versions AS BIGINT[]))
      AS i(shard, bucket, due_at_us, id, told_version)
    WHERE d.shard = i.shard AND d.bucket = i.bucket AND d.due_at_us = i.due_at_us AND d.id = i.id
    RETURNING d.id
"""


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("SET told_version = i.told_version", "SET bucket = i.bucket"),
        ("SET told_version = i.told_version", "SET told_version = i.told_version, due_at_us = i.due_at_us"),
        (" AND d.due_at_us = i.due_at_us", ""),
        ("UPDATE due AS d", "UPDATE runs AS d"),
        ("UPDATE due AS d SET told_version = i.told_version\n    FROM", "DELETE FROM due AS d USING"),
    ],
    ids=["moves", "moves a little", "any row of a bucket", "of another table", "deletes"],
)
def test_a_change_of_a_job_tells_due_rows_and_does_nothing_else(was: str, becomes: str) -> None:
    assert rules_broken(TELL, Kind.TELL) == set()
    assert "kinds" in rules_broken(TELL, Kind.WRITE)
    assert was in TELL
    assert "kinds" in rules_broken(TELL.replace(was, becomes), Kind.TELL)
