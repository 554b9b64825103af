"""A whole system in real processes for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.live_system import LiveSystem
from tools.servers.homes import temporary_home


@pytest.fixture
async def system() -> AsyncIterator[LiveSystem]:
    with temporary_home() as home:
        async with LiveSystem(home) as live:
            yield live
