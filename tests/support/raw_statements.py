"""Registered statements on connections of the test's own, so that it decides when each begins, waits and commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from core.store.database import Database, DatabaseConfig
from core.store.statement import STATEMENTS, Statement
from tests.support.polling import eventually
from tests.support.store_world import StoreWorld, asyncpg_url


@dataclass(frozen=True)
class Call:
    """A statement's name with its binds; `sql` may differ from the registered text."""

    name: str
    params: Mapping[str, Any]
    sql: str = ""

    def compiled(self) -> tuple[str, list[Any]]:
        """The text with $1 and so on, and its arguments in order."""
        what = STATEMENTS[self.name]
        if self.sql:
            what = Statement(what.name, what.kind, self.sql, type(what.clause)(self.sql))
        form = what.clause.compile(dialect=dialect())  # type: ignore[no-untyped-call]
        return str(form), [self.params[name] for name in form.positiontup or ()]


async def fetch(connection: asyncpg.Connection, call: Call) -> Sequence[asyncpg.Record]:
    """Run it on the connection, within whatever transaction is open there."""
    sql, arguments = call.compiled()
    return list(await connection.fetch(sql, *arguments))


async def captured(database: Database, act: Callable[[], Awaitable[object]]) -> Call:
    """The one statement that `act` would run, without running it."""
    calls: list[Call] = []

    async def note(what: Statement, params: Mapping[str, Any] | None = None, **_: object) -> Sequence[Any]:
        calls.append(Call(what.name, dict(params or {})))
        return ()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "run", note)
        await act()
    return calls[0]


async def connect(config: DatabaseConfig, name: str) -> asyncpg.Connection:
    """A connection at the test's isolation level; `name` tells it apart in pg_stat_activity."""
    settings = {"default_transaction_isolation": config.wanted_isolation.lower(), "application_name": name}
    return await asyncpg.connect(asyncpg_url(config.url), server_settings=settings)


async def until_waiting(eye: asyncpg.Connection, name: str, sessions: int = 1) -> None:
    """Wait until so many sessions of that application name wait for a lock; `eye` may be in a transaction itself."""

    async def waits() -> bool:
        await eye.execute("SELECT pg_stat_clear_snapshot()")  # what a transaction saw of others it sees for ever
        query = """SELECT count(*) FROM pg_stat_activity
                   WHERE application_name = $1 AND datname = current_database() AND wait_event_type = 'Lock'"""
        return int(await eye.fetchval(query, name)) >= sessions

    await eventually(waits, what=f"{sessions} of {name} wait for a lock")


async def until_held_up(world: StoreWorld, sessions: int = 1) -> None:
    """Wait until so many of the product's sessions wait for a lock. CockroachDB does not tell: there, for a moment."""
    config = world.database.config
    if config.is_cockroach:
        await asyncio.sleep(0.1)
    else:
        await until_waiting(world.eye, config.application_name, sessions)
