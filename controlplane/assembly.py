"""The parts of one control-plane replica and how they are connected; nothing here runs yet.

Called by process.py, which starts and stops what is assembled here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import grpc
from tidewheel.v1 import admin_service_pb2_grpc, discovery_service_pb2_grpc

from controlplane import services
from controlplane.api import admin, discovery
from controlplane.api.calls import Calls, Gate
from controlplane.api.cluster_reads import Replica
from controlplane.api.server import ApiServer
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
from core.buckets import BucketScale
from core.clock import DatabaseClock
from core.config import Settings
from core.coord.coord import EtcdCoord
from core.coord.settings import etcd_config, session_config
from core.enumerator import Enumerator
from core.failpoints import read_failpoints
from core.rand import SystemRand
from core.store.clock_probe import ClockProbe
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.moves import Moves
from core.store.placement_rules import PlacementRules
from core.store.repairs import Repairs
from core.store.terms import Terms
from core.tasks import Tasks
from core.telemetry.control_plane_metrics import ControlPlaneMetrics
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import ProcessMetrics, new_registry
from core.telemetry.tracing import Tracing
from core.wire import internal_pb2_grpc

# The leader looks more often; a pass may have to wait for the terms of all shards.
_LEADER_PERIOD_S = 1.0
_NO_DATABASE_YET = "this replica waits for the database"


@dataclass(frozen=True, slots=True)
class Base:
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
class Assembly:
    """The parts of a replica that have a life of their own."""

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


def assemble(base: Base) -> Assembly:
    """Build every part; the gate is closed until the database has answered."""
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
    ground = services.Ground(base.database, _cluster(base), clock, base.rand, base.tracing, hints, leader.seat.leads)
    return Assembly(
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


def _duties(base: Base, store: PlacementStore, metrics: ControlPlaneMetrics) -> Duties:
    settings, clock = base.settings.controlplane, base.clock
    return Duties(
        list(_cluster(base).shards),
        store,
        MoveAccount(store.moves, settings, clock, metrics, read_failpoints(os.environ)),
        Rebalancer(store.moves, settings, clock, base.rand, base.replica_id),
    )


def _missed_fires(base: Base, heard: Heard) -> MissedFires:
    cluster = _cluster(base)
    after_s = base.settings.controlplane.missed_fire_after_s
    return MissedFires(base.housekeeping, cluster, base.clock, heard, Enumerator(), after_s=after_s)


def _reconciler(base: Base, moves: Moves, hints: Hints, seat: Seat) -> Reconciler:
    cluster, clock = _cluster(base), base.clock
    remedies = Remedies(
        Repairs(base.housekeeping, clock, base.rand, base.replica_id),
        RepairMoves(moves, seat, clock, base.rand, base.replica_id),
        hints,
    )
    inspection = Inspection(base.housekeeping, cluster, clock, Enumerator())
    every_s = base.settings.controlplane.reconcile_interval_s
    return Reconciler(cluster, clock, inspection, remedies, seat, every_s=every_s)


def _cluster(base: Base) -> Cluster:
    """The facts as configured; before the gate opens they were found to be the cluster's own."""
    settings = base.settings.cluster
    return Cluster(base.rand.uuid(), settings.shard_count, BucketScale(settings.bucket_width_ms))


def build_server(base: Base, parts: Assembly) -> ApiServer:
    """The API's port with all services behind it."""
    seat = parts.leader.seat
    replica = Replica(base.replica_id, _cluster(base), base.tzdata_version, parts.missed, parts.reconciler)
    ground = admin.Ground(base.housekeeping, base.clock, base.rand, parts.coord, seat, base.settings.controlplane)
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
