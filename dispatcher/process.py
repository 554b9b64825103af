"""One dispatcher process: its start, its life, its end. assembly.py says which parts it has.

Called by `tidewheel dispatcher`. Order of the start: database, cluster facts, clock, servers, etcd, loops. Order of the
end: shards are handed off one after the other while they are served on, what nobody takes is given up, batches in
flight are settled, the lease is revoked, streams are closed; telemetry comes last.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import grpc

from core.clock import DatabaseClock, SystemClock
from core.config import DispatcherSettings, Settings, check_loopback
from core.coord.coord import EtcdCoord
from core.coord.layout import Member
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.errors import NotFound, OutcomeUnknown, TidewheelError, Unavailable
from core.failpoints import read_failpoints
from core.rand import SystemRand
from core.store.clock_probe import ClockProbe
from core.store.cluster import Cluster, read_cluster
from core.store.database import Database, DatabaseConfig, connect_with_patience
from core.store.schema_check import wait_for_schema
from core.tasks import Tasks
from core.telemetry.dispatcher_metrics import DispatcherMetrics
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import ProcessMetrics, new_registry
from core.telemetry.tracing import Tracing, start_tracing
from core.zones import use_pinned_tzdata
from dispatcher.assembly import Loops, assemble, serve_streams
from dispatcher.runtime import Runtime

log = logging.getLogger(__name__)

# At the end: how long what was given up is offered to others before it is theirs to take.
_HAND_OVER_LIMIT_S = 1.0
# At the end: when nobody has been ordered to take anything of ours for so long, nobody will.
_NOBODY_COMES_S = 3.0
_HAND_OFF_TICK_S = 0.05
# At the end: how long everything after the hand-offs may take.
_GIVE_UP_LIMIT_S = 5.0
# At the end: how long etcd gets to take back what we wrote.
_WITHDRAW_LIMIT_S = 2.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a dispatcher until `stop` is set, then give everything up in order.

    Raises Invalid for a configuration that cannot work. A database or etcd that is away is waited for.
    """
    use_pinned_tzdata()
    system, rand = SystemClock(), SystemRand()
    clock = DatabaseClock(system)
    dispatcher_id = f"dispatcher-{rand.uuid().hex[:12]}"
    check_loopback(settings.dispatcher.listen, "dispatcher.listen")
    # What cannot work ends the start here, not when the database has been waited for.
    etcd_config(settings.etcd)
    session_config(settings.etcd)
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
    tasks, probe, start = Tasks(), ClockProbe(database, clock), _Start()
    try:
        begun = tasks.spawn(_begin_or_tell(settings, database, probe, start), name="start")
        stopped = tasks.spawn(stop.wait(), name="stop")
        await asyncio.wait({begun, stopped}, return_when=asyncio.FIRST_COMPLETED)
        failure = start.error or tasks.failure
        if failure is not None:
            raise failure
        if start.cluster is None:
            log.info("told to end before the database had answered")
            return
        tasks.spawn(probe.run(), name="clock probe")
        await _serve(settings, stop, tasks, _Built(dispatcher_id, database, clock, rand, start.cluster, probe, tracing))
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
    probe: ClockProbe
    tracing: Tracing


@dataclass(slots=True)
class _Start:
    """How the start went: what the database said of the cluster, or an error that ends the process in one line."""

    cluster: Cluster | None = None
    error: TidewheelError | None = None


async def _begin_or_tell(settings: Settings, database: Database, probe: ClockProbe, start: _Start) -> None:
    try:
        start.cluster = await _begin(settings, database, probe)
    except TidewheelError as error:
        start.error = error


