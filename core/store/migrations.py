"""Brings a database to this release's schema. Called by `tidewheel migrate`, `tidewheel dev` and the tests."""

from __future__ import annotations

from core.clock import SystemClock
from core.rand import SystemRand
from core.store.database import Database, DatabaseConfig
from core.store.schema import LEDGER_DDL, MIGRATIONS, Migration
from core.store.statement import Kind, statement

_APPLIED = statement("list_migrations", Kind.READ, "SELECT number FROM schema_migrations ORDER BY number")
_RECORD = statement(
    "record_migration",
    Kind.WRITE,
    """
    INSERT INTO schema_migrations (number, name) VALUES (CAST(:number AS BIGINT), CAST(:name AS TEXT))
    ON CONFLICT (number) DO NOTHING
    """,
)


async def migrate(url: str, *, connect_timeout_s: float = 5.0) -> list[Migration]:
    """Apply every migration that the database does not have yet, in order; returns those.

    Safe to run twice and by two processes at once: each DDL is idempotent. Raises Unavailable or Invalid.
    """
    config = DatabaseConfig(
        url,
        pool_size=1,
        statement_timeout_s=60.0,
        connect_timeout_s=connect_timeout_s,
        application_name="tidewheel migrate",
    )
    database = Database(config, SystemClock(), SystemRand())
    try:
        await database.check()
        await database.run_ddl(LEDGER_DDL)
        applied = {row.number for row in await database.run(_APPLIED)}
        dialect = "cockroachdb" if config.is_cockroach else "postgresql"
        done = []
        for step in MIGRATIONS:
            if step.number in applied or step.dialect not in (None, dialect):
                continue
            await database.run_ddl(step.ddl)
            await database.run(_RECORD, {"number": step.number, "name": step.name}, repeat_unknown=True)
            done.append(step)
        return done
    finally:
        await database.close()
