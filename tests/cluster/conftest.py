"""A whole system in real processes: for each test, or, where only commands are tried on it, for each module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from core.store.migrations import migrate
from tests.support.command import Done, Run, environment, tidewheel
from tests.support.live_system import LiveSystem
from tools.fleet import Fleet, until_served
from tools.servers.embedded import Backing
from tools.servers.homes import temporary_home


@pytest.fixture
async def system() -> AsyncIterator[LiveSystem]:
    with temporary_home() as home:
        async with LiveSystem(home) as live:
            yield live


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One control plane, one dispatcher, one worker for commands."""
    with Backing() as backing:
        asyncio.run(migrate(backing.database_url))
        fleet = Fleet(backing, backing.home / "log", environment())
        try:
            fleet.start_control_plane()
            fleet.start_dispatcher()
            fleet.start_worker()
            asyncio.run(until_served(fleet, dispatchers=1))
            yield fleet
        finally:
            fleet.stop()


@pytest.fixture
def run(fleet: Fleet) -> Run:
    """Runs a command that finds the system by its environment."""

    def command(*arguments: str, stdin: str = "") -> Done:
        return tidewheel(*arguments, environ={"TIDEWHEEL_ADDRESS": fleet.addresses}, stdin=stdin)

    return command
