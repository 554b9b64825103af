"""The pair that Tidewheel stands on, started together: a database and an etcd.

For `tidewheel dev`, the demo and the benches. Each half can be one that is there already: its address is then taken as
it is, and nothing is started or stopped for it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tools.servers.cockroach import CockroachServer, find_cockroach
from tools.servers.etcd import EtcdServer
from tools.servers.homes import temporary_home
from tools.servers.postgres import PostgresServer


class Backing:
    """Use it as a context manager. With `data` the servers keep their files there; without, a temporary directory.

    `database_url` and `etcd_endpoints` are what the product's processes are given.
    """

    def __init__(
        self, data: Path | None = None, *, database_url: str = "", etcd_endpoints: tuple[str, ...] = ()
    ) -> None:
        self.data = data
        self.database_url = database_url
        self.etcd_endpoints = etcd_endpoints
        self.database: PostgresServer | CockroachServer | None = None
        self.etcd: EtcdServer | None = None
        self._running = ExitStack()

    def __enter__(self) -> Backing:
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def lines(self) -> list[str]:
        """What runs, from where and with which files: for people."""
        database = (
            self.database.description if self.database else f"database given: {_without_password(self.database_url)}"
        )
        etcd = self.etcd.description if self.etcd else f"etcd given: {', '.join(self.etcd_endpoints)}"
        kept = "kept" if self.data else "temporary"
        return [database, etcd, f"data: {self.home} ({kept})"]

    def _start(self) -> None:
        self.home = self.data.absolute() if self.data else self._running.enter_context(temporary_home())
        if not self.database_url:
            self.database = _new_database(self.home)
            self._running.callback(self.database.stop)
            self.database.start()
            self.database_url = self.database.url()
        if not self.etcd_endpoints:
            self.etcd = EtcdServer(self.home / "etcd")
            self._running.callback(self.etcd.stop)
            self.etcd.start()
            self.etcd_endpoints = (self.etcd.endpoint,)


def _new_database(home: Path) -> PostgresServer | CockroachServer:
    """CockroachDB where its program is at hand, else PostgreSQL; each in a directory of its own."""
    return CockroachServer(home / "cockroach") if find_cockroach() else PostgresServer(home / "postgres")


def _without_password(url: str) -> str:
    scheme, _, rest = url.rpartition("://")
    credentials, at, place = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}{at}{place}"
