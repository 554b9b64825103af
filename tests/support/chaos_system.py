"""A whole system for episodes of faults: everything it does is recorded by observers that do not trust it.

async with ChaosSystem(home, Shape(dispatchers=3)) as chaos:
    load = chaos.load(Random(seed), seconds=20)
    …
    history = await chaos.history()
    hold(history, refused_writes=chaos.refused_writes)

It is a LiveSystem over a PostgreSQL that keeps a record of commits, with a sink and workers that write to it. Faults
are done through it, so that it knows which process lived when; what was done stands in `faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import asyncpg
from tidewheel import Client

from core.store.migrations import migrate
from tests.support.history import History, Life, read_noted, read_said
from tests.support.history_check import recorded
from tests.support.history_client import Load
from tests.support.history_commits import begin_record
from tests.support.ledger_check import LedgerCheck, read_tables
from tests.support.live_system import US, LiveSystem, Size, now_us
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tools.fleet import Fleet, Member, until_served
from tools.servers.embedded import Backing
from tools.servers.postgres import PostgresServer
from tools.servers.process import Child, start_child

REFUSED = "tidewheel_refused_writes_total"
# Buckets of half a second and short leases, so that everything that has to be waited for is short.
CHAOTIC = {
    "TIDEWHEEL_CLUSTER_BUCKET_WIDTH_MS": "500",
    "TIDEWHEEL_CLUSTER_SHARD_COUNT": "16",
    "TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "4.0",
    "TIDEWHEEL_DISPATCHER_HEARTBEAT_INTERVAL_S": "1.0",
    "TIDEWHEEL_CONTROLPLANE_REBALANCE": "false",
}
_SCRAPE_EVERY_S = 0.3
SLOTS = 200


@dataclass
class Watched:
    """One dispatcher process: what is known of it without asking its leader."""

    member: Member
    began_us: int
    ended_us: int | None = None
    frozen: bool = False
    owner: str = ""
    refused: float = 0.0


@dataclass
class ChaosSystem:
    """See above. `environ` is what every process gets beside CHAOTIC."""

    home: Path
    size: Size = field(default_factory=lambda: Size(control_planes=2, dispatchers=3, workers=2))
    environ: dict[str, str] = field(default_factory=dict)
    # The module whose __main__ starts dispatchers; tests/support/planted_process.py plants defects in them.
    dispatcher_environ: dict[str, str] = field(default_factory=dict)
    dispatcher_module: str = "tools.cli.main"

    def __post_init__(self) -> None:
        self.live = LiveSystem(self.home, {**CHAOTIC, **self.environ}, self.size)
        self.postgres = PostgresServer(self.home / "postgres", durable=False, logical=True)
        self.watched: list[Watched] = []
        self.faults: list[tuple[int, str]] = []
        self.horizon_us = 0
        # The failpoints with which a process of that name starts, unless its starter says otherwise.
        self.failpoints_of: Callable[[str], str] = lambda name: ""
        self.clients: list[Client] = []
        self._numbers = 0
        self._watching: asyncio.Task[None] | None = None
        self._sink: Child | None = None

    @property
    def bucket_width_s(self) -> float:
        return int(self.live.environ["TIDEWHEEL_CLUSTER_BUCKET_WIDTH_MS"]) / 1000

    @property
    def socket(self) -> Path:
        return self.home / "sink.socket"

    # ---- life ----

    async def __aenter__(self) -> ChaosSystem:
        try:
            await asyncio.to_thread(self.home.mkdir, exist_ok=True, parents=True)
            self.postgres.start()
            self.live.backing = Backing(self.home / "data", database_url=self.postgres.url())
            await migrate(self.postgres.url())
            async with self.database() as connection:
                await begin_record(connection)
            self._sink = self._python("sink", "tests.support.history_sink", self.socket, self.home / "sink.jsonl")
            self.live.backing.__enter__()
            self.live.fleet = Fleet(self.live.backing, self.home / "logs", self.live.environ)
            for _ in range(self.size.control_planes):
                self.start_control_plane()
            for _ in range(self.size.dispatchers):
                self.start_dispatcher()
            await until_served(self.live.fleet, dispatchers=self.size.dispatchers)
            await eventually(self.socket.exists, within_s=60, what="the sink listens")
            for number in range(1, self.size.workers + 1):
                self.start_worker(f"worker-{number}")
            self._watching = asyncio.create_task(self._watch())
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        for client in self.clients:
            await client.close()
        for each in self.watched:
            if each.frozen:
                self.thaw(each)
        await self.live.__aexit__(kind, error, trace)
        if self._sink is not None:
            self._sink.stop()
        await asyncio.to_thread(self.postgres.stop)

    def start_dispatcher(self, failpoints: str = "", **environ: str) -> Watched:
        """Start one more without waiting for it; `failpoints` as in core/failpoints.py."""
        self._numbers += 1
        name = f"dispatcher-{self._numbers}"
        given = {**self.dispatcher_environ, **environ, **self._stumbling(failpoints or self.failpoints_of(name))}
        began_us = now_us()
        member = self.live.fleet.start_dispatcher(name, given, self.dispatcher_module)
        self.watched.append(Watched(member, began_us))
        return self.watched[-1]

    def _stumbling(self, failpoints: str) -> dict[str, str]:
        return {"TIDEWHEEL_FAILPOINTS": failpoints} if failpoints else {}

    def start_worker(self, name: str) -> None:
        environ = {"TIDEWHEEL_ADDRESS": self.live.fleet.addresses}
        self.live.workers[name] = self._python(
            name, "tests.support.history_worker", self.socket, name, SLOTS, environ=environ
        )

    def _python(self, name: str, module: str, *arguments: object, environ: dict[str, str] | None = None) -> Child:
        return start_child(
            name,
            [sys.executable, "-m", module, *map(str, arguments)],
            log=self.home / f"{name}.log",
            env={"PYTHONPATH": self.live.import_path, **(environ or {})},
            death_signal=signal.SIGKILL,
        )

    def client(self) -> Client:
        self.clients.append(self.live.client())
        return self.clients[-1]

    def load(self, rand: Random, *, seconds: float) -> Load:
        """The client of this episode: its jobs fire from two seconds ago on for so long."""
        begins_us = now_us() - 2 * US
        self.horizon_us = now_us() + round(seconds * US)
        log = self.home / "client.jsonl"
        return Load(self.client(), log, rand, begins_us=begins_us, ends_us=self.horizon_us)

    @contextlib.asynccontextmanager
    async def database(self) -> Any:
        """A connection of the observer's own."""
        connection = await asyncpg.connect(self.postgres.url())
        try:
            yield connection
        finally:
            await connection.close()

    # ---- faults ----

    def note(self, what: str) -> None:
        """Write a fault down."""
        self.faults.append((now_us(), what))

    def kill(self, victim: Watched) -> None:
        """SIGKILL."""
        self.note(f"kill -9 {victim.member.name}")
        self.live.fleet.kill(victim.member)
        victim.ended_us, victim.frozen = now_us(), False

    def freeze(self, victim: Watched) -> None:
        self.note(f"freeze {victim.member.name}")
        victim.frozen = True
        victim.member.child.freeze()

    def thaw(self, victim: Watched) -> None:
        self.note(f"thaw {victim.member.name}")
        victim.member.child.thaw()
        victim.frozen = False

    async def end(self, victim: Watched, within_s: float = 60.0) -> int:
        """SIGTERM, and wait for its end; returns its exit code."""
        victim.member.child.process.terminate()
        self.live.fleet.members.remove(victim.member)
        code = await asyncio.to_thread(victim.member.child.process.wait, within_s)
        victim.ended_us = now_us()
        return code

    def kill_control_plane(self, member: Member) -> None:
        self.note(f"kill -9 {member.name}")
        self.live.fleet.kill(member)
        self.live.control_planes.remove(member)

    def start_control_plane(self, failpoints: str = "", port: int = 0) -> Member:
        """Start one more; with the port of one that died, clients and workers find it again."""
        self._numbers += 1
        name = f"controlplane-{self._numbers}"
        environ = self._stumbling(failpoints or self.failpoints_of(name))
        member = self.live.fleet.start_control_plane(name, port=port, environ=environ)
        self.live.control_planes.append(member)
        return member

    @property
    def running(self) -> list[Watched]:
        """The dispatchers that have not been killed."""
        return [each for each in self.watched if each.ended_us is None]

    # ---- looking ----

    async def rows(self, query: str, *params: object) -> list[asyncpg.Record]:
        async with self.database() as connection:
            return list(await connection.fetch(query, *params))

    async def all_owned(self) -> bool:
        """Whether every shard is owned by a process that runs, and by SQL alone."""
        rows = await self.rows("SELECT shard, owner FROM shard_terms WHERE state = 1")
        count = int(self.live.environ["TIDEWHEEL_CLUSTER_SHARD_COUNT"])
        owners = {self.owner_of(each) for each in self.running if not each.frozen} - {""}
        return len({row["shard"] for row in rows}) == count and {row["owner"] for row in rows} <= owners

    def owner_of(self, dispatcher: Watched) -> str:
        """The id under which it owns shards; empty before it has said so in its log."""
        if not dispatcher.owner:
            with contextlib.suppress(AssertionError):
                dispatcher.owner = self.live.owner_id(dispatcher.member)
        return dispatcher.owner

    def by_owner(self, owner: str) -> Watched | None:
        """The process that owns shards under that id."""
        return next((each for each in self.watched if self.owner_of(each) == owner), None)

    @property
    def refused_writes(self) -> float:
        """How many writes were refused, over all processes, those that were killed since included."""
        return sum(each.refused for each in self.watched)

    async def _watch(self) -> None:
        while True:
            await self.look_at_refusals()
            await asyncio.sleep(_SCRAPE_EVERY_S)

    async def look_at_refusals(self) -> None:
        """Read the refused writes of every dispatcher that answers; the last number of each is kept."""
        for each in self.running:
            if each.frozen or not self.owner_of(each):
                continue
            with contextlib.suppress(OSError, AssertionError):
                # Not wait_for: before Python 3.12 it loses a cancellation that meets an answer.
                async with asyncio.timeout(1.0):
                    page = await scrape(self.live.monitor_address(each.member))
                each.refused = max(each.refused, page.total(REFUSED))

    # ---- the end ----

    async def _disagreements(self, connection: asyncpg.Connection) -> list[str]:
        found = LedgerCheck(connection).judge(await read_tables(connection))
        # What was due between the cut-over of a pause and its commit may have run, and lies in the range of the skip.
        return [each for each in found if not each.endswith("ran and was skipped")]

    async def at_rest(self) -> bool:
        """Whether nothing that is due is left, and no run is open."""
        (row,) = await self.rows(
            "SELECT (SELECT count(*) FROM due WHERE due_at_us <= $1)"
            " + (SELECT count(*) FROM runs WHERE state IN (1, 2)) AS unrest",
            now_us(),
        )
        return bool(row["unrest"] == 0)

    async def history(self, *, within_s: float = 60.0) -> History:
        """Let everything come to rest, then take the evidence together. Whether it did is judged like all else."""
        await asyncio.sleep(max(0.0, (self.horizon_us - now_us()) / US))
        with contextlib.suppress(AssertionError):
            await eventually(self.at_rest, within_s=within_s, what="everything that is due is done")
        await self.look_at_refusals()
        lives = [
            Life(self.owner_of(each), each.began_us, each.ended_us) for each in self.watched if self.owner_of(each)
        ]
        async with self.database() as connection:
            return await recorded(
                connection,
                disagreements=await self._disagreements(connection),
                said=read_said(self.home / "client.jsonl"),
                noted=read_noted(self.home / "sink.jsonl"),
                lives=lives,
                horizon_us=self.horizon_us - 1,
            )
