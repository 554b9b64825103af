"""The rows that placement goes by, read together once a step: terms, open moves, rules. Never one shard at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.picture import Standing, by_shard, standing_of
from core.fence import TermRow
from core.store.move_records import MoveRecord
from core.store.moves import Moves
from core.store.placement_rules import PlacementRules
from core.store.terms import Terms


@dataclass(frozen=True, slots=True)
class Rows:
    """One reading: the newest terms by shard, the open moves by shard, the rules."""

    terms: dict[int, list[TermRow]]
    moves: dict[int, MoveRecord]
    rules: Standing


@dataclass(frozen=True, slots=True)
class PlacementStore:
    """Where placement reads and writes."""

    terms: Terms
    moves: Moves
    rules: PlacementRules

    async def read(self, shards: Sequence[int]) -> Rows:
        """Everything, in three statements. The moves come first: a move that ends meanwhile is judged once more, while
        one that is newer than the terms could be judged by terms from before it.
        """
        moves = await self.moves.open_moves()
        rules = await self.rules.standing()
        terms = await self.terms.newest(shards)
        return Rows(by_shard(terms), {move.shard: move for move in moves}, standing_of(rules))
