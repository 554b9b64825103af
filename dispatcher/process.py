"""One dispatcher process: its start, its life, its end. assembly.py says which parts it has.

Called by `tidewheel dispatcher`. Order of the start: database, cluster facts, clock, servers, etcd, loops. Order of the
end: shards are given up, batches in flight are settled, the lease is revoked, streams are closed; telemetry comes last.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import grpc

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
from core.store.database import Database, DatabaseConfig, connect_with_patience
from core.tasks import Tasks
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import DispatcherMetrics, ProcessMetrics, new_registry
from core.telemetry.tracing import Tracing, start_tracing
from core.zones import use_pinned_tzdata
from dispatcher.assembly import Loops, assemble, serve_streams
from dispatcher.runtime import Runtime

log = logging.getLogger(__name__)


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
    parts = assemble(runtime, built.database, coord, report_interval_s=settings.controlplane.report_interval_s)
    loops = parts.loops
    monitor = MonitorServer(settings.dispatcher.metrics_listen, registry, health, key="dispatcher.metrics_listen")
    monitor_address = monitor.start()
    server, address = await serve_streams(parts, settings.dispatcher, tasks)
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
