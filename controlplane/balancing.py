"""Which moves the leader itself asks for: drains of dispatchers that leave, and rounds of evening out. Pure.

Called by rebalancer.py at each step of the leader (drains) and now and then (rounds), and by preview.py. Frozen shards,
shards on the move and shards that came lately stay where they are; an open move counts as if it had been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from controlplane.picture import Picture
from controlplane.placement import Homeless, Step, even_out, house
from core.clock import US_PER_S
from core.config import ControlPlaneSettings
from core.fence import TermRow
from core.states import MoveCause
from core.store.move_orders import CAUSE_WORDS
from core.store.move_records import MoveWish

# Drains are more urgent than other moves, and have so many times their budget.
DRAINS_AT_ONCE = 4
# Terms for whose sake nobody could go back and forth: where they are, they are for want of another place, or because
# their owner had to leave. Whoever joins then need not wait for its share.
_OUT_OF_NEED = frozenset({"first claim", "takeover", CAUSE_WORDS[MoveCause.DRAIN]})


def residency_us(term: TermRow, settings: ControlPlaneSettings) -> int:
    """For how long the term must have been open before rebalancing may end it."""
    return 0 if term.reason in _OUT_OF_NEED else round(settings.min_residency_s * US_PER_S)


def drains(picture: Picture, settings: ControlPlaneSettings) -> list[Step]:
    """The moves to ask for now so that leaving dispatchers lose their shards, within the budget of drains."""
    targets = picture.targets()
    room = DRAINS_AT_ONCE * settings.moves_at_once - len(picture.moves)
    if not targets or room <= 0 or picture.rules.all_frozen:
        return []
    leaving, homes = picture.leaving, picture.heads()
    waiting = [shard for shard, home in homes.items() if home in leaving and _is_movable(picture, shard)]
    costs = picture.loads.costs(picture.shards)
    first = sorted(waiting, key=lambda shard: (-costs[shard], shard))[:room]
    homeless = [Homeless(shard, picture.zone_of(homes[shard])) for shard in first]
    placed = house(homeless, targets, homes, costs, settings.rebalance_tolerance)
    return [Step(shard, homes[shard], placed[shard]) for shard in sorted(placed)]


def rebalancing(picture: Picture, settings: ControlPlaneSettings, *, limit: int, always: bool = False) -> list[Step]:
    """The moves of a round now, at most `limit`; with `always` even where the loads are about even."""
    if picture.rules.all_frozen:
        return []
    return even_out(
        picture.targets(),
        picture.heads(),
        picture.loads.costs(picture.shards),
        frozenset(pinned(picture, settings)),
        settings.rebalance_tolerance,
        limit=limit,
        always=always,
    )


def pinned(picture: Picture, settings: ControlPlaneSettings) -> dict[int, str]:
    """The owned shards that a round must leave where they are, each with the reason in words."""
    found: dict[int, str] = {}
    for shard in picture.shards:
        tail = picture.tail(shard)
        if tail is None:
            continue
        if shard in picture.moves or len(picture.open_terms(shard)) > 1:
            found[shard] = "on the move"
        elif picture.rules.holds(shard):
            found[shard] = "frozen"
        elif picture.now_us - tail.opened_us < residency_us(tail, settings):
            found[shard] = f"moved less than {settings.min_residency_s:g} s ago"
    return found


def wishes(
    steps: Iterable[Step], picture: Picture, cause: MoveCause, reason: str, new_id: Callable[[], UUID]
) -> list[MoveWish]:
    """The rows to be written for these moves; each names the term that it is to replace."""
    made = []
    for step in steps:
        tail = picture.tail(step.shard)
        if tail is not None and tail.owner == step.source:
            made.append(MoveWish(new_id(), step.shard, tail.owner, tail.term, step.target, cause, reason))
    return made


def _is_movable(picture: Picture, shard: int) -> bool:
    return shard not in picture.moves and not picture.rules.holds(shard) and len(picture.open_terms(shard)) == 1
