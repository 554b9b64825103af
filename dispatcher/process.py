"""One dispatcher process: the only place where its parts are built, started and stopped.

Called by `tidewheel dispatcher`. Order of the start: database, cluster facts, clock, servers, etcd, loops. Order of the
end: shards are given up, batches in flight are settled, the lease is revoked, streams are closed; telemetry comes last.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import grpc
from tidewheel.v1 import worker_service_pb2_grpc

from core.clock import DatabaseClock, SystemClock
from core.config import Settings, check_loopback
from core.coord.coord import EtcdCoord
from core.coord.layout import Member
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.errors import NotFound
from core.rand import SystemRand
from core.store.clock_probe import ClockProbe
from core.store.cluster import Cluster, read_cluster
from core.store.completion import Completion
from core.store.database import Database, DatabaseConfig, connect_with_patience
from core.store.discovery import Discovery
from core.store.firing import Firing
from core.store.job_lookup import JobLookup
from core.store.leases import Leases
from core.store.marks import MarkKeeper
from core.store.terms import Terms
from core.tasks import Tasks
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import DispatcherMetrics, ProcessMetrics, new_registry
from core.telemetry.tracing import Tracing, start_tracing
from core.wire import internal_pb2_grpc
from core.zones import use_pinned_tzdata
from dispatcher.adoption import Adoption
from dispatcher.agenda import Agenda
from dispatcher.attempts import Attempts
from dispatcher.completion import CompletionLoop
from dispatcher.delivery import Delivery
from dispatcher.discovery import DiscoveryLoop
from dispatcher.fence_watch import FenceWatch
from dispatcher.firing import DueLoop
from dispatcher.hints import Hints
from dispatcher.holdings import Holdings
from dispatcher.jobs import Jobs
from dispatcher.matching import MatchLoop
from dispatcher.ownership import Ownership
from dispatcher.progress import ProgressLoop
from dispatcher.reaper import Reaper
from dispatcher.renewals import RenewalLoop
from dispatcher.reports import Reports
from dispatcher.routes import Routes
from dispatcher.runtime import Memory, Runtime
from dispatcher.worker_link import WorkerLink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a dispatcher, built and not yet running."""

    due: DueLoop
    matching: MatchLoop
    discovery: DiscoveryLoop
    progress: ProgressLoop
    completion: CompletionLoop
    renewals: RenewalLoop
    reaper: Reaper
    ownership: Ownership
    reports: Reports

    def start(self, tasks: Tasks) -> None:
        tasks.spawn(self.ownership.run(), name="ownership")
        tasks.spawn(self.discovery.run(), name="discovery")
        tasks.spawn(self.due.run(), name="due loop")
        tasks.spawn(self.matching.run(), name="matching")
        tasks.spawn(self.completion.run(), name="completion")
        tasks.spawn(self.renewals.run(), name="renewals")
        tasks.spawn(self.reaper.run(), name="reaper")
        tasks.spawn(self.progress.run(), name="progress")
        tasks.spawn(self.reports.run(), name="reports")


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a dispatcher until `stop` is set, then give everything up in order.

    Raises Invalid for a configuration that cannot work. A database or etcd that is away is waited for.
    """
    use_pinned_tzdata()
    system, rand = SystemClock(), SystemRand()
    clock = DatabaseClock(system)
    dispatcher_id = f"dispatcher-{rand.uuid().hex[:12]}"
    check_loopback(settings.dispatcher.listen, "dispatcher.listen")
    database = Database(
        DatabaseConfig(
            settings.database.url,
            isolation=settings.database.isolation,
            pool_size=settings.dispatcher.pool_size,
            application_name=f"tidewheel {dispatcher_id}",
        ),
        system,
        rand,
    )
    tracing = start_tracing(settings.telemetry, role="dispatcher", instance=dispatcher_id)
    tasks = Tasks()
    try:
        await connect_with_patience(database, system)
        cluster = await _wait_for_cluster(database, system, settings)
        probe = ClockProbe(database, clock)
        await probe.begin()
        tasks.spawn(probe.run(), name="clock probe")
        await _serve(settings, stop, tasks, _Built(dispatcher_id, database, clock, rand, cluster, tracing))
    finally:
        await tasks.close()
        await database.close()
        await asyncio.to_thread(tracing.close, settings.telemetry.flush_limit_s)


@dataclass(frozen=True, slots=True)
class _Built:
    dispatcher_id: str
    database: Database
    clock: DatabaseClock
    rand: SystemRand
    cluster: Cluster
    tracing: Tracing


async def _wait_for_cluster(database: Database, clock: SystemClock, settings: Settings) -> Cluster:
    """The cluster's facts, once a control plane or `tidewheel migrate` has founded it."""
    told = False
    while True:
        try:
            cluster = await read_cluster(database)
        except NotFound:
            if not told:
                log.warning("waiting for a control plane to found the cluster in this database")
            told = True
            await clock.sleep(0.5)
        else:
            cluster.require(settings.cluster.shard_count, settings.cluster.bucket_width_ms)
            return cluster


