"""How planned moves go on, judged by the terms: which step each takes next, and which may be ordered. Pure.

The chart is "Move" in STATES.md. Its split is written by the target; from there the terms say what became of the shard.
That somebody is gone ends a move only before its split. While the leader is new it ends no move for what it has not
heard yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.balancing import DRAINS_AT_ONCE
from controlplane.picture import ORDER_STANDS_S, Picture
from core.clock import US_PER_S
from core.config import ControlPlaneSettings
from core.fence import TermRow
from core.states import MoveCause, MoveEvent, MoveState
from core.store.move_records import Advance, MoveRecord

# An order that was withdrawn may still be under way for so long.
_WITHDRAWN_S = 2.0
# Who waits for longer for a place in the budget is told so rather than moved out of the blue.
_LONGEST_WAIT_S = 600.0

_URGENCY = {MoveCause.OPERATOR: 0, MoveCause.DRAIN: 1, MoveCause.REBALANCE: 2}


def steps(picture: Picture) -> list[Advance]:
    """The step that each open move takes now, but for those that wait and for orders."""
    taken = []
    for move in picture.moves.values():
        now = _judged(move, picture)
        if now is not None:
            taken.append(Advance(move, now))
    return taken


def orders(picture: Picture, settings: ControlPlaneSettings, rebalancing_left: int) -> list[Advance]:
    """The pending moves that may be ordered now: operators' first, then drains, then `rebalancing_left` others."""
    under_way = sum(move.state is not MoveState.PENDING for move in picture.moves.values())
    made: list[Advance] = []
    for move in sorted(picture.moves.values(), key=lambda each: (_URGENCY[each.cause], each.key)):
        most = settings.moves_at_once * (DRAINS_AT_ONCE if move.cause is MoveCause.DRAIN else 1)
        if move.state is not MoveState.PENDING or under_way >= most or not _may_begin(move, picture):
            continue
        if move.cause is MoveCause.REBALANCE:
            if rebalancing_left <= 0:
                continue
            rebalancing_left -= 1
        under_way += 1
        made.append(Advance(move, move.after(MoveEvent.ORDER, picture.now_us)))
    return made


def _may_begin(move: MoveRecord, picture: Picture) -> bool:
    opened = picture.open_terms(move.shard)
    well = picture.roster.keepers | picture.roster.leaving
    return len(opened) == 1 and move.from_owner in well and move.to_dispatcher in picture.eligible


def _judged(move: MoveRecord, picture: Picture) -> MoveRecord | None:
    match move.state:
        case MoveState.PENDING:
            error = _against_beginning(move, picture)
            return None if error is None else _rolled_back(move, picture, error)
        case MoveState.ORDERED | MoveState.SPLIT:
            return _under_way(move, picture)
    return None


def _against_beginning(move: MoveRecord, picture: Picture) -> str | None:
    tail = picture.tail(move.shard)
    if tail is None or (tail.term, tail.owner) != (move.from_term, move.from_owner):
        return _elsewhere(tail)
    if picture.rules.holds(move.shard):
        return "the shard was frozen before the move began"
    if picture.now_us - move.requested_us > _LONGEST_WAIT_S * US_PER_S:
        return f"it waited for more than {_LONGEST_WAIT_S:g} s for its place in the budget of moves"
    return _missing(move, picture)


def _under_way(move: MoveRecord, picture: Picture) -> MoveRecord | None:
    opened = picture.open_terms(move.shard)
    tail = opened[-1] if opened else None
    if tail is not None and tail.owner == move.to_dispatcher and tail.term > move.from_term:
        if len(opened) > 1:
            return None  # the one before drains
        return move.after(MoveEvent.COMPLETE, picture.now_us, boundary=tail.from_bucket, new_term=tail.term)
    if tail is None or tail.term != move.from_term or move.state is MoveState.SPLIT:
        return _rolled_back(move, picture, _elsewhere(tail))
    error = _missing(move, picture)
    if error is None and picture.order_age_s(move) > ORDER_STANDS_S + _WITHDRAWN_S:
        error = f"{move.to_dispatcher} had not begun it {ORDER_STANDS_S:g} s after it was ordered"
    return None if error is None else _rolled_back(move, picture, error)


def _missing(move: MoveRecord, picture: Picture) -> str | None:
    """Why owner and target cannot do it, as far as that is certain."""
    roster = picture.roster
    if roster.is_gone(move.from_owner):
        return f"its owner {move.from_owner} is gone: the shard is taken over instead"
    if roster.is_gone(move.to_dispatcher):
        return f"its target {move.to_dispatcher} is gone"
    if move.to_dispatcher in picture.leaving:
        return f"its target {move.to_dispatcher} drains"
    return None


def _elsewhere(tail: TermRow | None) -> str:
    return "the shard has no owner" if tail is None else f"the shard went to {tail.owner} under term {tail.term}"


def _rolled_back(move: MoveRecord, picture: Picture, error: str) -> MoveRecord:
    return move.after(MoveEvent.ROLL_BACK, picture.now_us, error=error)


def recently_ordered(moves: Iterable[MoveRecord], since_us: int) -> list[int]:
    """When moves of rebalancing were ordered, from an instant on."""
    return sorted(m.ordered_us for m in moves if m.cause is MoveCause.REBALANCE and m.ordered_us > since_us)
