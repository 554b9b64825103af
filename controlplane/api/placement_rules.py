"""AdminService's drains and freezes: what operators forbid the leader, and what they allow again."""

from __future__ import annotations

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.placement_views import encode_rule
from controlplane.api.servicers import Handlers
from controlplane.api.shard_reads import check_shard
from controlplane.api.violations import Violations
from core.coord.ports import CoordView
from core.errors import Invalid, NotFound
from core.states import PlacementRuleKind
from core.store.cluster import Cluster
from core.store.placement_rules import PlacementRule, PlacementRules

_MOST_ID_CHARS = 128


class PlacementRuleChanges:
    """Adds and lifts rules; the leader reads them at its next look."""

    def __init__(self, calls: Calls, rules: PlacementRules, coord: CoordView, cluster: Cluster) -> None:
        self._calls = calls
        self._rules = rules
        self._coord = coord
        self._cluster = cluster

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {
            "DrainDispatcher": self.drain,
            "UndrainDispatcher": self.undrain,
            "FreezeShards": self.freeze,
            "UnfreezeShards": self.unfreeze,
            "ListPlacementRules": self.list_rules,
        }

    async def drain(
        self, request: admin_service_pb2.DrainDispatcherRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Let a dispatcher that is alive be emptied."""
        faults = Violations()
        with faults.noted():
            _check_dispatcher(request.dispatcher_id)
        call = self._calls.cluster_mutation(origin, request, faults)
        if request.dispatcher_id not in self._coord.members():
            raise NotFound("dispatcher", request.dispatcher_id)
        kind, subject = PlacementRuleKind.DRAIN_DISPATCHER, request.dispatcher_id
        return _read(await self._rules.add(call, kind, subject, render=_rendered))

    async def undrain(
        self, request: admin_service_pb2.UndrainDispatcherRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift a drain, also of a dispatcher that is gone."""
        faults = Violations()
        with faults.noted():
            _check_dispatcher(request.dispatcher_id)
        call = self._calls.cluster_mutation(origin, request, faults)
        kind, subject = PlacementRuleKind.DRAIN_DISPATCHER, request.dispatcher_id
        return _read(await self._rules.lift(call, kind, subject, render=_rendered))

    async def freeze(
        self, request: admin_service_pb2.FreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Forbid planned moves of one shard, or of all."""
        faults = Violations()
        kind, subject = self._frozen(request, faults)
        call = self._calls.cluster_mutation(origin, request, faults)
        return _read(await self._rules.add(call, kind, subject, render=_rendered))

    async def unfreeze(
        self, request: admin_service_pb2.UnfreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift the freeze of one shard, or that of all."""
        faults = Violations()
        kind, subject = self._frozen(request, faults)
        call = self._calls.cluster_mutation(origin, request, faults)
        return _read(await self._rules.lift(call, kind, subject, render=_rendered))

    async def list_rules(
        self, request: admin_service_pb2.ListPlacementRulesRequest, origin: Origin
    ) -> admin_service_pb2.ListPlacementRulesResponse:
        """Everything that is forbidden at present."""
        standing = await self._rules.standing()
        return admin_service_pb2.ListPlacementRulesResponse(rules=[encode_rule(rule) for rule in standing])

    def _frozen(
        self,
        request: admin_service_pb2.FreezeShardsRequest | admin_service_pb2.UnfreezeShardsRequest,
        faults: Violations,
    ) -> tuple[PlacementRuleKind, str]:
        if not request.HasField("shard"):
            return PlacementRuleKind.FREEZE_ALL, ""
        with faults.noted():
            check_shard(request.shard, self._cluster)
        return PlacementRuleKind.FREEZE_SHARD, str(request.shard)


def _check_dispatcher(dispatcher_id: str) -> None:
    if not 1 <= len(dispatcher_id) <= _MOST_ID_CHARS or not dispatcher_id.isprintable():
        raise Invalid("dispatcher_id", f"must be 1 to {_MOST_ID_CHARS} printable characters")


def _rendered(rule: PlacementRule) -> bytes:
    return encode_rule(rule).SerializeToString()


def _read(answer: bytes) -> admin_service_pb2.PlacementRule:
    return admin_service_pb2.PlacementRule.FromString(answer)
