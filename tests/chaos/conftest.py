"""Databases that keep a record of what commits, for episodes inside the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from core.store.database import DatabaseConfig
from tests.support.databases import PostgresDatabases
from tests.support.dispatcher_room import Room, open_room
from tests.support.history_room import recorded_database
from tests.support.servers import started
from tests.support.store_world import StoreWorld, asyncpg_url, close_world, open_world
from tools.servers.etcd import EtcdServer
from tools.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def recording_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this module's own that can keep records of commits."""
    with started(lambda home: PostgresServer(home / "postgres", durable=False, logical=True)) as server:
        yield server


@pytest.fixture(scope="module")
def recording_databases(recording_postgres: PostgresServer) -> PostgresDatabases:
    return PostgresDatabases(recording_postgres)


@pytest.fixture
async def recorded_url(recording_databases: PostgresDatabases) -> AsyncIterator[str]:
    """A fresh database whose commits are kept."""
    async with recorded_database(recording_databases) as url:
        yield url


@pytest.fixture
async def observer(recorded_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The observer's own connection."""
    connection = await asyncpg.connect(asyncpg_url(recorded_url))
    yield connection
    await connection.close()


@pytest.fixture
async def room(recorded_url: str, etcd: EtcdServer) -> AsyncIterator[Room]:
    """A room for dispatchers, recorded."""
    async with AsyncExitStack() as stack:
        yield await open_room(recorded_url, "READ COMMITTED", etcd.endpoint, stack)


@pytest.fixture
async def world(recorded_url: str) -> AsyncIterator[StoreWorld]:
    """A store without a process around it, recorded."""
    world = await open_world(DatabaseConfig(recorded_url, isolation="READ COMMITTED"))
    yield world
    await close_world(world)
