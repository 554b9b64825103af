"""Migrations: they can be run twice, by several processes at once, and after a failure in the middle."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import asyncpg
import pytest

from core.store.migrations import migrate
from core.store.schema import MIGRATIONS, Migration
from tests.support.databases import Databases
from tests.support.store_world import asyncpg_url


@pytest.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    url = await databases.create_empty()
    yield url
    await databases.drop(url)


def meant_for(url: str) -> list[Migration]:
    dialect = "cockroachdb" if url.startswith("cockroachdb") else "postgresql"
    return [step for step in MIGRATIONS if step.dialect in (None, dialect)]


async def recorded(url: str) -> list[int]:
    connection = await asyncpg.connect(asyncpg_url(url))
    try:
        rows = await connection.fetch("SELECT number FROM schema_migrations ORDER BY number")
    finally:
        await connection.close()
    return [row["number"] for row in rows]


async def test_every_step_is_applied_once_and_recorded(empty_url: str) -> None:
    assert await migrate(empty_url) == meant_for(empty_url)
    assert await migrate(empty_url) == []
    assert await recorded(empty_url) == [step.number for step in meant_for(empty_url)]


async def test_steps_that_were_applied_but_not_recorded_are_run_again(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(asyncpg_url(empty_url))
    await connection.execute("DELETE FROM schema_migrations")
    await connection.close()
    assert await migrate(empty_url) == meant_for(empty_url)


async def test_two_processes_at_once_both_end_well(empty_url: str) -> None:
    code = "import asyncio, sys; from core.store.migrations import migrate; asyncio.run(migrate(sys.argv[1]))"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, empty_url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    results = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], results
    assert await recorded(empty_url) == [step.number for step in meant_for(empty_url)]
