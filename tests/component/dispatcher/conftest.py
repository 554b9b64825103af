"""A room for dispatchers: a founded cluster, at the isolation level of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.dispatcher_room import Room, open_room
from tools.servers.etcd import EtcdServer


@pytest.fixture
async def room(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[Room]:
    """At both isolation levels."""
    async with AsyncExitStack() as stack:
        yield await open_room(database_url, isolation, etcd.endpoint, stack)