async def _begin(settings: Settings, database: Database, probe: ClockProbe) -> Cluster:
    """Everything that has to wait for the database, for as long as that takes."""
    clock = SystemClock()
    while True:
        await connect_with_patience(database, clock)
        try:
            await wait_for_schema(database, clock)
            cluster = await _wait_for_cluster(database, clock, settings)
            await probe.begin()
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("the database went away during the start: %s", error)
        else:
            return cluster


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
    failpoints = read_failpoints(os.environ)
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
        failpoints,
    )
    coord = EtcdCoord(
        etcd_config(settings.etcd), session_config(settings.etcd), settings.cluster.name, built.clock, built.rand
    )
    parts = assemble(runtime, built.database, coord, report_interval_s=settings.controlplane.report_interval_s)
    loops = parts.loops
    monitor = MonitorServer(settings.dispatcher.metrics_listen, registry, health, key="dispatcher.metrics_listen")
    monitor_address = monitor.start()
    server, address = await serve_streams(parts, settings.dispatcher, tasks)
    _watch(health, loops, settings.dispatcher, built.probe)
    try:
        coord.start()
        coord.register(
            Member(
                built.dispatcher_id,
                settings.dispatcher.advertise or address,
                monitor_address,
                built.clock.now_us(),
                round(settings.dispatcher.weight * 1_000),
                settings.dispatcher.zone,
            )
        )
        loops.start(tasks)
        log.info("dispatcher %s serves workers on %s, metrics on %s", built.dispatcher_id, address, monitor_address)
        await _until(stop, tasks, coord)
    finally:
        await _shut_down(settings, built, coord, loops, server)
        await asyncio.to_thread(monitor.stop)


def _watch(health: Health, loops: Loops, settings: DispatcherSettings, probe: ClockProbe) -> None:
    """What readiness looks at. A pass may take a few ticks of a busy process: that is no hanging yet."""
    loops.discovery.watch(health.pulse("discovery", settings.tick_s * 4))
    loops.due.watch(health.pulse("due loop", settings.tick_s * 4))
    loops.ownership.watch(health.pulse("ownership", settings.term_check_s * 2))
    health.require("database", lambda: probe.silence)


async def _until(stop: asyncio.Event, tasks: Tasks, coord: EtcdCoord) -> None:
    """Wait for the order to stop; a loop that broke ends the process with its error."""
    stopped = tasks.spawn(stop.wait(), name="stop")
    broken = tasks.spawn(tasks.failed.wait(), name="broken loops")
    coord_broken = tasks.spawn(coord.tasks.failed.wait(), name="broken coordination")
    await asyncio.wait({stopped, broken, coord_broken}, return_when=asyncio.FIRST_COMPLETED)
    failure = tasks.failure or coord.tasks.failure
    if failure is not None and not stop.is_set():
        raise failure


async def _hand_off(loops: Loops, clock: DatabaseClock) -> None:
    """Serve on until every shard is in other hands, or nobody comes for them."""
    ownership = loops.ownership
    ownership.begin_draining()
    loops.reports.hurry.set()
    wanted_s = clock.monotonic_s()
    while not ownership.is_empty and not ownership.is_alone:
        now_s = clock.monotonic_s()
        if ownership.is_wanted:
            wanted_s = now_s
        elif now_s - wanted_s > _NOBODY_COMES_S:
            log.info("nobody was ordered to take the shards")
            return
        await clock.sleep(_HAND_OFF_TICK_S)


async def _hand_over(loops: Loops, clock: DatabaseClock) -> None:
    """See to it that the others take what was given up; they do without us too, only later."""
    loops.reports.hurry.set()
    give_up_s = clock.monotonic_s() + _HAND_OVER_LIMIT_S
    while not loops.ownership.succeeded and clock.monotonic_s() < give_up_s:
        await clock.sleep(0.02)


async def _withdraw(coord: EtcdCoord, dispatcher_id: str) -> None:
    """Leave the members; an etcd that is away learns it by the end of the lease."""
    coord.withdraw(dispatcher_id)
    try:
        async with asyncio.timeout(_WITHDRAW_LIMIT_S):
            await coord.settled()
    except TimeoutError:
        log.info("etcd did not take our leave; the lease ends by itself")


async def _shut_down(
    settings: Settings, built: _Built, coord: EtcdCoord, loops: Loops, server: grpc.aio.Server
) -> None:
    try:
        async with asyncio.timeout(settings.dispatcher.drain_limit_s):
            await _hand_off(loops, built.clock)
    except TimeoutError:
        log.warning("handing off took longer than %.0f s; giving the rest up", settings.dispatcher.drain_limit_s)
    try:
        async with asyncio.timeout(_GIVE_UP_LIMIT_S):
            await loops.ownership.drain()
            await _hand_over(loops, built.clock)
            # Only now: shards of a member that is gone are taken without waiting for it.
            await _withdraw(coord, built.dispatcher_id)
            while not loops.completion.idle:
                await built.clock.sleep(0.01)
    except TimeoutError:
        log.warning("the end took longer than %.0f s; ending all the same", _GIVE_UP_LIMIT_S)
    await coord.close()
    await server.stop(grace=0.5)
    log.info("dispatcher %s ended", built.dispatcher_id)
