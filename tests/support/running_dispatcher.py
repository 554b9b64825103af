"""One dispatcher in the test's own event loop: every part real, and every part within reach.

What `dispatcher.process.run` builds, over the same assembly; here a test may also end it without a word, keep it from
seeing that its terms are gone, let its clock jump, or have it live by a clock that the test moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import grpc
from prometheus_client import CollectorRegistry

from core.clock import Clock, ClockReading, DatabaseClock, SystemClock
from core.config import Settings
from core.coord.coord import EtcdCoord
from core.coord.layout import Member
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.failpoints import Failpoints
from core.rand import SystemRand
from core.store.clock_probe import ClockProbe
from core.store.cluster import read_cluster
from core.store.database import Database, DatabaseConfig
from core.tasks import Tasks
from core.telemetry.dispatcher_metrics import DispatcherMetrics
from core.telemetry.metrics import new_registry
from core.telemetry.tracing import start_tracing
from core.wire import internal_pb2
from core.wire.internal_pb2_grpc import DispatcherServiceStub
from dispatcher.assembly import Assembly, assemble, serve_streams
from dispatcher.runtime import Runtime
from tests.support.polling import eventually


class ShiftedProbe(ClockProbe):
    """Reads the database's clock as if it had jumped by `shift_us`; or `instead_of_it`, another clock."""

    def __init__(self, database: Database, clock: DatabaseClock, instead_of_it: Clock | None = None) -> None:
        super().__init__(database, clock)
        self._read_from = database
        self._instead = instead_of_it
        self._tells = clock
        self.shift_us = 0

    async def step(self) -> None:
        read = await self._look()
        self._tells.observe(ClockReading(read.server_us + self.shift_us, read.sent_s, read.received_s))

    async def _look(self) -> ClockReading:
        if self._instead is None:
            return await self._read_from.read_clock()
        now_s = self._instead.monotonic_s()
        return ClockReading(self._instead.now_us(), now_s, now_s)


