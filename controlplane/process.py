"""One control-plane replica: the only place where its parts are built, started and stopped.

Called by `tidewheel controlplane`. The port opens first, refusing calls until the database has answered; etcd is waited
for by nobody: without it the API serves all the same, and only the leader's duties rest. The end goes the other way
round: the leadership is given up, calls under way end, the lease is revoked, telemetry comes last.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import grpc
from tidewheel.v1 import admin_service_pb2_grpc, discovery_service_pb2_grpc

from controlplane import services
from controlplane.api import admin, discovery
from controlplane.api.calls import Calls, Gate
from controlplane.api.cluster_reads import Replica
from controlplane.api.server import ApiServer
from controlplane.election import Campaign
from controlplane.hints import Hints
from controlplane.inspection import Inspection
from controlplane.leader import Duties, Leader, Seat
from controlplane.missed_fires import Heard, MissedFires
from controlplane.moves import MoveAccount
from controlplane.placement_store import PlacementStore
from controlplane.rebalancer import Rebalancer
from controlplane.reconciler import Reconciler, Remedies
from controlplane.repair_moves import RepairMoves
from controlplane.reports import LeaderServicer
from controlplane.retention import Retention
from core.buckets import BucketScale
from core.clock import DatabaseClock, SystemClock
from core.config import Settings, check_loopback
from core.coord.coord import EtcdCoord
from core.coord.layout import LeaderInfo
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.errors import OutcomeUnknown, TidewheelError, Unavailable
from core.failpoints import read_failpoints
from core.rand import SystemRand
from core.store.clock_probe import ClockProbe
from core.store.cluster import Cluster, found_cluster
from core.store.database import Database, DatabaseConfig, connect_with_patience
from core.store.moves import Moves
from core.store.placement_rules import PlacementRules
from core.store.repairs import Repairs
from core.store.schema_check import wait_for_schema
from core.store.terms import Terms
from core.tasks import Tasks
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import ControlPlaneMetrics, ProcessMetrics, new_registry
from core.telemetry.tracing import Tracing, start_tracing
from core.wire import internal_pb2_grpc
from core.zones import use_pinned_tzdata

log = logging.getLogger(__name__)

# Reads of the leader, the clock and operators never wait behind a crowd of API calls; nor behind the missed-fire watch,
# which may hold one of these for a while.
_HOUSEKEEPING_SESSIONS = 3
_STOP_GRACE_S = 5.0
# The leader looks more often; a pass may have to wait for the terms of all shards.
_LEADER_PERIOD_S = 1.0
_NO_DATABASE_YET = "this replica waits for the database"


@dataclass(frozen=True, slots=True)
class _Base:
    """What everything else of a replica stands on."""

    settings: Settings
    replica_id: str
    tzdata_version: str
    clock: DatabaseClock
    rand: SystemRand
    database: Database
    housekeeping: Database
    tracing: Tracing
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that have a life of their own."""

    gate: Gate
    calls: Calls
    services: services.Services
    probe: ClockProbe
    coord: EtcdCoord
    hints: Hints
    leader: Leader
    missed: MissedFires
    reconciler: Reconciler
    discovery: discovery.DiscoveryServicer
    metrics: ControlPlaneMetrics
    monitor: MonitorServer


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a replica until `stop` is set, then end in order.

    Raises Invalid for a configuration that cannot work, Unavailable for a port that is taken. A database or etcd that
    is away is waited for.
    """
    tzdata_version = use_pinned_tzdata()
    check_loopback(settings.controlplane.listen, "controlplane.listen")
    system, rand, tasks = SystemClock(), SystemRand(), Tasks()
    clock = DatabaseClock(system)
    replica_id = f"controlplane-{rand.uuid().hex[:12]}"
    database = _database(settings, system, rand, settings.controlplane.pool_size, replica_id)
    housekeeping = _database(settings, system, rand, _HOUSEKEEPING_SESSIONS, replica_id)
    tracing = start_tracing(settings.telemetry, role="controlplane", instance=replica_id)
    base = _Base(settings, replica_id, tzdata_version, clock, rand, database, housekeeping, tracing, tasks)
    try:
        await _serve(base, stop)
    finally:
        await tasks.close()
        await database.close()
        await housekeeping.close()
        await asyncio.to_thread(tracing.close, settings.telemetry.flush_limit_s)


def _database(settings: Settings, clock: SystemClock, rand: SystemRand, pool_size: int, name: str) -> Database:
    config = DatabaseConfig(
        settings.database.url,
        isolation=settings.database.isolation,
        pool_size=pool_size,
        application_name=f"tidewheel {name}",
    )
    return Database(config, clock, rand)


async def _serve(base: _Base, stop: asyncio.Event) -> None:
    settings = base.settings.controlplane
    parts = _parts(base)
    server = _server(base, parts)
    address = await server.start()
    monitor_address = parts.monitor.start()
    info = LeaderInfo(base.replica_id, settings.advertise or address)
    try:
        base.tasks.spawn(server.watch_health(base.clock), name="health")
        base.tasks.spawn(parts.discovery.run(), name="discovery")
        log.info("%s listens on %s, metrics on %s", base.replica_id, address, monitor_address)
        start = _Start(asyncio.Event())
        base.tasks.spawn(_begin_or_tell(base, parts, info, start), name="start")
        await _until(stop, start, base.tasks, parts.coord)
    finally:
        await _shut_down(base, parts, server)


@dataclass(slots=True)
class _Start:
    """How the start went, where it did not go well: an error that ends the process, in one line."""

    refused: asyncio.Event
    error: TidewheelError | None = None


async def _begin_or_tell(base: _Base, parts: _Parts, info: LeaderInfo, start: _Start) -> None:
    try:
        await _begin(base, parts, info)
    except TidewheelError as error:
        start.error = error
        start.refused.set()


async def _begin(base: _Base, parts: _Parts, info: LeaderInfo) -> None:
    """What has to wait for the database; then the gate opens and the loops begin."""
    parts.coord.start()
    system, settings = SystemClock(), base.settings
    await connect_with_patience(base.housekeeping, system)
    while True:
        try:
            await base.database.check()
            await wait_for_schema(base.housekeeping, system)
            await parts.probe.begin()
            await found_cluster(
                base.housekeeping,
                cluster_id=base.rand.uuid(),
                shard_count=settings.cluster.shard_count,
                bucket_width_ms=settings.cluster.bucket_width_ms,
                now_us=base.clock.now_us(),
            )
            break
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("the database went away during the start: %s", error)
            await connect_with_patience(base.housekeeping, system)
    base.tasks.spawn(parts.probe.run(), name="clock probe")
    base.tasks.spawn(parts.hints.run(), name="hints")
    campaign = Campaign(parts.coord, info, base.clock, parts.leader.lead)
    base.tasks.spawn(campaign.run(), name="campaign")
    retention = Retention(base.housekeeping, base.clock, lambda: _leads(parts.leader))
    base.tasks.spawn(retention.run(), name="retention")
    base.tasks.spawn(parts.services.runner.run(), name="operations")
    base.tasks.spawn(parts.missed.run(parts.metrics), name="missed-fire watch")
    base.tasks.spawn(parts.reconciler.run(parts.metrics), name="reconciler")
    parts.gate.open()
    log.info("%s serves on %s", base.replica_id, info.address)


def _parts(base: _Base) -> _Parts:
    settings, clock = base.settings, base.clock
    registry = new_registry()
    metrics = ControlPlaneMetrics(registry)
    ProcessMetrics(
        registry,
        clock=clock,
        database_restarts=lambda: base.database.restarts + base.housekeeping.restarts,
        spans_dropped=lambda: base.tracing.dropped,
        spans_exported=lambda: base.tracing.exported,
    )
    health = Health(clock)
    registry.register(health)
    gate, probe = Gate(_NO_DATABASE_YET), ClockProbe(base.housekeeping, clock)
    health.require("start", lambda: gate.closed_because)
    health.require("database", lambda: probe.silence)
    coord = EtcdCoord(
        etcd_config(settings.etcd), session_config(settings.etcd), settings.cluster.name, clock, base.rand
    )
    store = PlacementStore(
        Terms(base.housekeeping), Moves(base.housekeeping, clock), PlacementRules(base.housekeeping, clock)
    )
    leader = Leader(coord, _duties(base, store, metrics), settings.controlplane, clock, metrics)
    leader.watch(health.pulse("leader", _LEADER_PERIOD_S))
    hints = Hints(coord, clock)
    calls = Calls(gate, clock, base.rand, metrics, base.tracing, settings.controlplane.max_concurrent_calls)
    ground = services.Ground(
        base.database, _cluster(base), clock, base.rand, base.tracing, hints, lambda: _leads(leader)
    )
    return _Parts(
        gate=gate,
        calls=calls,
        services=services.build_services(calls, ground),
        probe=probe,
        coord=coord,
        hints=hints,
        leader=leader,
        missed=_missed_fires(base, Heard(coord, leader.seat)),
        reconciler=_reconciler(base, store.moves, hints, leader.seat),
        discovery=discovery.DiscoveryServicer(coord, clock),
        metrics=metrics,
        monitor=MonitorServer(
            settings.controlplane.metrics_listen, registry, health, key="controlplane.metrics_listen"
        ),
    )


def _duties(base: _Base, store: PlacementStore, metrics: ControlPlaneMetrics) -> Duties:
    settings, clock = base.settings.controlplane, base.clock
    return Duties(
        list(_cluster(base).shards),
        store,
        MoveAccount(store.moves, settings, clock, metrics, read_failpoints(os.environ)),
        Rebalancer(store.moves, settings, clock, base.rand, base.replica_id),
    )


def _leads(leader: Leader) -> bool:
    return leader.seat.membership is not None


def _missed_fires(base: _Base, heard: Heard) -> MissedFires:
    cluster = _cluster(base)
    after_s = base.settings.controlplane.missed_fire_after_s
    return MissedFires(base.housekeeping, cluster, base.clock, heard, Enumerator(), after_s=after_s)


def _reconciler(base: _Base, moves: Moves, hints: Hints, seat: Seat) -> Reconciler:
    cluster, clock = _cluster(base), base.clock
    remedies = Remedies(
        Repairs(base.housekeeping, clock, base.rand, base.replica_id),
        RepairMoves(moves, seat, clock, base.rand, base.replica_id),
        hints,
    )
    inspection = Inspection(base.housekeeping, cluster, clock, Enumerator())
    every_s = base.settings.controlplane.reconcile_interval_s
    return Reconciler(cluster, clock, inspection, remedies, seat, every_s=every_s)


def _cluster(base: _Base) -> Cluster:
    """The facts as configured; before the gate opens they were found to be the cluster's own."""
    settings = base.settings.cluster
    return Cluster(base.rand.uuid(), settings.shard_count, BucketScale(settings.bucket_width_ms))


