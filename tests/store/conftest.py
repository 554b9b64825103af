"""Fixtures of the store's tests: a founded cluster at the test's isolation level."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy.engine import make_url

from core.store.database import DatabaseConfig
from tests.support.store_world import StoreWorld, close_world, open_world
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def store_config(store_config: DatabaseConfig) -> DatabaseConfig:
    """Sessions whose limits no stall of the machine reaches: here the tests alone decide what is held up, and how long.

    A statement that ran into its limit is run again, and a transaction whose session was ended begins anew: after what
    a test let happen in the middle of it.
    """
    return replace(store_config, statement_timeout_s=30.0, idle_in_transaction_timeout_s=30.0, connect_timeout_s=30.0)


@pytest.fixture
async def world(store_config: DatabaseConfig) -> AsyncIterator[StoreWorld]:
    """A founded cluster in a fresh database, at each isolation level."""
    opened = await open_world(store_config)
    yield opened
    await close_world(opened)


@pytest.fixture
async def proxied(
    store_config: DatabaseConfig, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[StoreWorld, TcpProxy]]:
    """A world whose one session runs through a proxy; a test that waits for a statement's limit gives it (seconds)."""
    limit_s = getattr(request, "param", store_config.statement_timeout_s)
    address = make_url(store_config.url)
    async with TcpProxy(str(address.host), int(address.port or 0)) as proxy:
        through = address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        config = replace(store_config, url=through, pool_size=1, statement_timeout_s=limit_s)
        world = await open_world(config, eye_url=store_config.url)
        yield world, proxy
        proxy.heal()
        await close_world(world)


@pytest.fixture
def on_postgresql(store_config: DatabaseConfig) -> None:
    """For tests that look into PostgreSQL's own catalogs or plans."""
    if store_config.is_cockroach:
        pytest.skip("looks into PostgreSQL's own catalogs")
