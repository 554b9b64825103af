"""A fresh database for each test: a clone of one template, into which the schema is migrated once."""

from __future__ import annotations

import importlib
import importlib.util
import itertools

import asyncpg

from tools.servers.postgres import PostgresServer

TEMPLATE = "tidewheel_template"


class Databases:
    """The databases of one test session on one server. No connection outlives a call: any event loop may call."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._has_template = False

    async def create(self) -> str:
        """Clone the template; returns the new database's URL."""
        await self._ensure_template()
        return await self._create(TEMPLATE)

    async def create_empty(self) -> str:
        """Make a database without the schema; returns its URL."""
        return await self._create("template0")

    async def drop(self, url: str) -> None:
        """Drop a database made here, also when it has open connections."""
        name = url.rpartition("/")[2]
        await self._run(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        await self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self._server.url(name)

    async def _ensure_template(self) -> None:
        if self._has_template:
            return
        await self._run(f'DROP DATABASE IF EXISTS "{TEMPLATE}"')  # left by a migration that failed
        await self._run(f'CREATE DATABASE "{TEMPLATE}" TEMPLATE template0')
        if importlib.util.find_spec("core.store.migrations"):
            await importlib.import_module("core.store.migrations").migrate(self._server.url(TEMPLATE))
        self._has_template = True

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
