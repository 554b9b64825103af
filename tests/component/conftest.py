"""A control plane for each test, at both isolation levels, and a look at its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from tests.support.control_plane import ControlPlane, settings_for
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