async def _serve(settings: Settings, stop: asyncio.Event, tasks: Tasks, built: _Built) -> None:
    registry = new_registry()
    metrics = DispatcherMetrics(registry, built.clock)
    ProcessMetrics(
        registry,
        clock=built.clock,
        database_restarts=lambda: built.database.restarts,
        spans_dropped=lambda: built.tracing.dropped,
        spans_exported=lambda: built.tracing.exported,
    )
    health = Health(built.clock)
    registry.register(health)
    runtime = Runtime(
        built.dispatcher_id,
        built.clock,
        built.rand,
        built.cluster,
        settings.dispatcher,
        Enumerator(),
        metrics,
        built.tracing,
    )
    coord = EtcdCoord(
        etcd_config(settings.etcd), session_config(settings.etcd), settings.cluster.name, built.clock, built.rand
    )
    memory = _memory(runtime, built.database)
    loops = _loops(runtime, memory, built.database, coord, settings)
    monitor = MonitorServer(settings.dispatcher.metrics_listen, registry, health, key="dispatcher.metrics_listen")
    monitor_address = monitor.start()
    server, address = await _grpc_server(settings, runtime, memory, loops, tasks)
    loops.discovery.watch(health.pulse("due loop", settings.dispatcher.tick_s * 4))
    try:
        coord.start()
        coord.register(
            Member(
                built.dispatcher_id,
                settings.dispatcher.advertise or address,
                monitor_address,
                built.clock.now_us(),
            )
        )
        loops.start(tasks)
        log.info("dispatcher %s serves workers on %s, metrics on %s", built.dispatcher_id, address, monitor_address)
        await _until(stop, tasks, coord)
    finally:
        await _shut_down(settings, built, coord, loops, server)
        await asyncio.to_thread(monitor.stop)


def _memory(runtime: Runtime, database: Database) -> Memory:
    lookup = JobLookup(database, runtime.dispatcher_id)
    return Memory(
        Holdings(), Agenda(), Jobs(lookup, runtime.enumerator), Routes(runtime.settings.waiting_limit), Attempts()
    )


def _loops(runtime: Runtime, memory: Memory, database: Database, coord: EtcdCoord, settings: Settings) -> Loops:
    owner = runtime.dispatcher_id
    watch = FenceWatch(runtime, memory)
    leases, discovery, marks = Leases(database, owner), Discovery(database), MarkKeeper(database, owner)
    delivery = Delivery(runtime, memory)

    def owner_address(shard: int) -> str:
        published = coord.owners().get(shard)
        member = coord.members().get(published.dispatcher_id) if published is not None else None
        return "" if member is None or member.dispatcher_id == owner else member.address

    due = DueLoop(runtime, memory, Firing(database, owner), JobLookup(database, owner), delivery, watch)
    completion = CompletionLoop(runtime, memory, Completion(database, owner), watch, owner_address)
    scanning = DiscoveryLoop(runtime, memory, discovery)
    ownership = Ownership(runtime, memory, coord, Terms(database), marks, Adoption(runtime, memory, leases, watch))
    ownership.quiet = due.quiet
    reports = Reports(
        runtime,
        memory,
        coord,
        interval_s=settings.controlplane.report_interval_s,
        draining=lambda: ownership.draining,
        last_pass_s=lambda: scanning.last_pass_s,
    )
    return Loops(
        due=due,
        matching=MatchLoop(runtime, memory, leases, delivery, watch),
        discovery=scanning,
        progress=ProgressLoop(runtime, memory, marks, discovery, leases, watch),
        completion=completion,
        renewals=RenewalLoop(runtime, memory, leases, watch),
        reaper=Reaper(runtime, memory, completion),
        ownership=ownership,
        reports=reports,
    )


async def _grpc_server(
    settings: Settings, runtime: Runtime, memory: Memory, loops: Loops, tasks: Tasks
) -> tuple[grpc.aio.Server, str]:
    limit = settings.dispatcher.max_message_bytes
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            # Workers may ping this often, also while nothing runs (field bug B84).
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # A worker that vanished without a word is noticed.
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
        )
    )
    link = WorkerLink(runtime, memory, loops.matching, loops.completion, loops.renewals, tasks)
    worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(link, server)
    internal_pb2_grpc.add_DispatcherServiceServicer_to_server(Hints(memory), server)
    host, _, _ = settings.dispatcher.listen.rpartition(":")
    port = server.add_insecure_port(settings.dispatcher.listen)
    await server.start()
    return server, f"{host}:{port}"


async def _until(stop: asyncio.Event, tasks: Tasks, coord: EtcdCoord) -> None:
    """Wait for the order to stop; a loop that broke ends the process with its error."""
    stopped = tasks.spawn(stop.wait(), name="stop")
    broken = tasks.spawn(tasks.failed.wait(), name="broken loops")
    coord_broken = tasks.spawn(coord.tasks.failed.wait(), name="broken coordination")
    await asyncio.wait({stopped, broken, coord_broken}, return_when=asyncio.FIRST_COMPLETED)
    failure = tasks.failure or coord.tasks.failure
    if failure is not None and not stop.is_set():
        raise failure


async def _shut_down(
    settings: Settings, built: _Built, coord: EtcdCoord, loops: Loops, server: grpc.aio.Server
) -> None:
    try:
        async with asyncio.timeout(settings.dispatcher.drain_limit_s):
            coord.withdraw(built.dispatcher_id)
            await loops.ownership.drain()
            await coord.settled()
            while not loops.completion.idle:
                await built.clock.sleep(0.01)
    except TimeoutError:
        log.warning("draining took longer than %.0f s; ending all the same", settings.dispatcher.drain_limit_s)
    await coord.close()
    await server.stop(grace=0.5)
    log.info("dispatcher %s ended", built.dispatcher_id)