def _server(base: _Base, parts: _Parts) -> ApiServer:
    seat = parts.leader.seat
    replica = Replica(base.replica_id, _cluster(base), base.tzdata_version, parts.missed, parts.reconciler)
    ground = admin.Ground(
        base.housekeeping, base.clock, base.rand, parts.coord, parts.leader.seat, base.settings.controlplane
    )
    admin_service = admin.build(parts.calls, replica, ground)

    def register(server: grpc.aio.Server) -> None:
        parts.services.register(server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(admin_service, server)
        discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(parts.discovery, server)
        internal_pb2_grpc.add_LeaderServiceServicer_to_server(LeaderServicer(seat), server)

    def without_database() -> str:
        return parts.gate.closed_because or parts.probe.silence

    ailments = {
        **dict.fromkeys(("", *services.NAMES, admin.SERVICE), without_database),
        discovery.SERVICE: lambda: "" if parts.coord.synced else "etcd has not been read yet",
    }
    return ApiServer(base.settings.controlplane, register, ailments)


async def _until(stop: asyncio.Event, start: _Start, tasks: Tasks, coord: EtcdCoord) -> None:
    """Wait for the order to stop; a start that was refused, or a loop that broke, ends the process with its error."""
    waits = [
        tasks.spawn(stop.wait(), name="stop"),
        tasks.spawn(start.refused.wait(), name="refused start"),
        tasks.spawn(tasks.failed.wait(), name="broken loops"),
        tasks.spawn(coord.tasks.failed.wait(), name="broken coordination"),
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    failure = start.error or tasks.failure or coord.tasks.failure
    if failure is not None and not stop.is_set():
        raise failure


async def _shut_down(base: _Base, parts: _Parts, server: ApiServer) -> None:
    parts.gate.closed_because = "this replica is shutting down"
    parts.discovery.close()
    # Ends the campaign, which resigns: the next leader need not wait for the lease.
    await base.tasks.close()
    await server.stop(_STOP_GRACE_S)
    await parts.coord.close()
    await asyncio.to_thread(parts.monitor.stop)
    log.info("%s ended", base.replica_id)