class Halt(Failpoints):
    """Whoever passes this place of a hand-off stands there until it is released, as a loop that hangs."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place
        self._released = asyncio.Event()
        self.reached = False

    async def hold(self, name: str) -> None:
        if name == self._place and not self._released.is_set():
            self.reached = True
            await self._released.wait()

    def release(self) -> None:
        self._released.set()


class _HaltingRuntime(Runtime):
    async def pass_by(self, name: str) -> None:
        assert isinstance(self.failpoints, Halt)
        await self.failpoints.hold(name)


@dataclass
class RunningDispatcher:
    """A dispatcher that was started. `name` is its id, `address` where workers reach it."""

    name: str
    settings: Settings
    database: Database
    clock: DatabaseClock
    probe: ShiftedProbe
    coord: EtcdCoord
    parts: Assembly
    registry: CollectorRegistry
    tasks: Tasks
    server: grpc.aio.Server
    address: str
    ended: bool = False
    _sees_terms: asyncio.Event = field(default_factory=asyncio.Event)
    _looks_no_more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def shards(self) -> set[int]:
        """What it believes to hold."""
        return self.parts.memory.holdings.shards

    def metric(self, name: str, **labels: str) -> float:
        """One number of its metrics, 0 if it has not been counted yet."""
        return self.registry.get_sample_value(name, labels) or 0.0

    @property
    def refused_writes(self) -> float:
        """How many of its writes the fence refused."""
        samples = (s for m in self.registry.collect() for s in m.samples)
        return sum(s.value for s in samples if s.name == "tidewheel_refused_writes_total")

    async def holds(self, shards: set[int], within_s: float = 30.0) -> None:
        """Wait until it serves exactly these shards, their open runs adopted."""

        def done() -> bool:
            holdings = self.parts.memory.holdings
            return self.shards == shards and all(held.whole for held in holdings)

        await eventually(done, within_s, what=f"{self.name} holds {sorted(shards)}, not {sorted(self.shards)}")

    async def hint(self, *, canceled: tuple[str, ...] = (), landed: tuple[int, ...] = ()) -> None:
        """Tell it what a control plane would."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            request = internal_pb2.HintRequest(canceled_run_ids=canceled, landed_shards=landed)
            await DispatcherServiceStub(channel).Hint(request)

    def keep_from_seeing_terms(self) -> None:
        """From now on it begins no look at the terms: it believes to own what it owned, as after a long pause."""
        ownership = self.parts.loops.ownership
        original = ownership.step

        async def step() -> None:
            self._looks_no_more.set()
            await self._sees_terms.wait()
            await original()

        ownership.step = step  # type: ignore[method-assign]

    async def sees_terms_no_more(self) -> None:
        """As `keep_from_seeing_terms`; a look that was under way is over."""
        self.keep_from_seeing_terms()
        async with asyncio.timeout(30):
            await self._looks_no_more.wait()

    def let_see_terms(self) -> None:
        self._sees_terms.set()

    def adopt_all_again(self) -> None:
        """It reads all its open runs anew now, as it does every 30 s."""
        self.parts.loops.ownership._swept_s = float("-inf")
        self.parts.memory.wakes.own.set()

    def adopt_for_a_reason_only(self) -> None:
        """It reads all its open runs anew for a reason only, not every 30 s."""
        self.parts.loops.ownership._swept_s = float("inf")

    @contextmanager
    def firing_nothing(self) -> Iterator[None]:
        """Meanwhile it fires nothing, whatever is due; then what is."""

        async def step() -> bool:
            return False

        due = self.parts.loops.due
        due.step = step  # type: ignore[method-assign]
        try:
            yield
        finally:
            del due.step
            self.parts.memory.wakes.fire.set()

    def lease_for(self, seconds: float) -> None:
        """From now on it gives leases of this length, and extends by it; what was given before stays."""
        runtime = self.parts.runtime
        settings = replace(runtime.settings, attempt_lease_s=seconds, heartbeat_interval_s=seconds / 3)
        object.__setattr__(runtime, "settings", settings)

    async def stop(self) -> None:
        """End it in order: give everything up, settle what is under way."""
        if self.ended:
            return
        self.ended = True
        await self.parts.loops.ownership.drain()
        self.coord.withdraw(self.name)
        await self.coord.settled()
        await eventually(lambda: self.parts.loops.completion.idle, what="the completion loop is idle")
        await self._close()

    async def kill(self) -> None:
        """End it without a word to anybody but etcd, whose lease would only take its time."""
        if self.ended:
            return
        self.ended = True
        await self._close()

    async def _close(self) -> None:
        await self.server.stop(0)
        await self.tasks.close()
        await self.coord.close()
        await self.database.close()
        failure = self.tasks.failure
        assert failure is None, f"a loop of {self.name} broke: {failure!r}"


async def start_dispatcher(
    settings: Settings, name: str, lives_by: Clock | None = None, halt: Halt | None = None
) -> RunningDispatcher:
    """Build and start one; it owns nothing yet. The database must be there.

    With `lives_by` its loops know no other time, and that clock passes for the database's. Only what it has to do with
    servers (connections, the session in etcd) goes by the machine's. `halt` is where it stands still.
    """
    system, rand = SystemClock(), SystemRand()
    clock = DatabaseClock(lives_by or system)
    config = DatabaseConfig(settings.database.url, settings.database.isolation, settings.dispatcher.pool_size)
    database = Database(config, system, rand)
    tasks, registry = Tasks(), new_registry()
    cluster = await read_cluster(database)
    probe = ShiftedProbe(database, clock, lives_by)
    await probe.begin()
    tasks.spawn(probe.run(), name="clock probe")
    kind = Runtime if halt is None else _HaltingRuntime
    runtime = kind(
        name,
        clock,
        rand,
        cluster,
        settings.dispatcher,
        Enumerator(),
        DispatcherMetrics(registry, clock),
        start_tracing(settings.telemetry, role="dispatcher", instance=name),
        halt or Failpoints(),
    )
    coord = EtcdCoord(etcd_config(settings.etcd), session_config(settings.etcd), settings.cluster.name, system, rand)
    parts = assemble(runtime, database, coord, report_interval_s=settings.controlplane.report_interval_s)
    server, address = await serve_streams(parts, settings.dispatcher, tasks)
    coord.start()
    coord.register(Member(name, address, "", clock.now_us()))
    parts.loops.start(tasks)
    return RunningDispatcher(name, settings, database, clock, probe, coord, parts, registry, tasks, server, address)
