"""The Coord port over etcd: composes client, session, mirror and election for one process of one cluster.

Made by the roles' main modules; used through ports.py. It holds no opinion: it shows what etcd says and writes what it
is told, and the terms in SQL decide whether any of that is true.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from core.clock import Clock
from core.coord import ports, versions
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig, SessionConfig
from core.coord.election import Election, Leadership
from core.coord.layout import Layout, LeaderInfo, Member, Owner, Plan, decode_owner, decode_plan, encode
from core.coord.listeners import Listener
from core.coord.mirror import Mirror
from core.coord.notice import Notice
from core.coord.records import Compare, Field, KeyValue, Put
from core.coord.session import Session
from core.coord.view import ViewOfMirror
from core.errors import Conflict, Invalid, TidewheelError
from core.rand import Rand
from core.tasks import Tasks, Wake

log = logging.getLogger(__name__)

_PLAN_TRIES = 3  # only this leader writes the plan, so one look at what is there is all but always right


class EtcdCoord:
    """Implements ports.Coord. `tasks.failed` tells the role when something here broke that should not."""

    def __init__(self, etcd: EtcdConfig, session: SessionConfig, cluster: str, clock: Clock, rand: Rand) -> None:
        self.tasks = Tasks()
        self._clock = clock
        self._layout = Layout(cluster)
        self._client = EtcdClient(etcd, clock, rand)
        self._session = Session(self._client, session, clock, self.tasks)
        self._mirror = Mirror(self._client, self._layout.prefix, clock, self.tasks)
        self._election = Election(self._client, self._session, self._mirror, self._layout.election, clock, self.tasks)
        self._view = ViewOfMirror(self._mirror, self._layout)
        self._server_version = ""
        self._subscribers: dict[Wake, tuple[Listener, ...]] = {}
        self._mirror.on_reset(self._session.keys.verify)
        self._mirror.on_change(self._heal_lost_keys)

    @property
    def synced(self) -> bool:
        return self._mirror.synced

    @property
    def reachable(self) -> bool:
        return self._client.reachable

    @property
    def resets(self) -> int:
        return self._mirror.snapshot().generation

    @property
    def session_held(self) -> bool:
        return self._session.held is not None

    @property
    def session_losses(self) -> int:
        return self._session.losses

    @property
    def server_version(self) -> str:
        return self._server_version

    def members(self) -> Mapping[str, Member]:
        return MappingProxyType(self._view.now().members)

    def owners(self) -> Mapping[int, Owner]:
        return MappingProxyType(self._view.now().owners)

    def plan(self) -> Plan | None:
        return self._view.now().plan

    def leader(self) -> LeaderInfo | None:
        return self._view.now().leader

    def subscribe(self, wake: Wake) -> None:
        self._subscribers[wake] = (self._mirror.on_change(wake.set), self._session.on_change(wake.set))

    def unsubscribe(self, wake: Wake) -> None:
        for forget in self._subscribers.pop(wake, ()):
            forget()

    def register(self, member: Member) -> None:
        self._session.put(self._layout.member(member.dispatcher_id), encode(member))

    def withdraw(self, dispatcher_id: str) -> None:
        self._session.delete(self._layout.member(dispatcher_id))

    def publish_owner(self, owner: Owner) -> None:
        def beats(present: bytes) -> bool:
            """A later term, published by another process meanwhile, stays."""
            try:
                return decode_owner(present).term <= owner.term
            except Invalid:
                return True

        self._session.put(self._layout.owner(owner.shard), encode(owner), beats)

    def withdraw_owner(self, shard: int) -> None:
        self._session.delete(self._layout.owner(shard))

    async def settled(self) -> None:
        await self._session.settled()

    async def campaign(self, info: LeaderInfo) -> Leadership:
        return await self._election.campaign(encode(info))

    async def resign(self, leadership: ports.Leadership) -> None:
        await self._election.resign(_ours(leadership))

    async def write_plan(self, leadership: ports.Leadership, plan: Plan) -> None:
        key, value = self._layout.plan, encode(plan)
        for _ in range(_PLAN_TRIES):
            present = (await self._client.get(key)).first
            if present is not None and _stored_version(present) >= plan.version:
                raise Conflict(f"plan {plan.version} is not above plan {_stored_version(present)}", field="version")
            # Compared with what was just read, so that a write delayed in some queue cannot undo a later plan.
            unchanged = Compare(key, Field.MOD_REVISION, present.mod_revision if present else 0)
            result = await self._election.guarded_txn(_ours(leadership), [Put(key, value)], [unchanged])
            if result.succeeded:
                return
        raise Conflict("somebody else keeps writing the plan", field="version")

    def start(self) -> None:
        self._mirror.start()
        self._session.start()
        self.tasks.spawn(self._look_at_version(), name="etcd version check")

    async def ready(self) -> None:
        wake = Wake()
        self.subscribe(wake)
        try:
            while not (self.synced and self.session_held):
                await wake.wait(self._clock, 0.5)
        finally:
            self.unsubscribe(wake)

    async def close(self) -> None:
        await self.tasks.close()
        await self._session.close()
        await self._client.close()

    def _heal_lost_keys(self) -> None:
        """Put again at once what somebody removed, or what an old server lost with a lease that it says is alive."""
        snapshot = self._mirror.snapshot()
        self._session.keys.verify_against(snapshot.kvs.keys(), snapshot.revision)

    async def _look_at_version(self) -> None:
        notice, backoff = Notice(log, "asking for etcd's version"), self._client.backoff()
        while True:
            try:
                self._server_version = await self._client.server_version()
                break
            except TidewheelError as error:
                notice.failed(error)
                await backoff.wait()
        found = versions.complaint(self._server_version)
        if found is not None:
            log.warning("%s", found)


def _ours(leadership: ports.Leadership) -> Leadership:
    if not isinstance(leadership, Leadership):
        raise TypeError(f"{leadership!r} was not won here")
    return leadership


def _stored_version(kv: KeyValue) -> int:
    try:
        return decode_plan(kv.value).version
    except Invalid:
        return 0
