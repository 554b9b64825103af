"""The plan: from the picture of the moment and the present plan to the orders that should stand. Pure.

Every order names the term and owner that it replaces, so that a dispatcher can tell an order that was carried out, or
was overtaken, from one that stands. Ranges whose owner is gone are to be taken over, one of a shard at a time, the one
that began first before the other; planned moves follow their rows (moves.py) and are not turned back while those stand.
An order that nothing speaks against is left as it is: writing the plan costs every dispatcher a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.balancing import residency_us
from controlplane.picture import Picture
from controlplane.placement import Homeless, house
from core.config import ControlPlaneSettings
from core.coord.layout import Assignment, Plan
from core.fence import TermRow
from core.states import MoveCause, MoveState, TermState
from core.store.move_records import MoveRecord

# What etcd takes for one document, less its frame.
_MOST_BYTES = 1_300_000
# Of an order as JSON: its field names and numbers, beside the ids.
_BYTES_AN_ORDER = 184


def newest_terms(rows: Iterable[TermRow]) -> dict[int, TermRow]:
    """The row by which each shard is owned: its open term with the last range, or its newest where none is open."""
    newest: dict[int, TermRow] = {}
    for row in rows:
        known = newest.get(row.shard)
        if known is None or _rank(row) > _rank(known):
            newest[row.shard] = row
    return newest


def assignments(picture: Picture, present: Plan | None, settings: ControlPlaneSettings) -> tuple[Assignment, ...]:
    """The orders that should stand, by shard. A shard that nobody can be given keeps the order it had, if any."""
    orders = {} if present is None else present.by_shard
    made: dict[int, Assignment | None] = {}
    homeless: dict[int, TermRow | None] = {}
    for shard in picture.shards:
        opened, order = picture.open_terms(shard), orders.get(shard)
        lost = next((row for row in opened if picture.roster.is_gone(row.owner)), None)
        if lost is not None or not picture.rows.get(shard):
            heir = None if lost is None else _other_side(picture, opened, lost)
            if lost is not None and heir is not None:
                made[shard] = _takeover(lost, heir)
            else:
                homeless[shard] = lost
        else:
            made[shard] = _kept(picture, opened, order, settings) if opened else order
    made.update(_housed(picture, homeless, orders, settings))
    return tuple(order for _, order in sorted(made.items()) if order is not None)


def bounded(made: Sequence[Assignment], limit_bytes: int = _MOST_BYTES) -> tuple[Assignment, ...]:
    """As many orders as one document holds: those that are still to be carried out first, by shard.

    What had no room comes with the next plans, as orders are carried out.
    """
    kept, used = [], 0
    for order in sorted(made, key=lambda each: (each.dispatcher_id == each.replaces_owner, each.shard)):
        used += _BYTES_AN_ORDER + len(order.dispatcher_id) + len(order.replaces_owner) + len(order.move_id)
        if used > limit_bytes:
            break
        kept.append(order)
    return tuple(sorted(kept, key=lambda each: each.shard))


def moves(made: Iterable[Assignment], present: Plan | None) -> int:
    """How many shards new orders take from an owner that is well."""
    orders = {} if present is None else present.by_shard
    return sum(
        1
        for order in made
        if order.replaces_owner not in ("", order.dispatcher_id)
        and not order.seize
        and orders.get(order.shard) != order
    )


def _rank(row: TermRow) -> tuple[bool, int, int]:
    is_open = row.state is TermState.OPEN
    return is_open, row.from_bucket if is_open else 0, row.term


def _other_side(picture: Picture, opened: Sequence[TermRow], lost: TermRow) -> str | None:
    """Who takes the lost range of a hand-off, where that is for its other side to do.

    The new owner finishes what the old one left; before the boundary, the old one takes back what the new one left,
    unless it is leaving itself.
    """
    others = [row for row in opened if row is not lost and not picture.roster.is_gone(row.owner)]
    if not others:
        return None
    other = others[-1]
    if other.from_bucket > lost.from_bucket:
        return other.owner
    return other.owner if other.owner in picture.eligible else None


def _takeover(lost: TermRow, heir: str) -> Assignment:
    return Assignment(lost.shard, heir, lost.term, lost.owner, seize=True)


def _kept(
    picture: Picture, opened: Sequence[TermRow], order: Assignment | None, settings: ControlPlaneSettings
) -> Assignment | None:
    """The order for a shard whose owners are not gone: its move, or to stay."""
    tail = opened[-1]
    move = picture.moves.get(tail.shard)
    if move is not None and len(opened) == 1 and _is_ordered(move, tail, picture):
        residency = residency_us(tail, settings) if move.cause is MoveCause.REBALANCE else 0
        return Assignment(
            tail.shard,
            move.to_dispatcher,
            tail.term,
            tail.owner,
            residency_us=residency,
            move_id=str(move.move_id),
        )
    if order is not None and order.dispatcher_id == tail.owner:
        return order  # carried out
    if tail.owner in picture.roster.keepers or tail.owner in picture.roster.leaving:
        return Assignment(tail.shard, tail.owner, tail.term, tail.owner)
    return order  # the leader is new, and has not heard of the owner yet


def _is_ordered(move: MoveRecord, term: TermRow, picture: Picture) -> bool:
    ordered = move.state is MoveState.ORDERED and picture.order_stands(move)
    return ordered and (term.term, term.owner) == (move.from_term, move.from_owner)


def _housed(
    picture: Picture,
    homeless: dict[int, TermRow | None],
    orders: dict[int, Assignment],
    settings: ControlPlaneSettings,
) -> dict[int, Assignment | None]:
    """Orders for shards that never had an owner, and for ranges whose owner is gone."""
    costs, homes = picture.loads.costs(picture.shards), picture.heads()
    asked = [
        Homeless(shard, picture.zone_of(lost.owner) if lost else "", _preferred(picture, shard, lost, orders))
        for shard, lost in homeless.items()
    ]
    elsewhere = {shard: home for shard, home in homes.items() if shard not in homeless}
    placed = house(asked, picture.takers(), elsewhere, costs, settings.rebalance_tolerance)
    made: dict[int, Assignment | None] = {}
    for shard, lost in homeless.items():
        target = placed.get(shard)
        if target is None:
            made[shard] = orders.get(shard)
        else:
            made[shard] = Assignment(shard, target, 0, "") if lost is None else _takeover(lost, target)
    return made


def _preferred(picture: Picture, shard: int, lost: TermRow | None, orders: dict[int, Assignment]) -> str:
    """Who was told already to take the shard; else who was to get it by a move."""
    order, move = orders.get(shard), picture.moves.get(shard)
    replaced = (0, "") if lost is None else (lost.term, lost.owner)
    if order is not None and (order.replaces_term, order.replaces_owner) == replaced:
        return order.dispatcher_id
    return "" if move is None else move.to_dispatcher
