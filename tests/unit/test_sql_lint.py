"""The SQL linter finds what it is there to find, one planted fault a rule, and the product's own SQL is clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.store.schema import MIGRATIONS, Migration
from core.store.statement import Kind
from tests.support.planted_sql import BY_KEY, findings, rules_broken
from tools.sql_lint.__main__ import main
from tools.sql_lint.lint import lint_everything, lint_migrations
from tools.sql_lint.source import lint_sources


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
def test_a_planted_fault_is_found(name: str) -> None:
    rule, sql = BAD_STATEMENTS[name]
    assert rule in rules_broken(sql, Kind.WRITE)


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


def test_a_finding_is_one_line_with_its_statement_and_rule() -> None:
    (finding,) = findings("SELECT r.state FROM runs r WHERE r.run_id = :id", Kind.READ)
    assert str(finding) == "planted: rule 12: bind 1 stands outside a CAST"
