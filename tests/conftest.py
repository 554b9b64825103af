"""Fixtures that every room of tests uses: real servers, a fresh database, a manual clock, the isolation level."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from core.store.database import DatabaseConfig
from core.zones import use_pinned_tzdata
from tests.support import reporting
from tests.support.clock import ManualClock
from tests.support.databases import CockroachDatabases, Databases, PostgresDatabases
from tests.support.memory import use_memory_for_temporary_files
from tests.support.servers import started
from tools.servers.etcd import EtcdServer
from tools.servers.postgres import PostgresServer

# Set for one run, it puts that run on a CockroachDB instead of the session's own PostgreSQL.
COCKROACH_URL = os.environ.get("TIDEWHEEL_COCKROACH_URL", "")
ISOLATION_LEVELS = ("SERIALIZABLE",) if COCKROACH_URL else ("READ COMMITTED", "SERIALIZABLE")

# A busy machine decides nothing: neither how long an example takes nor how long it takes to draw one. Nor does luck:
# the examples are the same in every run, but for `make test-long`, which looks for new ones.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="HYPOTHESIS_SEARCH" not in os.environ,
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing of the caller's own settings may reach the product under test, nor a proxy stand before loopback."""
    use_memory_for_temporary_files()
    if config.getoption("numprocesses", None):
        return  # this process only hands out tests; the ones that run them come here with the caller's settings
    for name in [name for name in os.environ if name.startswith(("TIDEWHEEL_", "OTEL_"))]:
        del os.environ[name]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"
    use_pinned_tzdata()  # as each role does at its start


def pytest_report_header() -> list[str]:
    return reporting.header_lines()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reporting.write_summary(terminalreporter)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The session's PostgreSQL. It is not durable: a test that kills its database uses `own_postgres`."""
    with started(lambda home: PostgresServer(home / "postgres", durable=False)) as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A durable PostgreSQL of this test alone, to be killed, frozen and restarted; already started."""
    with started(lambda home: PostgresServer(home / "postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """Makes and drops databases on the session's server."""
    if COCKROACH_URL:
        return CockroachDatabases(COCKROACH_URL)
    return PostgresDatabases(request.getfixturevalue("postgres"))


@pytest.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    """The URL of a fresh database with the schema in it."""
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """The session's etcd, shared by all tests: give each test a cluster name of its own."""
    with started(lambda home: EtcdServer(home / "etcd")) as server:
        yield server


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd of this test alone, to be killed, frozen, wiped and restarted; already started."""
    with started(lambda home: EtcdServer(home / "etcd")) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture(params=ISOLATION_LEVELS, ids=lambda level: level.lower().replace(" ", "-"))
def isolation(request: pytest.FixtureRequest) -> str:
    """The isolation level that a test of tests/store or tests/component runs at; each runs at both."""
    level = str(request.param)
    request.node.user_properties.append((reporting.ISOLATION_PROPERTY, level))
    return level


@pytest.fixture
def store_config(database_url: str, isolation: str) -> DatabaseConfig:
    """A fresh database with the schema, to be used at the test's isolation level."""
    return DatabaseConfig(database_url, isolation=isolation)
