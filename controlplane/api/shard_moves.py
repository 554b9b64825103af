"""AdminService's MoveShards, Rebalance and PlanRebalance: asking for planned moves, and what a round would do.

Rounds are the leader's business, who alone knows the loads: another replica forwards such a call to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.leader_view import LeaderView
from controlplane.api.placement_rules import check_dispatcher
from controlplane.api.placement_views import encode_move
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from controlplane.placement_requests import NotLeading, PlacementRequests
from controlplane.preview import Preview
from core.store.move_records import MoveRecord

MOST_SHARDS = 1_024


class ShardMoves:
    """Writes wishes for moves down; the leader carries them out."""

    def __init__(self, calls: Calls, requests: PlacementRequests, view: LeaderView) -> None:
        self._calls = calls
        self._requests = requests
        self._view = view

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {"MoveShards": self.move, "Rebalance": self.rebalance, "PlanRebalance": self.plan}

    async def move(
        self, request: admin_service_pb2.MoveShardsRequest, origin: Origin
    ) -> admin_service_pb2.MoveShardsResponse:
        """Ask for moves of shards to one dispatcher, all or none."""
        faults = Violations()
        with faults.noted():
            check_dispatcher(request.dispatcher_id)
        if not 1 <= len(request.shards) <= MOST_SHARDS:
            faults.add("shards", f"must name 1 to {MOST_SHARDS} shards")
        elif len(set(request.shards)) < len(request.shards):
            faults.add("shards", "must name each shard once")
        call = self._calls.cluster_mutation(origin, request, faults)
        answer = await self._requests.move(call, list(request.shards), request.dispatcher_id, render=_rendered)
        return admin_service_pb2.MoveShardsResponse.FromString(answer)

    async def rebalance(
        self, request: admin_service_pb2.RebalanceRequest, origin: Origin
    ) -> admin_service_pb2.MoveShardsResponse:
        """Ask for the moves of a round of rebalancing."""
        call = self._calls.cluster_mutation(origin, request, Violations())
        try:
            answer = await self._requests.rebalance(call, render=_rendered)
        except NotLeading:
            forwarded: admin_service_pb2.MoveShardsResponse = await self._view.forward(request, origin)
            return forwarded
        return admin_service_pb2.MoveShardsResponse.FromString(answer)

    async def plan(
        self, request: admin_service_pb2.PlanRebalanceRequest, origin: Origin
    ) -> admin_service_pb2.PlanRebalanceResponse:
        """What such a round would do."""
        try:
            return _encode(self._requests.preview())
        except NotLeading:
            forwarded: admin_service_pb2.PlanRebalanceResponse = await self._view.forward(request, origin)
            return forwarded


def _rendered(moves: Sequence[MoveRecord]) -> bytes:
    return admin_service_pb2.MoveShardsResponse(moves=[encode_move(each) for each in moves]).SerializeToString()


def _encode(preview: Preview) -> admin_service_pb2.PlanRebalanceResponse:
    return admin_service_pb2.PlanRebalanceResponse(
        moves=[
            admin_service_pb2.PlannedMove(
                shard=move.shard,
                from_dispatcher_id=move.from_dispatcher,
                to_dispatcher_id=move.to_dispatcher,
                load=move.cost,
            )
            for move in preview.moves
        ],
        dispatchers=[
            admin_service_pb2.ExpectedLoad(
                dispatcher_id=one.dispatcher_id,
                shards_before=one.shards_before,
                shards_after=one.shards_after,
                load_before=one.load_before,
                load_after=one.load_after,
                fair_load=one.fair_load,
            )
            for one in preview.dispatchers
        ],
        loads_known=preview.loads_known,
        held_back=preview.held_back,
    )
