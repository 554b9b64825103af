"""AdminService's ListShards: who owns what, under which term, and how far each shard has come."""

from __future__ import annotations

from collections import defaultdict

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.servicers import Handlers
from core.clock import US_PER_S, DatabaseClock
from core.errors import Invalid
from core.fence import TermRow
from core.states import TermState
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.marks import MarkKeeper, Marks
from core.store.terms import Terms

_TERM_STATES = {
    TermState.OPEN: admin_service_pb2.TERM_STATE_OPEN,
    TermState.CLOSED: admin_service_pb2.TERM_STATE_CLOSED,
    TermState.VOID: admin_service_pb2.TERM_STATE_VOID,
}


class ShardReads:
    """Reads terms and marks of the whole cluster, or of one shard with its history."""

    def __init__(self, cluster: Cluster, database: Database, clock: DatabaseClock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._terms = Terms(database)
        self._marks = MarkKeeper(database, owner="")

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {"ListShards": self.list_shards}

    async def newest(self) -> list[TermRow]:
        """The newest terms of every shard, ascending by (shard, term)."""
        return await self._terms.newest(list(self._cluster.shards))

    async def marks(self) -> dict[int, Marks]:
        """Floor and watermark of every shard."""
        return await self._marks.read(list(self._cluster.shards))

    def lag_s(self, marks: Marks) -> float:
        """Now minus the watermark's start, in seconds."""
        return (self._clock.now_us() - self._cluster.scale.start_us(marks.watermark)) / US_PER_S

    async def list_shards(
        self, request: admin_service_pb2.ListShardsRequest, origin: Origin
    ) -> admin_service_pb2.ListShardsResponse:
        """All shards with their open terms, or one with all its terms."""
        if not request.HasField("shard"):
            opened: dict[int, list[TermRow]] = defaultdict(list)
            for row in await self.newest():
                if row.state is TermState.OPEN:
                    opened[row.shard].append(row)
            marks = await self.marks()
            return admin_service_pb2.ListShardsResponse(
                shards=[self._shard(shard, opened[shard], marks.get(shard)) for shard in self._cluster.shards]
            )
        shard = check_shard(request.shard, self._cluster)
        history = await self._terms.history(shard)
        marks = await self._marks.read([shard])
        return admin_service_pb2.ListShardsResponse(shards=[self._shard(shard, history, marks.get(shard))])

    def _shard(self, shard: int, terms: list[TermRow], marks: Marks | None) -> admin_service_pb2.Shard:
        owned = [row for row in terms if row.state is TermState.OPEN]
        message = admin_service_pb2.Shard(shard=shard, terms=[_term(row) for row in terms])
        if owned:
            message.dispatcher_id, message.term = owned[-1].owner, owned[-1].term
        if marks is not None:
            message.watermark, message.floor = marks.watermark, marks.floor
            message.watermark_lag_s = self.lag_s(marks)
        return message


def check_shard(shard: int, cluster: Cluster, field: str = "shard") -> int:
    """The number of a shard as it is; raises Invalid for one that the cluster does not have."""
    if shard not in cluster.shards:
        raise Invalid(field, f"must lie within 0 and {cluster.shard_count - 1}")
    return shard


def _term(row: TermRow) -> admin_service_pb2.Term:
    message = admin_service_pb2.Term(
        term=row.term,
        dispatcher_id=row.owner,
        from_bucket=row.from_bucket,
        state=_TERM_STATES[row.state],
        open_time=timestamp(row.opened_us),
        reason=row.reason,
    )
    if row.has_end:
        message.to_bucket = row.to_bucket
    return message
