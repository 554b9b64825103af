"""Fixtures of the store's tests: a founded cluster at the test's isolation level."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.store.database import DatabaseConfig
from tests.support.store_world import StoreWorld, close_world, open_world


@pytest.fixture
async def world(store_config: DatabaseConfig) -> AsyncIterator[StoreWorld]:
    """A founded cluster in a fresh database, at each isolation level."""
    opened = await open_world(store_config)
    yield opened
    await close_world(opened)


@pytest.fixture
def on_postgresql(store_config: DatabaseConfig) -> None:
    """For tests that look into PostgreSQL's own catalogs or plans."""
    if store_config.is_cockroach:
        pytest.skip("looks into PostgreSQL's own catalogs")
