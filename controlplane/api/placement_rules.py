"""AdminService's drains and freezes: what operators forbid the leader, and what they allow again."""

from __future__ import annotations

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.placement_views import encode_rule
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from controlplane.placement_requests import PlacementRequests
from core.errors import Invalid
from core.store.placement_rules import PlacementRule, PlacementRules

_MOST_ID_CHARS = 128


class PlacementRuleChanges:
    """Adds and lifts rules; the leader reads them at its next look."""

    def __init__(self, calls: Calls, requests: PlacementRequests, rules: PlacementRules) -> None:
        self._calls = calls
        self._requests = requests
        self._rules = rules

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
        """Let a dispatcher be emptied."""
        faults = Violations()
        with faults.noted():
            check_dispatcher(request.dispatcher_id)
        call = self._calls.cluster_mutation(origin, request, faults)
        return _read(await self._requests.drain(call, request.dispatcher_id, render=_rendered))

    async def undrain(
        self, request: admin_service_pb2.UndrainDispatcherRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift a drain, also of a dispatcher that is gone."""
        faults = Violations()
        with faults.noted():
            check_dispatcher(request.dispatcher_id)
        call = self._calls.cluster_mutation(origin, request, faults)
        return _read(await self._requests.undrain(call, request.dispatcher_id, render=_rendered))

    async def freeze(
        self, request: admin_service_pb2.FreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Forbid planned moves of one shard, or of all."""
        call = self._calls.cluster_mutation(origin, request, Violations())
        return _read(await self._requests.freeze(call, _one_or_all(request), render=_rendered))

    async def unfreeze(
        self, request: admin_service_pb2.UnfreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift the freeze of one shard, or that of all."""
        call = self._calls.cluster_mutation(origin, request, Violations())
        return _read(await self._requests.unfreeze(call, _one_or_all(request), render=_rendered))

    async def list_rules(
        self, request: admin_service_pb2.ListPlacementRulesRequest, origin: Origin
    ) -> admin_service_pb2.ListPlacementRulesResponse:
        """Everything that is forbidden at present."""
        standing = await self._rules.standing()
        return admin_service_pb2.ListPlacementRulesResponse(rules=[encode_rule(rule) for rule in standing])


def check_dispatcher(dispatcher_id: str) -> str:
    """The id of a dispatcher as it is. Raises Invalid."""
    if not 1 <= len(dispatcher_id) <= _MOST_ID_CHARS or not dispatcher_id.isprintable():
        raise Invalid("dispatcher_id", f"must be 1 to {_MOST_ID_CHARS} printable characters")
    return dispatcher_id


def _one_or_all(request: admin_service_pb2.FreezeShardsRequest | admin_service_pb2.UnfreezeShardsRequest) -> int | None:
    return request.shard if request.HasField("shard") else None


def _rendered(rule: PlacementRule) -> bytes:
    return encode_rule(rule).SerializeToString()


def _read(answer: bytes) -> admin_service_pb2.PlacementRule:
    return admin_service_pb2.PlacementRule.FromString(answer)
