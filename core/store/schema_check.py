"""Waits until the database has this release's schema. Called by every role at its start, before its first statement."""

from __future__ import annotations

import logging

from sqlalchemy.exc import DBAPIError

from core.clock import Clock
from core.store.database import Database
from core.store.schema import MIGRATIONS
from core.store.statement import Kind, statement
from core.store.transact import sqlstate_of

log = logging.getLogger(__name__)

_APPLIED = statement("list_applied_migrations", Kind.READ, "SELECT number FROM schema_migrations ORDER BY number")
_UNDEFINED_TABLE = "42P01"
_EVERY_S = 0.5


async def wait_for_schema(database: Database, clock: Clock) -> None:
    """Return once every migration of this release is there; one line says what is waited for. Raises Unavailable."""
    told = False
    while (missing := await _missing(database)) > 0:
        if not told:
            log.warning("waiting for the schema: %d migrations are missing; run `tidewheel migrate`", missing)
        told = True
        await clock.sleep(_EVERY_S)


async def _missing(database: Database) -> int:
    dialect = "cockroachdb" if database.config.is_cockroach else "postgresql"
    wanted = {step.number for step in MIGRATIONS if step.dialect in (None, dialect)}
    try:
        return len(wanted - {row.number for row in await database.run(_APPLIED)})
    except DBAPIError as error:
        if sqlstate_of(error) == _UNDEFINED_TABLE:
            return len(wanted)
        raise
