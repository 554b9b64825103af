"""A fresh database for each test, with the schema in it.

On PostgreSQL it is a clone of one template, into which the schema is migrated once; on CockroachDB, which has no
templates, each is migrated by itself. No connection outlives a call: any event loop may call.
"""

from __future__ import annotations

import itertools
import secrets
from typing import Protocol

import asyncpg

from core.store.migrations import migrate
from tools.servers.postgres import PostgresServer

TEMPLATE = "tidewheel_template"


class Databases(Protocol):
    """Makes and drops the databases of one test session."""

    async def create(self) -> str:
        """A new database with the schema; returns its URL."""
        ...

    async def create_empty(self) -> str:
        """A new database without the schema; returns its URL."""
        ...

    async def drop(self, url: str) -> None:
        """Drop a database made here, also when it has open connections."""
        ...


class PostgresDatabases:
    """Databases on a PostgreSQL of the session's own."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._has_template = False

    async def create(self) -> str:
        await self._ensure_template()
        return await self._create(TEMPLATE)

    async def create_empty(self) -> str:
        return await self._create("template0")

    async def drop(self, url: str) -> None:
        await self._run(f'DROP DATABASE "{_name_in(url)}" WITH (FORCE)')

    async def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        # A quarter of the time that the default strategy takes, on a server that does not sync.
        await self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return self._server.url(name)

    async def _ensure_template(self) -> None:
        if self._has_template:
            return
        await self._run(f'DROP DATABASE IF EXISTS "{TEMPLATE}"')  # left by a migration that failed
        await self._run(f'CREATE DATABASE "{TEMPLATE}" TEMPLATE template0')
        await migrate(self._server.url(TEMPLATE))
        self._has_template = True

    async def _run(self, statement: str) -> None:
        await _execute(self._server.url(), statement)


class CockroachDatabases:
    """Databases on the CockroachDB of a `cockroachdb://` URL, which other sessions may share."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def create(self) -> str:
        url = await self.create_empty()
        await migrate(url)
        return url

    async def create_empty(self) -> str:
        name = f"test_{self._session}_{next(self._numbers)}"
        await self._run(f'CREATE DATABASE "{name}"')
        return f"{self._url.rpartition('/')[0]}/{name}"

    async def drop(self, url: str) -> None:
        await self._run(f'DROP DATABASE "{_name_in(url)}" CASCADE')

    async def _run(self, statement: str) -> None:
        await _execute(self._url.replace("cockroachdb://", "postgresql://"), statement)


def _name_in(url: str) -> str:
    return url.rpartition("/")[2]


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
