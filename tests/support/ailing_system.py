"""A live system whose first dispatcher can be made ill: cut off from the database or from workers, or held up inside.

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
# Who joins again gets shards within seconds.
_BACK_SOON = {"TIDEWHEEL_CONTROLPLANE_MIN_RESIDENCY_S": "1.0", "TIDEWHEEL_CONTROLPLANE_REBALANCE_INTERVAL_S": "2.0"}
# Longer than any silence and any ailment is tolerated.
HELD_UP_S = 8.0


class AilingSystem(LiveSystem):
    """`patient` is the dispatcher, between whom and PostgreSQL and workers the two proxies are."""

    def __init__(self, home: Path, environ: dict[str, str] | None = None, size: Size | None = None) -> None:
        super().__init__(home, {**_BACK_SOON, **(environ or {})}, size)
        self.database_proxy: TcpProxy | None = None
        self.worker_proxy: TcpProxy | None = None

    @property
    def patient(self) -> Member:
        return next(member for member in self.dispatchers if member.name == PATIENT)

    @property
    def others(self) -> list[Member]:
        return [member for member in self.dispatchers if member.name != PATIENT]

    async def start_dispatcher(self, name: str) -> Member:
        if name != PATIENT:
            return await super().start_dispatcher(name)
        database, port = urlsplit(self.backing.database_url), free_port()
        self.database_proxy = TcpProxy(database.hostname or "127.0.0.1", database.port or 5432)
        self.worker_proxy = TcpProxy("127.0.0.1", port)
        await self.database_proxy.start()
        await self.worker_proxy.start()
        account = database.netloc.rpartition("@")[0]
        through = database._replace(netloc=f"{account}@{self.database_proxy.endpoint}")
        points = {"report.before": self._trigger("report"), "due.before": self._trigger("due")}
        actions = {"report.before": f"block:{HELD_UP_S}", "due.before": f"wait:{HELD_UP_S * 2}"}
        return self.fleet.start_dispatcher(
            name,
            port=port,
            environ={
                "TIDEWHEEL_DATABASE_URL": through.geturl(),
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
        for proxy in (self.database_proxy, self.worker_proxy):
            if proxy is not None:
                await proxy.close()
        await super().__aexit__(kind, error, trace)
