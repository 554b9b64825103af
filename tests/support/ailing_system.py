"""A live system whose first dispatcher can be made ill: cut off from database, etcd or workers, or held up inside.

What goes between it and the others goes through proxies; what happens inside it, through failpoints that a file sets
off. The other processes never notice that it is a special one.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from tests.support.live_system import LiveSystem, Size
from tests.support.tcp_proxy import TcpProxy
from tools.fleet import Member
from tools.servers.free_port import free_port

PATIENT = "dispatcher-1"
# Who joins again gets shards within seconds; who is held up for a second by a busy machine is not taken for dead.
_BACK_SOON = {
    "TIDEWHEEL_CONTROLPLANE_MIN_RESIDENCY_S": "1.0",
    "TIDEWHEEL_CONTROLPLANE_REBALANCE_INTERVAL_S": "2.0",
    "TIDEWHEEL_CONTROLPLANE_MISSED_REPORTS": "5",
}
# Longer than any silence and any ailment is tolerated.
HELD_UP_S = 8.0


class AilingSystem(LiveSystem):
    """`patient` is the dispatcher that has proxies between itself and PostgreSQL, etcd and workers."""

    def __init__(self, home: Path, environ: dict[str, str] | None = None, size: Size | None = None) -> None:
        super().__init__(home, {**_BACK_SOON, **(environ or {})}, size)
        self._proxies: dict[str, TcpProxy] = {}

    @property
    def patient(self) -> Member:
        return next(member for member in self.dispatchers if member.name == PATIENT)

    @property
    def others(self) -> list[Member]:
        return [member for member in self.dispatchers if member.name != PATIENT]

    @property
    def database_proxy(self) -> TcpProxy:
        return self._proxies["database"]

    @property
    def etcd_proxy(self) -> TcpProxy:
        return self._proxies["etcd"]

    @property
    def worker_proxy(self) -> TcpProxy:
        return self._proxies["workers"]

    async def start_dispatcher(self, name: str) -> Member:
        if name != PATIENT:
            return await super().start_dispatcher(name)
        database, port = urlsplit(self.backing.database_url), free_port()
        etcd_host, _, etcd_port = self.backing.etcd_endpoints[0].rpartition(":")
        self._proxies = {
            "database": TcpProxy(database.hostname or "127.0.0.1", database.port or 5432),
            "etcd": TcpProxy(etcd_host, int(etcd_port)),
            "workers": TcpProxy("127.0.0.1", port),
        }
        for proxy in self._proxies.values():
            await proxy.start()
        account = database.netloc.rpartition("@")[0]
        through = database._replace(netloc=f"{account}@{self.database_proxy.endpoint}")
        points = {"report.before": self._trigger("report"), "due.before": self._trigger("due")}
        actions = {"report.before": f"block:{HELD_UP_S}", "due.before": f"wait:{HELD_UP_S * 2}"}
        return self.fleet.start_dispatcher(
            name,
            port=port,
            environ={
                "TIDEWHEEL_DATABASE_URL": through.geturl(),
                "TIDEWHEEL_ETCD_ENDPOINTS": self.etcd_proxy.endpoint,
                "TIDEWHEEL_DISPATCHER_ADVERTISE": self.worker_proxy.endpoint,
                "TIDEWHEEL_FAILPOINTS": ",".join(
                    f"{name}=when:{path}:{actions[name]}" for name, path in points.items()
                ),
            },
        )

    def block_event_loop(self) -> None:
        """Have the patient's event loop stand still for HELD_UP_S."""
        self._trigger("report").touch()

    def hold_due_loop(self) -> None:
        """Have the patient's due loop alone stand still for twice as long."""
        self._trigger("due").touch()

    def _trigger(self, name: str) -> Path:
        return self.home / f"hold-{name}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
        await super().__aexit__(kind, error, trace)
