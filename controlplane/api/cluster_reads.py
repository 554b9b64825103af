"""AdminService's GetClusterStatus and ListDispatchers: what runs, and what needs an operator's eye."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.leader_view import LeaderView
from controlplane.api.servicers import Handlers
from controlplane.api.shard_reads import ShardReads
from controlplane.missed_fires import MissedFires
from controlplane.planner import newest_terms
from controlplane.reconciler import Reconciler
from core.clock import DatabaseClock
from core.coord.layout import Member
from core.coord.ports import LeaderCoord
from core.fence import TermRow
from core.states import TermState
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.marks import Marks

# A watermark this far behind means that due rows wait for their dispatcher, or that their bucket cannot be finished.
_LAGGING_S = 60.0
_DISTRIBUTION = "tidewheel-server"


@dataclass(frozen=True, slots=True)
class Replica:
    """This process: who it is, which cluster and time zone data it works with, and what its watch and its reconciler
    find.
    """

    replica_id: str
    cluster: Cluster
    tzdata_version: str
    missed: MissedFires
    reconciler: Reconciler


class ClusterReads:
    """Reads etcd's picture, SQL's truth and, on the leader, the reports."""

    def __init__(
        self,
        replica: Replica,
        coord: LeaderCoord,
        database: Database,
        clock: DatabaseClock,
        shards: ShardReads,
        view: LeaderView,
    ) -> None:
        self._replica = replica
        self._coord = coord
        self._database = database
        self._clock = clock
        self._shards = shards
        self._view = view

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {"GetClusterStatus": self.status, "ListDispatchers": self.list_dispatchers}

    async def list_dispatchers(
        self, request: admin_service_pb2.ListDispatchersRequest, origin: Origin
    ) -> admin_service_pb2.ListDispatchersResponse:
        told: admin_service_pb2.ListDispatchersResponse | None = await self._view.answer(request, origin)
        if told is not None:
            return told
        members = self._coord.members()
        held = _holdings(newest_terms(await self._shards.newest()))
        return admin_service_pb2.ListDispatchersResponse(
            dispatchers=[
                self._dispatcher(dispatcher_id, members.get(dispatcher_id), held[dispatcher_id])
                for dispatcher_id in sorted({*members, *held})
            ]
        )

    async def status(
        self, request: admin_service_pb2.GetClusterStatusRequest, origin: Origin
    ) -> admin_service_pb2.ClusterStatus:
        cluster, leader, members = self._replica.cluster, self._coord.leader(), self._coord.members()
        newest = newest_terms(await self._shards.newest())
        owned = sum(1 for row in newest.values() if row.state is TermState.OPEN and row.owner in members)
        marks = await self._shards.marks()
        return admin_service_pb2.ClusterStatus(
            version=_version(),
            database=self._database.version.split(" on ")[0].split(" (")[0],
            database_isolation=self._database.config.wanted_isolation,
            etcd_version=self._coord.server_version,
            tzdata_version=self._replica.tzdata_version,
            shard_count=cluster.shard_count,
            bucket_width_ms=cluster.scale.width_ms,
            leader=leader.replica_id if leader else "",
            leader_address=leader.address if leader else "",
            replica=self._replica.replica_id,
            dispatchers=len(members),
            owned_shards=owned,
            unowned_shards=cluster.shard_count - owned,
            problems=list(self._problems(cluster.shard_count - owned, marks)),
        )

    def _dispatcher(self, dispatcher_id: str, member: Member | None, shards: int) -> admin_service_pb2.Dispatcher:
        message = admin_service_pb2.Dispatcher(dispatcher_id=dispatcher_id, shards=shards, alive=member is not None)
        if member is not None:
            message.address, message.metrics_address = member.address, member.metrics_address
            message.start_time.CopyFrom(timestamp(member.started_us))
            message.weight, message.zone = member.weight_milli / 1_000, member.zone
        picture = self._view.picture
        if picture is not None:
            message.draining = dispatcher_id in picture.leaving
            message.ailments.extend(sorted(kind.value for name, kind in picture.roster.sick if name == dispatcher_id))
            message.cpu = picture.loads.cpus.get(dispatcher_id, 0.0)
        self._add_report(message)
        return message

    def _add_report(self, message: admin_service_pb2.Dispatcher) -> None:
        load = self._view.reported(message.dispatcher_id)
        if load is not None:
            message.fires_per_second = load.fires_per_second
            message.open_runs, message.waiting_runs = load.open_runs, load.waiting_runs

    def _problems(self, unowned: int, marks: Mapping[int, Marks]) -> Iterable[str]:
        if not self._coord.reachable:
            yield "etcd does not answer this replica: owners go on, but nothing can move"
        if self._coord.leader() is None:
            yield "no control plane leads: dead dispatchers are not replaced"
        if not self._coord.members():
            yield "no dispatcher is alive: nothing is fired"
        if unowned:
            yield f"{unowned} shards have no live owner"
        lagging = {shard: lag_s for shard, each in marks.items() if (lag_s := self._shards.lag_s(each)) > _LAGGING_S}
        if lagging:
            worst = max(lagging, key=lambda shard: lagging[shard])
            yield f"{len(lagging)} shards lag behind, the worst is shard {worst} by {lagging[worst]:.0f} s"
        missing = self._replica.cluster.shard_count - len(marks)
        if missing:
            yield f"{missing} shards have no floor or watermark: the cluster's rows are incomplete"
        if self._clock.holding:
            yield "the database's clock may have jumped: this replica holds on to the old time"
        yield from self._replica.missed.problems()
        yield from self._replica.reconciler.problems()


def _holdings(newest: Mapping[int, TermRow]) -> Counter[str]:
    return Counter(row.owner for row in newest.values() if row.state is TermState.OPEN)


def _version() -> str:
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "source tree"
