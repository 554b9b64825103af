"""Pictures of a moment, put together by hand: dispatchers are single letters, times seconds of the leader's tenure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from controlplane.loads import LoadView, ShardLoad
from controlplane.membership import Roster
from controlplane.picture import Picture, Standing, by_shard
from core.buckets import NO_END
from core.clock import US_PER_S
from core.coord.layout import Member
from core.fence import TermRow
from core.states import MoveCause, MoveState, TermState
from core.store.move_records import MoveRecord

BEGAN_US = 1_800_000_000 * US_PER_S


def term(
    shard: int,
    number: int,
    owner: str,
    buckets: tuple[int, int] = (0, NO_END),
    state: TermState = TermState.OPEN,
    *,
    opened_s: float = -1_000.0,
    reason: str = "move",
) -> TermRow:
    opened_us = BEGAN_US + round(opened_s * US_PER_S)
    return TermRow(shard, number, *buckets, owner, state, opened_us, reason)


def owned(owner: str, shards: Iterable[int], number: int = 1) -> list[TermRow]:
    return [term(shard, number, owner) for shard in shards]


def roster(
    eligible: str = "", *, keepers: str = "", leaving: str = "", suspects: str = "", settling: bool = False
) -> Roster:
    """Ids of one letter each; who is eligible may keep, too."""
    return Roster(frozenset(eligible), frozenset(eligible + keepers), frozenset(leaving), frozenset(suspects), settling)


def member(name: str, weight: float = 1.0, zone: str = "") -> Member:
    return Member(name, "127.0.0.1:1", "", 0, weight_milli=round(weight * 1_000), zone=zone)


def move(
    shard: int,
    source: str,
    target: str,
    state: MoveState = MoveState.PENDING,
    *,
    from_term: int = 1,
    cause: MoveCause = MoveCause.OPERATOR,
    requested_s: float = 0.0,
    ordered_s: float = 0.0,
) -> MoveRecord:
    is_ordered = state is not MoveState.PENDING
    return MoveRecord(
        move_id=UUID(int=shard + 1),
        shard=shard,
        from_owner=source,
        from_term=from_term,
        to_dispatcher=target,
        cause=cause,
        state=state,
        boundary=0,
        new_term=0,
        author="olga",
        reason="because",
        request_id="",
        requested_us=BEGAN_US + round(requested_s * US_PER_S),
        ordered_us=BEGAN_US + round(ordered_s * US_PER_S) if is_ordered else 0,
        split_us=0,
        ended_us=0,
        error="",
    )


def loads(fires: Mapping[int, float], cpus: Mapping[str, float] | None = None) -> LoadView:
    measured = {shard: ShardLoad(shard, 1, per_s, 0.0, 0, 0, ()) for shard, per_s in fires.items()}
    return LoadView(measured, cpus or {})


def picture(
    rows: Iterable[TermRow],
    judged: Roster,
    *,
    shards: Iterable[int] | None = None,
    members: Iterable[Member] = (),
    moves: Iterable[MoveRecord] = (),
    rules: Standing | None = None,
    measured: LoadView | None = None,
    at_s: float = 0.0,
) -> Picture:
    """The picture `at_s` seconds into the tenure; the shards are those of the rows unless they are given."""
    terms = by_shard(rows)
    return Picture(
        sorted(terms) if shards is None else list(shards),
        terms,
        judged,
        {each.dispatcher_id: each for each in members},
        {each.shard: each for each in moves},
        rules or Standing(),
        measured or LoadView(),
        BEGAN_US + round(at_s * US_PER_S),
        BEGAN_US,
    )
