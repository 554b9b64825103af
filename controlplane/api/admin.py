"""AdminService: one servicer over handlers that have a duty each. Contract: proto/tidewheel/v1/admin_service.proto.

Who answers what: cluster_reads.py, shard_reads.py, move_reads.py, shard_moves.py, placement_rules.py,
reconciliation.py. Called by assembly.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.v1 import admin_service_pb2, admin_service_pb2_grpc

from controlplane.api.calls import Calls
from controlplane.api.cluster_reads import ClusterReads, Replica
from controlplane.api.leader_view import LeaderView
from controlplane.api.move_reads import MoveReads
from controlplane.api.placement_rules import PlacementRuleChanges
from controlplane.api.reconciliation import Reconciliation
from controlplane.api.servicers import servicer_of
from controlplane.api.shard_moves import ShardMoves
from controlplane.api.shard_reads import ShardReads
from controlplane.leader import Seat
from controlplane.placement_requests import PlacementRequests
from controlplane.placement_store import PlacementStore
from core.clock import DatabaseClock
from core.config import ControlPlaneSettings
from core.coord.ports import LeaderCoord
from core.rand import Rand
from core.store.database import Database
from core.store.moves import Moves
from core.store.placement_rules import PlacementRules
from core.store.terms import Terms

_SERVICE = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
SERVICE = _SERVICE.full_name


@dataclass(frozen=True, slots=True)
class Ground:
    """What the service stands on; `seat` says what this replica knows while it leads."""

    database: Database
    clock: DatabaseClock
    rand: Rand
    coord: LeaderCoord
    seat: Seat
    settings: ControlPlaneSettings


def build(calls: Calls, replica: Replica, ground: Ground) -> admin_service_pb2_grpc.AdminServiceServicer:
    """The service of one replica."""
    store = PlacementStore(
        Terms(ground.database), Moves(ground.database, ground.clock), PlacementRules(ground.database, ground.clock)
    )
    requests = PlacementRequests(store, replica.cluster, ground.coord, ground.seat, ground.settings, ground.rand)
    view = LeaderView(ground.seat, ground.coord)
    shards = ShardReads(replica.cluster, ground.database, ground.clock, store, view)
    made: admin_service_pb2_grpc.AdminServiceServicer = servicer_of(
        admin_service_pb2_grpc.AdminServiceServicer,
        _SERVICE,
        calls,
        ClusterReads(replica, ground.coord, ground.database, ground.clock, shards, view).handlers(),
        shards.handlers(),
        MoveReads(store.moves).handlers(),
        ShardMoves(calls, requests, view).handlers(),
        PlacementRuleChanges(calls, requests, store.rules).handlers(),
        Reconciliation(calls, replica.reconciler, view, ground.database, ground.clock, replica.cluster).handlers(),
    )
    return made
