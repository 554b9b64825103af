"""AdminService's drains and freezes: what operators forbid the leader, and what they allow again."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Calls, Origin
from controlplane.api.placement_views import encode_rule
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from controlplane.placement_requests import PlacementRequests, RenderRule
from core.errors import Invalid
from core.store.audit import Call
from core.store.placement_rules import PlacementRule, PlacementRules

_MOST_ID_CHARS = 128

_OfDispatcher = admin_service_pb2.DrainDispatcherRequest | admin_service_pb2.UndrainDispatcherRequest
_OfShards = admin_service_pb2.FreezeShardsRequest | admin_service_pb2.UnfreezeShardsRequest
_Subject = TypeVar("_Subject", contravariant=True)


class _Change(Protocol[_Subject]):
    """What PlacementRequests does about a dispatcher or about shards: adds or lifts a rule."""

    async def __call__(self, call: Call, subject: _Subject, /, *, render: RenderRule) -> bytes: ...


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
        return await self._of_dispatcher(request, origin, self._requests.drain)

    async def undrain(
        self, request: admin_service_pb2.UndrainDispatcherRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift a drain, also of a dispatcher that is gone."""
        return await self._of_dispatcher(request, origin, self._requests.undrain)

    async def freeze(
        self, request: admin_service_pb2.FreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Forbid planned moves of one shard, or of all."""
        return await self._of_shards(request, origin, self._requests.freeze)

    async def unfreeze(
        self, request: admin_service_pb2.UnfreezeShardsRequest, origin: Origin
    ) -> admin_service_pb2.PlacementRule:
        """Lift the freeze of one shard, or that of all."""
        return await self._of_shards(request, origin, self._requests.unfreeze)

    async def list_rules(
        self, request: admin_service_pb2.ListPlacementRulesRequest, origin: Origin
    ) -> admin_service_pb2.ListPlacementRulesResponse:
        """Everything that is forbidden at present."""
        standing = await self._rules.standing()
        return admin_service_pb2.ListPlacementRulesResponse(rules=[encode_rule(rule) for rule in standing])

    async def _of_dispatcher(
        self, request: _OfDispatcher, origin: Origin, change: _Change[str]
    ) -> admin_service_pb2.PlacementRule:
        faults = Violations()
        with faults.noted():
            check_dispatcher(request.dispatcher_id)
        call = self._calls.cluster_mutation(origin, request, faults)
        return _read(await change(call, request.dispatcher_id, render=_rendered))

    async def _of_shards(
        self, request: _OfShards, origin: Origin, change: _Change[int | None]
    ) -> admin_service_pb2.PlacementRule:
        call = self._calls.cluster_mutation(origin, request, Violations())
        one_or_all = request.shard if request.HasField("shard") else None
        return _read(await change(call, one_or_all, render=_rendered))


def check_dispatcher(dispatcher_id: str) -> str:
    """The id of a dispatcher as it is. Raises Invalid."""
    if not 1 <= len(dispatcher_id) <= _MOST_ID_CHARS or not dispatcher_id.isprintable():
        raise Invalid("dispatcher_id", f"must be 1 to {_MOST_ID_CHARS} printable characters")
    return dispatcher_id


def _rendered(rule: PlacementRule) -> bytes:
    return encode_rule(rule).SerializeToString()


def _read(answer: bytes) -> admin_service_pb2.PlacementRule:
    return admin_service_pb2.PlacementRule.FromString(answer)
