"""The SQL linter finds what it is there to find, one planted fault a rule, and the product's own SQL is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from core.store.fencing import FENCE, HELD, LANDING, LANDS
from core.store.schema import MIGRATIONS, Migration
from core.store.statement import Kind, Statement
from tools.sql_lint.__main__ import main
from tools.sql_lint.catalog import Catalog
from tools.sql_lint.lint import catalog_for, lint_everything, lint_migrations, lint_statement, registered
from tools.sql_lint.source import lint_sources

ITEM = "unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:news AS BIGINT[])) AS i(shard, term, new)"
BY_KEY = "WHERE r.run_id = CAST(:id AS UUID)"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return catalog_for(MIGRATIONS)


def planted(sql: str, kind: Kind = Kind.WRITE) -> Statement:
    """A statement that stands in no registry."""
    return Statement("planted", kind, sql.strip(), text(sql))


def rules_broken(sql: str, kind: Kind, catalog: Catalog) -> set[str]:
    return {finding.rule for finding in lint_statement(planted(sql, kind), catalog)}


def test_the_products_own_sql_follows_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert [str(finding) for finding in lint_everything()] == []
    assert main() == 0
    assert "follow the rules" in capsys.readouterr().out


BAD_STATEMENTS = {
    "two changes of one table": (
        "1",
        f"""WITH a AS (UPDATE runs AS r SET worker = '' {BY_KEY} RETURNING r.run_id)
            UPDATE runs AS r SET progress = NULL FROM a WHERE r.run_id = a.run_id""",
    ),
    "a change inside a sub-select": (
        "2",
        f"""WITH a AS (WITH b AS (UPDATE runs AS r SET worker = '' {BY_KEY} RETURNING r.run_id) SELECT b.run_id FROM b)
            SELECT a.run_id FROM a""",
    ),
    "reading back what the statement changes": (
        "2",
        f"""WITH a AS (UPDATE runs AS r SET worker = '' {BY_KEY} RETURNING r.run_id)
            SELECT r.worker FROM a JOIN runs r ON r.run_id = a.run_id""",
    ),
    "a constraint as the conflict target": (
        "3",
        "INSERT INTO shard_floors (shard, floor) SELECT CAST(:s AS BIGINT), 0 ON CONFLICT ON CONSTRAINT k DO NOTHING",
    ),
    "no conflict target": (
        "3",
        "INSERT INTO shard_floors (shard, floor) SELECT CAST(:s AS BIGINT), 0 ON CONFLICT DO NOTHING",
    ),
    "an expression as the conflict target": (
        "3",
        "INSERT INTO shard_floors (shard, floor) SELECT CAST(:s AS BIGINT), 0 ON CONFLICT ((shard + 1)) DO NOTHING",
    ),
    "a bind in the conflict predicate": (
        "3",
        """INSERT INTO shard_floors (shard, floor) SELECT CAST(:s AS BIGINT), 0
           ON CONFLICT (shard) WHERE floor = CAST(:f AS BIGINT) DO NOTHING""",
    ),
    "membership by a sub-select of unnest": (
        "4",
        "SELECT r.state FROM runs r WHERE r.run_id IN (SELECT unnest(CAST(:ids AS UUID[])))",
    ),
    "membership by a list of binds": (
        "4",
        "SELECT r.state FROM runs r WHERE r.run_id IN (CAST(:a AS UUID), CAST(:b AS UUID))",
    ),
    "values of several rows": ("4", "INSERT INTO shard_floors (shard, floor) VALUES (1, 0), (2, 0)"),
    "an array without a type": ("4", "SELECT s.shard FROM unnest(:shards) AS s(shard)"),
    "a limited delete": ("5", "DELETE FROM requests WHERE created_us < CAST(:before AS BIGINT) LIMIT 100"),
    "a delete that is not by key": ("5", "DELETE FROM requests WHERE created_us < CAST(:before AS BIGINT)"),
    "paging by offset": (
        "5",
        "SELECT j.name FROM jobs j ORDER BY j.name LIMIT CAST(:n AS BIGINT) OFFSET CAST(:o AS BIGINT)",
    ),
    "passing over locked rows": ("6", f"SELECT r.state FROM runs r {BY_KEY} FOR UPDATE SKIP LOCKED"),
    "a lock through another index": ("7", "SELECT r.state FROM runs r WHERE r.job_id = CAST(:j AS UUID) FOR UPDATE"),
    "an update through another index": ("7", "UPDATE runs AS r SET worker = '' WHERE r.job_id = CAST(:j AS UUID)"),
    "a weaker lock that is not weaker there": ("7", f"SELECT r.state FROM runs r {BY_KEY} FOR KEY SHARE"),
    "a lock with grouping": (
        "7",
        f"SELECT r.state FROM runs r {BY_KEY} GROUP BY r.state FOR UPDATE",
    ),
    "a lock on unnamed tables": (
        "7",
        f"SELECT r.state FROM runs r JOIN jobs j ON j.job_id = r.job_id {BY_KEY} FOR SHARE",
    ),
    "a four-byte integer": ("8", "SELECT CAST(:a AS INTEGER) AS a"),
    "a length": ("8", "SELECT CAST(:a AS VARCHAR(9)) AS a"),
    "a precision": ("8", "SELECT CAST(:a AS TIMESTAMPTZ(3)) AS a"),
    "a division": ("8", "SELECT CAST(:a AS BIGINT) / 5000 AS bucket"),
    "infinity": ("8", "SELECT CAST('infinity' AS TIMESTAMPTZ) AS a"),
    "an order of nulls": ("9", "SELECT j.name FROM jobs j ORDER BY j.name NULLS FIRST"),
    "an advisory lock": ("10", "SELECT pg_advisory_xact_lock(CAST(:a AS BIGINT))"),
    "listening": ("10", "LISTEN due"),
    "a merge": (
        "10",
        """MERGE INTO shard_floors l USING shard_marks m ON l.shard = m.shard
           WHEN MATCHED THEN UPDATE SET floor = m.watermark""",
    ),
    "a setting": ("10", "SET enable_multiple_modifications_of_table = on"),
    "a temporary table": ("10", "CREATE TEMP TABLE t (a BIGINT)"),
    "a table made by a select": ("10", "SELECT j.name INTO t FROM jobs j"),
    "a system column": ("10", f"SELECT r.xmin FROM runs r {BY_KEY}"),
    "another database's own syntax": ("11", f"SELECT r.state FROM runs r AS OF SYSTEM TIME '-5s' {BY_KEY}"),
    "a sample": ("11", "SELECT j.name FROM jobs j TABLESAMPLE SYSTEM (1)"),
    "ties": ("11", "SELECT j.name FROM jobs j ORDER BY j.name FETCH FIRST 3 ROWS WITH TIES"),
    "a reserved word": ("11", "SELECT j.name AS index FROM jobs j"),
    "a short cast": ("12", "SELECT CAST(:a AS BIGINT)::TEXT AS a"),
    "a star": ("12", f"SELECT * FROM runs r {BY_KEY}"),
    "a star of one table": ("12", f"UPDATE runs AS r SET worker = '' {BY_KEY} RETURNING r.*"),
    "a bare bind": ("12", "SELECT r.state FROM runs r WHERE r.run_id = :id"),
    "an unknown function": ("functions", "SELECT hashtext(CAST(:a AS TEXT)) AS a"),
    "a sum that stays NUMERIC": ("functions", "SELECT sum(r.attempt) AS a FROM runs r"),
    "the time of the transaction": (
        "clock",
        "SELECT r.state FROM runs r WHERE r.due_at_us <= extract(epoch FROM now())",
    ),
    "the current timestamp": ("clock", "SELECT CURRENT_TIMESTAMP AS server_us"),
    "the server's clock in a decision": (
        "clock",
        """INSERT INTO shard_floors (shard, floor)
           SELECT CAST(:s AS BIGINT), CAST(extract(epoch FROM clock_timestamp()) AS BIGINT)""",
    ),
}


@pytest.mark.parametrize("name", BAD_STATEMENTS)
def test_a_planted_fault_is_found(name: str, catalog: Catalog) -> None:
    rule, sql = BAD_STATEMENTS[name]
    assert rule in rules_broken(sql, Kind.WRITE, catalog)


SCAN = """SELECT d.id FROM due d WHERE d.shard = CAST(:s AS BIGINT) AND d.bucket >= CAST(:low AS BIGINT)
          AND d.bucket < CAST(:high AS BIGINT) ORDER BY d.shard, d.bucket, d.due_at_us, d.id LIMIT 10"""


@pytest.mark.parametrize(
    "missing",
    ["d.shard = CAST(:s AS BIGINT) AND ", "AND d.bucket < CAST(:high AS BIGINT)", "LIMIT 10"],
    ids=["the shard", "the upper bound", "the limit"],
)
def test_a_scan_of_due_without_a_bound_is_found(missing: str, catalog: Catalog) -> None:
    assert rules_broken(SCAN, Kind.READ, catalog) == set()
    assert rules_broken(SCAN.replace(missing, ""), Kind.READ, catalog) == {"21"}


def test_a_scan_of_due_without_its_lower_bound_is_found(catalog: Catalog) -> None:
    assert rules_broken(SCAN.replace("d.bucket >= CAST(:low AS BIGINT)\n", "TRUE\n"), Kind.READ, catalog) == {"21"}


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
def test_a_dispatchers_write_without_a_sound_fence_is_found(name: str, catalog: Catalog) -> None:
    there, instead = UNFENCED[name]
    assert rules_broken(ACT, Kind.ACT, catalog) == set()
    assert there in ACT
    assert "22" in rules_broken(ACT.replace(there, instead), Kind.ACT, catalog)


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
def test_an_unsound_look_at_the_fence_is_found(name: str, catalog: Catalog) -> None:
    there, instead = UNFENCED_LOOKS[name]
    assert rules_broken(ACT_BY_LOOKS, Kind.ACT, catalog) == set()
    assert there in ACT_BY_LOOKS
    assert "22" in rules_broken(ACT_BY_LOOKS.replace(there, instead), Kind.ACT, catalog)


def test_every_dispatchers_write_of_the_product_is_found_once_its_lock_is_gone(catalog: Catalog) -> None:
    acts = [statement for statement in registered() if statement.kind is Kind.ACT]
    assert len(acts) >= 10
    for act in acts:
        unlocked = act.sql.replace("FOR SHARE OF t", "")
        assert unlocked != act.sql, act.name
        assert "22" in rules_broken(unlocked, Kind.ACT, catalog), act.name


@pytest.mark.parametrize(
    "bound", ["AND i.bucket >= held.from_bucket", "AND i.bucket < held.to_bucket"], ids=["from", "to"]
)
def test_consuming_due_rows_outside_the_terms_range_is_found(bound: str, catalog: Catalog) -> None:
    for name in ("fire_and_move_chains", "fire_and_end_chains", "fire_due_runs"):
        sql = next(s.sql for s in registered() if s.name == name)
        assert "22" in rules_broken(sql.replace(bound, ""), Kind.ACT, catalog)


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
def test_landing_below_the_floor_is_found(name: str, catalog: Catalog) -> None:
    there, instead = BELOW_THE_FLOOR[name]
    assert rules_broken(LAND, Kind.LAND, catalog) == set()
    assert there in LAND
    assert "landing" in rules_broken(LAND.replace(there, instead), Kind.LAND, catalog)


LAND_BY_LOOKS = LAND.replace("JOIN landing l ON l.shard = i.shard", LANDS).replace("l.floor)", "lands.floor)")
UNSOUND_LOOKS = {
    "at any floor": ("WHERE l.shard = i.shard LIMIT 1", "LIMIT 1"),
    "at another shard's floor": ("WHERE l.shard = i.shard LIMIT 1", "WHERE l.shard = i.bucket LIMIT 1"),
    "at the floors themselves": ("FROM landing l WHERE", "FROM shard_floors l WHERE"),
    "at an unlocked floor": ("FOR SHARE OF l", ""),
}


@pytest.mark.parametrize("name", UNSOUND_LOOKS)
def test_an_unsound_look_at_the_floor_is_found(name: str, catalog: Catalog) -> None:
    there, instead = UNSOUND_LOOKS[name]
    assert rules_broken(LAND_BY_LOOKS, Kind.LAND, catalog) == set()
    assert there in LAND_BY_LOOKS
    assert "landing" in rules_broken(LAND_BY_LOOKS.replace(there, instead), Kind.LAND, catalog)


def test_moving_a_chain_below_the_floor_is_found(catalog: Catalog) -> None:
    sql = next(s.sql for s in registered() if s.name == "fire_and_move_chains")
    assert "landing" in rules_broken(
        sql.replace("GREATEST(i.next_bucket, lands.floor)", "i.next_bucket"), Kind.ACT, catalog
    )


def test_looking_up_another_shards_floor_or_term_is_found(catalog: Catalog) -> None:
    sql = next(s.sql for s in registered() if s.name == "fire_and_move_chains")
    for there, instead, rule in (
        ("WHERE l.shard = i.shard LIMIT 1", "WHERE l.shard = i.term LIMIT 1", "landing"),
        ("WHERE l.shard = i.shard LIMIT 1", "LIMIT 1", "landing"),
        ("AND f.term = i.term LIMIT 1", "LIMIT 1", "22"),
    ):
        assert there in sql
        assert rule in rules_broken(sql.replace(there, instead), Kind.ACT, catalog)


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
def test_a_statement_that_does_more_than_its_kind_is_found(name: str, catalog: Catalog) -> None:
    rule, kind, sql = BAD_BY_KIND[name]
    assert rule in rules_broken(sql, kind, catalog)


TABLE = "CREATE TABLE IF NOT EXISTS t (a BIGINT NOT NULL, b TEXT, PRIMARY KEY (a))"
BAD_SCHEMA = {
    "a four-byte integer": ("8", TABLE.replace("b TEXT", "b INT")),
    "a serial": ("8", TABLE.replace("b TEXT", "b BIGSERIAL")),
    "a length": ("8", TABLE.replace("b TEXT", "b VARCHAR(3)")),
    "an identity": ("10", TABLE.replace("b TEXT", "b BIGINT GENERATED ALWAYS AS IDENTITY")),
    "a nullable key": ("9", TABLE.replace("a BIGINT NOT NULL", "a BIGINT")),
    "no key": ("9", "CREATE TABLE IF NOT EXISTS t (a BIGINT NOT NULL)"),
    "a unique constraint": ("9", TABLE.replace("b TEXT", "b TEXT NOT NULL UNIQUE")),
    "a nullable index column": ("9", "CREATE INDEX IF NOT EXISTS i ON runs (token_hash)"),
    "an order of nulls": ("9", "CREATE INDEX IF NOT EXISTS i ON runs (worker NULLS FIRST)"),
    "the key included": ("9", "CREATE INDEX IF NOT EXISTS i ON runs (worker) INCLUDE (run_id)"),
    "a computed predicate": ("9", "CREATE INDEX IF NOT EXISTS i ON runs (worker) WHERE length(worker) > 3"),
    "a name taken": ("9", "CREATE INDEX IF NOT EXISTS runs_by_job ON jobs (namespace)"),
    "a foreign key": ("10", TABLE.replace("b TEXT", "b UUID REFERENCES jobs (job_id) ON DELETE CASCADE")),
    "partitions": ("10", TABLE + " PARTITION BY HASH (a)"),
    "a temporary table": ("10", TABLE.replace("CREATE TABLE", "CREATE TEMP TABLE")),
    "an exclusion": ("10", TABLE.replace("PRIMARY KEY (a)", "PRIMARY KEY (a), EXCLUDE USING gist (b WITH =)")),
    "a deferrable key": ("10", TABLE.replace("PRIMARY KEY (a)", "PRIMARY KEY (a) DEFERRABLE")),
    "a hash index": ("10", "CREATE INDEX IF NOT EXISTS i ON runs USING hash (worker)"),
    "nulls not distinct": ("10", "CREATE UNIQUE INDEX IF NOT EXISTS i ON runs (worker) NULLS NOT DISTINCT"),
    "an enum": ("10", "CREATE TYPE mood AS ENUM ('sad', 'ok')"),
    "a sequence": ("10", "CREATE SEQUENCE IF NOT EXISTS s"),
    "a trigger": ("10", "CREATE TRIGGER t AFTER INSERT ON runs EXECUTE FUNCTION f()"),
    "a default that only one database has": ("10", TABLE.replace("b TEXT", "b UUID DEFAULT uuidv7()")),
    "storage of one database": ("11", TABLE + " WITH (fillfactor = 50)"),
    "a zone without its dialect": ("11", "ALTER TABLE due CONFIGURE ZONE USING gc.ttlseconds = 600"),
    "a reserved word": ("11", TABLE.replace("b TEXT", '"index" TEXT')),
    "a step that cannot be run twice": ("14", TABLE.replace("IF NOT EXISTS ", "")),
    "a column that cannot be added twice": ("14", "ALTER TABLE runs ADD COLUMN x BIGINT"),
    "two steps in one": ("14", f"{TABLE}; CREATE INDEX IF NOT EXISTS t_b ON t (a)"),
    "a number taken": ("14", TABLE),
}


@pytest.mark.parametrize("name", BAD_SCHEMA)
def test_a_planted_fault_in_the_schema_is_found(name: str) -> None:
    rule, ddl = BAD_SCHEMA[name]
    number = 1 if name == "a number taken" else 900
    assert rule in {finding.rule for finding in lint_migrations([*MIGRATIONS, Migration(number, "planted", ddl)])}


def test_a_sound_table_passes() -> None:
    assert list(lint_migrations([*MIGRATIONS, Migration(900, "planted", TABLE)])) == []


@pytest.mark.parametrize(
    ("dialect", "ddl"),
    [
        ("cockroachdb", "CREATE TABLE t (a INT)"),
        ("postgresql", TABLE),
        ("postgresql", "ALTER TABLE runs ADD COLUMN IF NOT EXISTS a BIGINT"),
    ],
)
def test_a_step_for_one_database_may_only_tune(dialect: str, ddl: str) -> None:
    findings = lint_migrations([*MIGRATIONS, Migration(900, "planted", ddl, dialect)])
    assert "11" in {finding.rule for finding in findings}


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("12", "changed = result.rowcount"),
        ("12", "rows = await connection.stream(what)"),
        ("registry", "await connection.execute(text('SELECT 1'))"),
        ("registry", "await connection.exec_driver_sql('SELECT 1')"),
    ],
)
def test_sql_beside_the_registry_is_found(rule: str, source: str, tmp_path: Path) -> None:
    file = tmp_path / "beside.py"
    file.write_text(f"async def f(connection, result, what, text):\n    {source}\n")
    assert [finding.rule for finding in lint_sources([file])] == [rule]


def test_a_finding_is_one_line_with_its_statement_and_rule(catalog: Catalog) -> None:
    (finding,) = lint_statement(planted("SELECT r.state FROM runs r WHERE r.run_id = :id", Kind.READ), catalog)
    assert str(finding) == "planted: rule 12: bind 1 stands outside a CAST"
