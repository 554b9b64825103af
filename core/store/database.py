"""The connection to the database: pools, isolation, session limits, and running statements.

Two ways to run: `run()` is one statement in autocommit, the shape of everything hot; `transaction()` is several, with
the COMMIT inside the retry. Both go through the one retry loop. Every call has a deadline, set in the session.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Row, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from core.clock import Clock, ClockReading
from core.errors import Invalid, OutcomeUnknown, Unavailable
from core.rand import Rand
from core.store.statement import Kind, Statement, statement
from core.store.transact import Progress, RestartTransaction, Retrier, RetryLimits, lost_ddl_race
from core.tasks import to_the_end

log = logging.getLogger(__name__)
T = TypeVar("T")

_VERSION = statement("read_version", Kind.READ, "SELECT version() AS version")
_SETTINGS = statement(
    "read_settings",
    Kind.READ,
    "SELECT current_setting('transaction_isolation') AS isolation,"
    " current_setting('synchronous_commit') AS synchronous_commit",
)
_CLOCK = statement(
    "read_clock", Kind.READ, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS server_us"
)

ISOLATIONS = ("READ COMMITTED", "SERIALIZABLE")


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Where the database is and how sessions are bounded. Times in seconds."""

    url: str
    # "" means the product's own choice: SERIALIZABLE on CockroachDB, READ COMMITTED on PostgreSQL.
    isolation: str = ""
    pool_size: int = 8
    connect_timeout_s: float = 5.0
    statement_timeout_s: float = 2.0
    idle_in_transaction_timeout_s: float = 1.0
    application_name: str = "tidewheel"

    def __post_init__(self) -> None:
        if self.isolation and self.isolation not in ISOLATIONS:
            raise Invalid("database.isolation", f"must be one of {', '.join(ISOLATIONS)}")
        if self.pool_size < 1:
            raise Invalid("database.pool_size", "must be at least 1")

    @property
    def is_cockroach(self) -> bool:
        return make_url(self.url).get_backend_name() == "cockroachdb"

    @property
    def wanted_isolation(self) -> str:
        return self.isolation or ("SERIALIZABLE" if self.is_cockroach else "READ COMMITTED")


def normalized_url(url: str) -> str:
    """The URL with our driver: `postgresql://` and `cockroachdb://` are what people write. Raises Invalid."""
    try:
        parsed = make_url(url)
    except Exception as error:
        raise Invalid("database.url", "is not a database URL") from error
    backend = {"postgres": "postgresql", "cockroach": "cockroachdb"}.get(
        parsed.get_backend_name(), parsed.get_backend_name()
    )
    if backend not in ("postgresql", "cockroachdb"):
        raise Invalid("database.url", "must begin with postgresql:// or cockroachdb://")
    return parsed.set(drivername=f"{backend}+asyncpg").render_as_string(hide_password=False)


