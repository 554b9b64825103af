"""A room for dispatchers: a founded cluster, at the isolation level of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.support.dispatcher_room import Room, open_room
from tests.support.time_machine import TimeMachine, open_machine
from tools.servers.etcd import EtcdServer


@pytest.fixture
async def room(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[Room]:
    """At both isolation levels."""
    async with AsyncExitStack() as stack:
        yield await open_room(database_url, isolation, etcd.endpoint, stack)


Departure = Callable[..., Awaitable[TimeMachine]]


@pytest.fixture
async def depart(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[Departure]:
    """Starts a machine at an instant, with one owner, at both isolation levels. Once a test: it has one database."""
    async with AsyncExitStack() as stack:

        async def start(at: str, **settings: float) -> TimeMachine:
            return await open_machine(database_url, isolation, etcd.endpoint, stack, at, **settings)

        yield start
