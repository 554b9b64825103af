"""The plan: from the roster, the terms in SQL and the present plan to the orders that should stand. Pure.

Every order names the term and owner that it replaces, so that a dispatcher can tell an order that was carried out, or
was overtaken, from one that stands. An order that is under way is not turned back, and one that nothing speaks against
is left as it is: writing the plan costs every dispatcher a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controlplane.membership import Roster
from controlplane.placement import place
from core.coord.layout import Assignment, Plan
from core.fence import TermRow
from core.states import TermState


def newest_terms(rows: Iterable[TermRow]) -> dict[int, TermRow]:
    """The row of each shard by which it is owned: its newest open term, or its newest one where none is open."""
    newest: dict[int, TermRow] = {}
    for row in rows:
        known = newest.get(row.shard)
        if known is None or _rank(row) > _rank(known):
            newest[row.shard] = row
    return newest


def assignments(
    shards: Sequence[int], newest: Mapping[int, TermRow], roster: Roster, present: Plan | None
) -> tuple[Assignment, ...]:
    """The orders that should stand, by shard. A shard that nobody can be given keeps the order it had, if any."""
    orders = {} if present is None else present.by_shard
    homes = {shard: home for shard in shards if (home := _home(newest.get(shard), orders.get(shard), roster))}
    # Who cannot be given shards may still keep some: those are not up for placing.
    staying = {shard: home for shard, home in homes.items() if home not in roster.eligible}
    placed = place([shard for shard in shards if shard not in staying], roster.eligible, homes)
    made = []
    for shard in sorted(shards):
        target = placed.get(shard) or (staying[shard] if staying.get(shard) in roster.keepers else None)
        order = _order(shard, target, newest.get(shard), orders.get(shard), roster)
        if order is not None:
            made.append(order)
    return tuple(made)


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


def _rank(row: TermRow) -> tuple[bool, int]:
    return row.state is TermState.OPEN, row.term


def _home(row: TermRow | None, order: Assignment | None, roster: Roster) -> str | None:
    """Where the shard is, or is on its way to, if it may stay there."""
    if order is not None and order.dispatcher_id in roster.eligible and _replaces(order, row):
        return order.dispatcher_id
    if row is not None and row.state is TermState.OPEN and roster.may_keep(row.owner):
        return row.owner
    return None


def _replaces(order: Assignment, row: TermRow | None) -> bool:
    if row is None:
        return order.replaces_term == 0
    return (order.replaces_term, order.replaces_owner) == (row.term, row.owner)


def _order(
    shard: int, target: str | None, row: TermRow | None, present: Assignment | None, roster: Roster
) -> Assignment | None:
    if target is None:
        return present
    if row is None:
        return Assignment(shard, target, 0, "")
    if target == row.owner and present is not None and present.dispatcher_id == target:
        return present  # carried out
    seize = target != row.owner and roster.is_gone(row.owner)
    return Assignment(shard, target, row.term, row.owner, seize)