class Transaction:
    """One attempt of a transaction body: runs statements on one connection."""

    def __init__(self, connection: AsyncConnection, progress: Progress) -> None:
        self._connection = connection
        self._progress = progress

    async def run(self, what: Statement, params: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Run one statement of the transaction and return its rows."""
        result = await self._connection.execute(what.clause, dict(params or {}))
        return result.all() if result.returns_rows else ()

    def committing(self) -> None:
        self._progress.sent()


class Database:
    """A pool of sessions with pinned isolation and bounded statements."""

    def __init__(self, config: DatabaseConfig, clock: Clock, rand: Rand, limits: RetryLimits | None = None) -> None:
        self.config = config
        self._clock = clock
        self._retrier = Retrier(clock, rand, limits)
        self._engine: AsyncEngine = create_async_engine(
            normalized_url(config.url),
            pool_size=config.pool_size,
            max_overflow=0,
            pool_timeout=config.statement_timeout_s,
            pool_recycle=900,
            connect_args={
                "timeout": config.connect_timeout_s,
                # Past the server's own statement_timeout by a little: a server that does not answer at all.
                "command_timeout": config.statement_timeout_s * 1.5 + 1.0,
                "server_settings": _session_settings(config),
            },
        )
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self.version = ""

    @property
    def engine(self) -> AsyncEngine:
        """For tests, which inject faults on its events."""
        return self._engine

    @property
    def restarts(self) -> int:
        """How often a statement or transaction was run again."""
        return self._retrier.restarts

    async def check(self) -> None:
        """Connect, and assert that the server is what the URL says and that the isolation is the pinned one.

        Raises Unavailable while the server is away, Invalid when it is the wrong one.
        """
        rows = await self.run(_VERSION)
        self.version = str(rows[0].version)
        if ("CockroachDB" in self.version) != self.config.is_cockroach:
            raise Invalid(
                "database.url", f"names another kind of server than the one that answers: {self.version[:60]}"
            )
        settings = (await self.run(_SETTINGS))[0]
        wanted = self.config.wanted_isolation.lower()
        if settings.isolation != wanted:
            raise Invalid("database.isolation", f"is {settings.isolation} in the session, not {wanted}")
        if settings.synchronous_commit == "off":
            raise Invalid("database.url", "leads to a server with synchronous_commit off: accepted work could be lost")

    async def run(
        self, what: Statement, params: Mapping[str, Any] | None = None, *, repeat_unknown: bool = False
    ) -> Sequence[Row[Any]]:
        """Run one statement in autocommit and return its rows. Reads are always run again after a lost answer."""

        async def body(progress: Progress) -> Sequence[Row[Any]]:
            async with self._autocommit.connect() as connection:
                progress.sent()
                result = await connection.execute(what.clause, dict(params or {}))
                return result.all() if result.returns_rows else ()

        return await self._retrier.run(body, repeat_unknown=repeat_unknown or what.kind is Kind.READ)

    async def run_ddl(self, ddl: str) -> None:
        """Run one schema statement in autocommit; it is idempotent by itself."""

        async def body(progress: Progress) -> None:
            async with self._autocommit.connect() as connection:
                progress.sent()
                try:
                    await connection.execute(text(ddl))
                except DBAPIError as error:
                    if lost_ddl_race(error):
                        raise RestartTransaction("another process made the same thing at the same time") from error
                    raise

        await self._retrier.run(body, repeat_unknown=True)

    async def transaction(self, body: Callable[[Transaction], Awaitable[T]], *, repeat_unknown: bool = False) -> T:
        """Run `body` in a transaction and commit it. A body that raises is rolled back.

        A caller that is cancelled during the COMMIT learns of it when that has ended: no session is left in doubt.
        """

        async def attempt(progress: Progress) -> T:
            async with self._engine.connect() as connection:
                begun = await connection.begin()
                transaction = Transaction(connection, progress)
                answer = await body(transaction)
                transaction.committing()
                await to_the_end(begun.commit())
                return answer

        return await self._retrier.run(attempt, repeat_unknown=repeat_unknown)

    async def read_clock(self) -> ClockReading:
        """One look at the database's clock, with the monotonic instants around it."""

        async def body(progress: Progress) -> ClockReading:
            async with self._autocommit.connect() as connection:
                progress.sent()
                sent_s = self._clock.monotonic_s()
                result = await connection.execute(_CLOCK.clause)
                received_s = self._clock.monotonic_s()
                return ClockReading(int(result.scalar_one()), sent_s, received_s)

        return await self._retrier.run(body, repeat_unknown=True)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


async def connect_with_patience(
    database: Database, clock: Clock, *, first_wait_s: float = 0.5, longest_wait_s: float = 10.0
) -> None:
    """Wait for the database: one clear line at the first failure and at each doubling of the wait, never a trace."""
    wait_s = first_wait_s
    while True:
        try:
            await database.check()
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("waiting for the database: %s; next try in %.1f s", error, wait_s)
            await clock.sleep(wait_s)
            wait_s = min(longest_wait_s, wait_s * 2)
        else:
            return


def _session_settings(config: DatabaseConfig) -> dict[str, str]:
    settings = {
        "application_name": config.application_name,
        "default_transaction_isolation": config.wanted_isolation.lower(),
        "statement_timeout": str(round(config.statement_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": str(round(config.idle_in_transaction_timeout_s * 1000)),
        "timezone": "UTC",
    }
    if not config.is_cockroach:
        # A peer that vanished without a word is noticed by the server, so that no lock of ours outlives us for long.
        settings |= {"tcp_user_timeout": "5000", "client_connection_check_interval": "1000", "jit": "off"}
        # Every statement here is made for nested loops over primary keys; a plan that flips with the statistics to a
        # scan or a hash costs fifty times as much, at the worst moment.
        settings |= dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"), "off")
    return settings
