"""AdminService's ListShards: who owns what, under which term, and how far each shard has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from tidewheel.v1 import admin_service_pb2

from controlplane.api.calls import Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.leader_view import LeaderView
from controlplane.api.placement_views import encode_move
from controlplane.api.servicers import Handlers
from controlplane.loads import ShardLoad
from controlplane.placement_store import PlacementStore
from core.clock import US_PER_S, DatabaseClock
from core.errors import Invalid
from core.fence import TermRow
from core.states import PlacementRuleKind, TermState
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.jobs import Jobs
from core.store.marks import MarkKeeper, Marks
from core.store.move_records import MoveRecord

_TERM_STATES = {
    TermState.OPEN: admin_service_pb2.TERM_STATE_OPEN,
    TermState.CLOSED: admin_service_pb2.TERM_STATE_CLOSED,
    TermState.VOID: admin_service_pb2.TERM_STATE_VOID,
}
_FREEZES = (PlacementRuleKind.FREEZE_ALL, PlacementRuleKind.FREEZE_SHARD)


class ShardReads:
    """Reads terms, marks, moves and freezes of the whole cluster, or of one shard with its history."""

    def __init__(
        self, cluster: Cluster, database: Database, clock: DatabaseClock, store: PlacementStore, view: LeaderView
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._moves = store.moves
        self._rules = store.rules
        self._clock = clock
        self._terms = store.terms
        self._jobs = Jobs(database)
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
        """All shards with their open terms, or one with all its terms; loads where a leader knows them."""
        told: admin_service_pb2.ListShardsResponse | None = await self._view.answer(request, origin)
        if told is not None:
            return told
        picture = self._view.picture
        if request.HasField("shard"):
            shards = [check_shard(request.shard, self._cluster)]
            rows = await self._terms.history(request.shard)
        else:
            shards = list(self._cluster.shards)
            rows = [row for row in await self.newest() if row.state is TermState.OPEN]
        shown = _Shown(
            terms=_by_shard(rows),
            marks=await self._marks.read(shards),
            moves={move.shard: move for move in await self._moves.open_moves()},
            frozen={rule.subject for rule in await self._rules.standing() if rule.kind in _FREEZES},
            loads={} if picture is None else picture.loads.shards,
        )
        answer = admin_service_pb2.ListShardsResponse(
            shards=[self._shard(shard, shown) for shard in shards], loads_known=bool(shown.loads)
        )
        await self._name_hot_jobs(answer)
        return answer

    async def _name_hot_jobs(self, answer: admin_service_pb2.ListShardsResponse) -> None:
        """Put names to the ids; a job that is gone keeps its id alone."""
        hot = [job for shard in answer.shards for job in shard.hottest_jobs]
        names = await self._jobs.names(sorted({UUID(job.job_id) for job in hot})) if hot else {}
        for job in hot:
            job.namespace, job.name = names.get(UUID(job.job_id), ("", ""))

    def _shard(self, shard: int, shown: _Shown) -> admin_service_pb2.Shard:
        terms = shown.terms[shard]
        owned = [row for row in terms if row.state is TermState.OPEN]
        message = admin_service_pb2.Shard(
            shard=shard,
            terms=[_term(row) for row in terms],
            frozen=not shown.frozen.isdisjoint({"", str(shard)}),
        )
        if owned:
            message.dispatcher_id, message.term = owned[-1].owner, owned[-1].term
        marks = shown.marks.get(shard)
        if marks is not None:
            message.watermark, message.floor = marks.watermark, marks.floor
            message.watermark_lag_s = self.lag_s(marks)
        if shard in shown.moves:
            message.move.CopyFrom(encode_move(shown.moves[shard]))
        if shard in shown.loads:
            _add_load(message, shown.loads[shard])
        return message


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was read for a listing; `frozen` holds subjects of freezes: a shard's number, "" for all."""

    terms: Mapping[int, list[TermRow]]
    marks: Mapping[int, Marks]
    moves: Mapping[int, MoveRecord]
    frozen: set[str]
    loads: Mapping[int, ShardLoad]


def _add_load(message: admin_service_pb2.Shard, load: ShardLoad) -> None:
    message.fires_per_second = load.fires_per_second
    message.open_runs = round(load.open_runs)
    message.waiting_runs = load.waiting_runs
    for job_id, fires_per_second in load.hottest:
        if _is_id(job_id):
            message.hottest_jobs.add(job_id=job_id, fires_per_second=fires_per_second)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _by_shard(rows: Iterable[TermRow]) -> Mapping[int, list[TermRow]]:
    found: dict[int, list[TermRow]] = defaultdict(list)
    for row in rows:
        found[row.shard].append(row)
    return found


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
