"""DiscoveryService: tells workers where the dispatchers are, as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from tidewheel.v1 import discovery_service_pb2, discovery_service_pb2_grpc

from core.clock import Clock
from core.coord.layout import Member
from core.coord.ports import CoordView
from core.tasks import Wake

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "tidewheel.v1.DiscoveryService"
# How long a lost hint can matter.
_TICK_S = 1.0
# Who vanishes from etcd is told of so much later: when etcd was emptied or restored all vanish for a moment, and every
# worker would drop its streams. And not before its shards are planned for others: a dispatcher that lost its session
# keeps them as long as it reports, and needs its workers. An address that does not answer costs a worker nothing.
_FADES_IN_S = 3.0


class DiscoveryServicer(discovery_service_pb2_grpc.DiscoveryServiceServicer):
    """Shows the live dispatchers as etcd was last seen; an etcd that is away changes nothing.

    It looks all the time, whether any worker watches here or not: whom the first one to come needs may have vanished
    from etcd before.
    """

    def __init__(self, coord: CoordView, clock: Clock) -> None:
        self._coord = coord
        self._clock = clock
        self._streams: set[Wake] = set()
        self._known: dict[str, tuple[Member, float]] = {}
        # None until etcd was read once: an empty list would send every worker away.
        self._present: discovery_service_pb2.DispatcherList | None = None
        self._planned: tuple[int, frozenset[str]] = (0, frozenset())
        self._closing = False

    async def run(self) -> None:
        """Look, for as long as the replica lives, and wake the streams when there is news."""
        wake = Wake()
        self._coord.subscribe(wake)
        try:
            while True:
                self._look()
                await wake.wait(self._clock, _TICK_S)
        finally:
            self._coord.unsubscribe(wake)

    def close(self) -> None:
        """End every stream, so that their workers turn to another replica."""
        self._closing = True
        for wake in self._streams:
            wake.set()

    async def WatchDispatchers(
        self, request: discovery_service_pb2.WatchDispatchersRequest, context: Context
    ) -> AsyncIterator[discovery_service_pb2.DispatcherList]:
        """The list, and each change of it; nothing before etcd was read once."""
        wake = Wake()
        told: discovery_service_pb2.DispatcherList | None = None
        self._streams.add(wake)
        try:
            while not self._closing:
                if self._present is not None and self._present != told:
                    told = self._present
                    yield told
                await wake.wait(self._clock, _TICK_S)
        finally:
            self._streams.discard(wake)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this replica is shutting down")

    def _look(self) -> None:
        members = sorted(self._fading(), key=lambda member: member.dispatcher_id)
        present = discovery_service_pb2.DispatcherList(
            dispatchers=[
                discovery_service_pb2.DispatcherAddress(dispatcher_id=member.dispatcher_id, address=member.address)
                for member in members
            ]
        )
        if self._coord.synced and present != self._present:
            self._present = present
            for wake in self._streams:
                wake.set()

    def _fading(self) -> list[Member]:
        """Who lives, and who was seen a moment ago, or has shards, at an address that nobody else has taken since."""
        now_s, live, owners = self._clock.monotonic_s(), self._coord.members(), self._owners()
        for dispatcher_id, (known, _) in self._known.items():
            if dispatcher_id in owners:
                self._known[dispatcher_id] = (known, now_s)
        self._known.update({dispatcher_id: (member, now_s) for dispatcher_id, member in live.items()})
        taken = {member.address for member in live.values()}
        for dispatcher_id, (member, seen_s) in list(self._known.items()):
            if dispatcher_id not in live and (member.address in taken or now_s - seen_s > _FADES_IN_S):
                del self._known[dispatcher_id]
        return [member for member, _ in self._known.values()]

    def _owners(self) -> frozenset[str]:
        """Who is to own shards by the plan; the leader takes them from whoever is dead within seconds."""
        plan = self._coord.plan()
        if plan is not None and plan.version != self._planned[0]:
            self._planned = plan.version, frozenset(order.dispatcher_id for order in plan.assignments)
        return self._planned[1]
