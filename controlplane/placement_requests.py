"""What operators ask of placement: moves, a round of rebalancing, drains, freezes. Called by AdminService.

Everything is written down as a row, with its reason and audit row, and carried out by whoever leads; the caller follows
the rows. Answers are made by the caller's `render`, and a repeat of a call gets the first answer. Reasons are in
`call.note`; calls are keyed in CLUSTER_NAMESPACE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controlplane.balancing import rebalancing, wishes
from controlplane.leader import Seat
from controlplane.picture import Picture, Standing, by_shard, open_terms, standing_of
from controlplane.placement_store import PlacementStore
from controlplane.preview import Preview, preview_of
from core.config import ControlPlaneSettings
from core.coord.ports import CoordView
from core.errors import Conflict, Invalid, NotFound, Unavailable
from core.fence import TermRow
from core.rand import Rand
from core.states import MoveCause, PlacementRuleKind
from core.store.audit import Call
from core.store.cluster import Cluster
from core.store.move_records import MoveRecord, MoveWish
from core.store.placement_rules import PlacementRule

RenderMoves = Callable[[Sequence[MoveRecord]], bytes]
RenderRule = Callable[[PlacementRule], bytes]


class NotLeading(Unavailable):
    """Only the leader knows the loads; `leader_address` is where it serves, "" while there is none."""

    def __init__(self, leader_address: str) -> None:
        where = f"ask the leader at {leader_address}" if leader_address else "nobody leads at the moment"
        super().__init__(f"this replica does not lead: {where}")
        self.leader_address = leader_address


class PlacementRequests:
    """Takes requests on any replica; previews and rounds of rebalancing on the leader alone."""

    def __init__(
        self,
        store: PlacementStore,
        cluster: Cluster,
        coord: CoordView,
        seat: Seat,
        settings: ControlPlaneSettings,
        rand: Rand,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._coord = coord
        self._seat = seat
        self._rand = rand

    async def move(self, call: Call, shards: Sequence[int], to_dispatcher: str, *, render: RenderMoves) -> bytes:
        """Ask for planned moves of shards to one dispatcher, all or none.

        Raises NotFound (no such shard or dispatcher), Conflict (a shard has an open move, which is named; is there
        already; has no owner; is frozen; or the dispatcher is dead or drains), Invalid, RequestReused, Unavailable,
        OutcomeUnknown.
        """
        _check_reason(call)
        rows = by_shard(await self._store.terms.newest(list(self._cluster.shards)))
        rules = standing_of(await self._store.rules.standing())

        def wanted() -> list[MoveWish]:
            self._check_target(to_dispatcher, rows, rules)
            return [self._wish(call, shard, to_dispatcher, rows, rules) for shard in _distinct(shards)]

        answer = await self._store.moves.request(call, wanted, render=render, needs_all=True)
        self._hurry()
        return answer

    async def rebalance(self, call: Call, *, render: RenderMoves) -> bytes:
        """Ask for the moves of a round of rebalancing now, whether or not the leader does rounds by itself.

        Raises NotLeading, Conflict (all shards are frozen, or nobody can be given any), Invalid, RequestReused,
        Unavailable, OutcomeUnknown.
        """
        _check_reason(call)

        def wanted() -> list[MoveWish]:
            picture = self._picture()
            if picture.rules.all_frozen:
                raise Conflict("all shards are frozen: nothing is moved until that is lifted")
            if not picture.targets():
                raise Conflict("no dispatcher that is alive and heard of can be given shards at the moment")
            steps = rebalancing(picture, self._settings, limit=len(picture.shards), always=True)
            return wishes(steps, picture, MoveCause.REBALANCE, call.note, self._rand.uuid)

        answer = await self._store.moves.request(call, wanted, render=render, needs_all=False)
        self._hurry()
        return answer

    def preview(self) -> Preview:
        """What such a round would do; changes nothing. Raises NotLeading."""
        return preview_of(self._picture(), self._settings)

    async def drain(self, call: Call, dispatcher_id: str, *, render: RenderRule) -> bytes:
        """From now on the dispatcher gets no shard and loses those it has. Draining twice changes nothing.

        Raises NotFound (no such dispatcher), Invalid, RequestReused, Unavailable, OutcomeUnknown.
        """
        rows = by_shard(await self._store.terms.newest(list(self._cluster.shards)))

        def check() -> None:
            if not self._is_known(dispatcher_id, rows):
                raise NotFound("dispatcher", dispatcher_id)

        return await self._add(call, PlacementRuleKind.DRAIN_DISPATCHER, dispatcher_id, check, render)

    async def undrain(self, call: Call, dispatcher_id: str, *, render: RenderRule) -> bytes:
        """Lift a drain. Raises NotFound (none stands), Invalid, RequestReused, Unavailable, OutcomeUnknown."""
        return await self._lift(call, PlacementRuleKind.DRAIN_DISPATCHER, dispatcher_id, render)

    async def freeze(self, call: Call, shard: int | None, *, render: RenderRule) -> bytes:
        """No planned move of the shard (None: of any shard) from now on; takeovers go on.

        Freezing twice changes nothing. Raises NotFound (no such shard), Invalid, RequestReused, Unavailable,
        OutcomeUnknown.
        """

        def check() -> None:
            if shard is not None and shard not in self._cluster.shards:
                raise NotFound("shard", str(shard))

        kind, subject = _freeze(shard)
        return await self._add(call, kind, subject, check, render)

    async def unfreeze(self, call: Call, shard: int | None, *, render: RenderRule) -> bytes:
        """Lift a freeze. Raises NotFound (none stands), Invalid, RequestReused, Unavailable, OutcomeUnknown."""
        kind, subject = _freeze(shard)
        return await self._lift(call, kind, subject, render)

    # --- how ---

    async def _add(
        self, call: Call, kind: PlacementRuleKind, subject: str, check: Callable[[], None], render: RenderRule
    ) -> bytes:
        _check_reason(call)
        answer = await self._store.rules.add(call, kind, subject, check=check, render=render)
        self._hurry()
        return answer

    async def _lift(self, call: Call, kind: PlacementRuleKind, subject: str, render: RenderRule) -> bytes:
        _check_reason(call)
        answer = await self._store.rules.lift(call, kind, subject, render=render)
        self._hurry()
        return answer

    def _wish(
        self,
        call: Call,
        shard: int,
        to_dispatcher: str,
        rows: dict[int, list[TermRow]],
        rules: Standing,
    ) -> MoveWish:
        if shard not in self._cluster.shards:
            raise NotFound("shard", str(shard))
        opened = open_terms(rows.get(shard, ()))
        if not opened:
            raise Conflict(f"shard {shard} has no owner yet: it is given to one without a move", field="shards")
        owner = opened[-1]
        if owner.owner == to_dispatcher:
            raise Conflict(f"shard {shard} is at {to_dispatcher} already", field="shards")
        if rules.holds(shard):
            raise Conflict(f"shard {shard} is frozen", field="shards")
        cause = MoveCause.OPERATOR
        return MoveWish(self._rand.uuid(), shard, owner.owner, owner.term, to_dispatcher, cause, call.note)

    def _check_target(self, dispatcher_id: str, rows: dict[int, list[TermRow]], rules: Standing) -> None:
        roster = self._seat.roster
        if dispatcher_id not in self._coord.members():
            if not self._is_known(dispatcher_id, rows):
                raise NotFound("dispatcher", dispatcher_id)
            raise Conflict(f"dispatcher {dispatcher_id} is not alive", field="dispatcher_id")
        if dispatcher_id in rules.drained or (roster is not None and dispatcher_id in roster.leaving):
            raise Conflict(f"dispatcher {dispatcher_id} drains: it gets no shard", field="dispatcher_id")
        if roster is not None and dispatcher_id in roster.suspects:
            raise Conflict(f"dispatcher {dispatcher_id} does not report: it is taken for dead", field="dispatcher_id")

    def _is_known(self, dispatcher_id: str, rows: dict[int, list[TermRow]]) -> bool:
        owners = (row.owner for terms in rows.values() for row in open_terms(terms))
        return dispatcher_id in self._coord.members() or dispatcher_id in owners

    def _hurry(self) -> None:
        """Where this replica leads, the leader looks at once; another one's looks within a second."""
        if self._seat.wake is not None:
            self._seat.wake.set()

    def _picture(self) -> Picture:
        picture = self._seat.picture
        if picture is None:
            leader = self._coord.leader()
            raise NotLeading("" if leader is None else leader.address)
        return picture


def _check_reason(call: Call) -> None:
    if not call.note.strip():
        raise Invalid("reason", "must be given")


def _distinct(shards: Sequence[int]) -> list[int]:
    if len(set(shards)) < len(shards):
        raise Invalid("shards", "must name each shard once")
    return sorted(shards)


def _freeze(shard: int | None) -> tuple[PlacementRuleKind, str]:
    return (PlacementRuleKind.FREEZE_ALL, "") if shard is None else (PlacementRuleKind.FREEZE_SHARD, str(shard))
