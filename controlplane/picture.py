"""What the leader knows at one moment, read once a step: who lives, who owns what by SQL, which moves are open, what
operators forbid, what each shard costs. Pure; planner, account, rebalancer and preview all judge by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.loads import NO_LOADS, LoadView
from controlplane.membership import Roster
from controlplane.placement import Target
from core.clock import US_PER_S
from core.coord.layout import Member
from core.fence import TermRow
from core.states import PlacementRuleKind, TermState
from core.store.move_records import MoveRecord
from core.store.placement_rules import PlacementRule

# A target that has not split by then is not going to: the order is withdrawn, and the move rolled back a little later.
ORDER_STANDS_S = 10.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The rules of operators, sorted: everything frozen, these shards frozen, these dispatchers to be emptied."""

    all_frozen: bool = False
    frozen: frozenset[int] = frozenset()
    drained: frozenset[str] = frozenset()

    def holds(self, shard: int) -> bool:
        """Whether the shard must not be moved by plan."""
        return self.all_frozen or shard in self.frozen


def standing_of(rules: Iterable[PlacementRule]) -> Standing:
    """The rules as they stand; one whose subject means nothing is passed over."""
    by_kind: dict[PlacementRuleKind, set[str]] = {kind: set() for kind in PlacementRuleKind}
    for rule in rules:
        by_kind[rule.kind].add(rule.subject)
    numbers = by_kind[PlacementRuleKind.FREEZE_SHARD]
    return Standing(
        bool(by_kind[PlacementRuleKind.FREEZE_ALL]),
        frozenset(int(subject) for subject in numbers if subject.isdecimal()),
        frozenset(by_kind[PlacementRuleKind.DRAIN_DISPATCHER]),
    )


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment. `rows` are the newest terms of each shard, ascending; `moves` the open move of each shard that has
    one; instants in microseconds.
    """

    shards: Sequence[int]
    rows: Mapping[int, Sequence[TermRow]]
    roster: Roster
    members: Mapping[str, Member] = field(default_factory=dict)
    moves: Mapping[int, MoveRecord] = field(default_factory=dict)
    rules: Standing = field(default_factory=Standing)
    loads: LoadView = NO_LOADS
    now_us: int = 0
    # When this tenure began: an order waits no longer for that there was no leader before.
    began_us: int = 0

    def open_terms(self, shard: int) -> list[TermRow]:
        """Its open terms in the order of their ranges: one, or two during a hand-off; none before the first claim."""
        return open_terms(self.rows.get(shard, ()))

    def tail(self, shard: int) -> TermRow | None:
        """The term by which the shard is owned from now on or soon: the open one with the last range."""
        opened = self.open_terms(shard)
        return opened[-1] if opened else None

    def heads(self) -> dict[int, str]:
        """Where each owned shard is, or is on its way to: the target of an open move counts as its home."""
        homes: dict[int, str] = {}
        for shard in self.shards:
            move, tail = self.moves.get(shard), self.tail(shard)
            if tail is not None:
                homes[shard] = tail.owner if move is None else move.to_dispatcher
        return homes

    def order_age_s(self, move: MoveRecord) -> float:
        """For how long an ordered move has had a leader who kept its order in the plan."""
        return (self.now_us - max(move.ordered_us, self.began_us)) / US_PER_S

    def order_stands(self, move: MoveRecord) -> bool:
        """Whether the order of a move that is ordered belongs into the plan."""
        return self.order_age_s(move) <= ORDER_STANDS_S

    @property
    def eligible(self) -> frozenset[str]:
        """Who may get shards: has joined, reports, does not leave and is not drained."""
        return self.roster.eligible - self.rules.drained

    @property
    def leaving(self) -> frozenset[str]:
        """Who is to lose its shards by hand-off: it said so itself, or an operator did."""
        return self.roster.leaving | (self.roster.keepers & self.rules.drained)

    def targets(self) -> tuple[Target, ...]:
        """Who may get shards, with weight, zone and processor."""
        return tuple(self._target(each) for each in sorted(self.eligible))

    def takers(self) -> tuple[Target, ...]:
        """Who may take what has no owner: the targets; where operators drain them all, those who are well.

        A shard without an owner fires nothing, which no drain can mean.
        """
        return tuple(self._target(each) for each in sorted(self.eligible or self.roster.eligible))

    def zone_of(self, dispatcher_id: str) -> str:
        """Where a dispatcher stands, "" where that is not known any more."""
        member = self.members.get(dispatcher_id)
        return "" if member is None else member.zone

    def _target(self, dispatcher_id: str) -> Target:
        member = self.members.get(dispatcher_id)
        cpu = self.loads.cpus.get(dispatcher_id)
        if member is None:
            return Target(dispatcher_id, cpu=cpu)
        return Target(dispatcher_id, member.weight_milli / 1_000, member.zone, cpu)


def open_terms(rows: Iterable[TermRow]) -> list[TermRow]:
    """The open ones of a shard's terms, in the order of their ranges."""
    return sorted((row for row in rows if row.state is TermState.OPEN), key=lambda row: row.from_bucket)


def by_shard(rows: Iterable[TermRow]) -> dict[int, list[TermRow]]:
    """Terms by their shard, in the order in which they came."""
    found: dict[int, list[TermRow]] = {}
    for row in rows:
        found.setdefault(row.shard, []).append(row)
    return found
