"""A control plane for each test, at both isolation levels, and a look at its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from core.clock import SystemClock
from core.rand import SystemRand
from core.store.database import Database, DatabaseConfig
from tests.support.control_plane import ControlPlane, settings_for
from tests.support.led_system import Make, System
from tests.support.store_world import asyncpg_url
from tools.servers.etcd import EtcdServer


@pytest.fixture
async def plane(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[ControlPlane]:
    """A replica that serves."""
    started = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex))
    yield await started.serving()
    await started.close()


@pytest.fixture
async def eye(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own, to look at the rows."""
    connection = await asyncpg.connect(asyncpg_url(database_url))
    yield connection
    await connection.close()


@pytest.fixture
async def make(database_url: str, isolation: str, etcd: EtcdServer, eye: asyncpg.Connection) -> AsyncIterator[Make]:
    """Makes the system of a test, with settings of its control plane; rounds of evening out are off unless told."""
    async with AsyncExitStack() as stack:
        database = Database(DatabaseConfig(database_url, isolation=isolation), SystemClock(), SystemRand())
        stack.push_async_callback(database.close)

        async def made(**settings: Any) -> System:
            chosen = {"rebalance": False, **settings}
            plane = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, **chosen))
            stack.push_async_callback(plane.close)
            system = System(await plane.serving(), database, eye)
            stack.push_async_callback(_all_leave, system)
            return system

        yield made


async def _all_leave(system: System) -> None:
    for owner in system.owners.values():
        await owner.leave()


@pytest.fixture
async def pair(make: Make) -> System:
    """d1 owns every shard; d2 joined later and owns none."""
    system = await make()
    await system.join("d1")
    await system.shared_out()
    await system.join("d2")
    return system
