"""Moves that the reconciler orders: the new owner reads every row of the shard anew and brings its open runs home.

A planned move like any other, whose drain has a deadline: a target takes over from an owner that stands still. One a
shard, and not again for a while: what a move does not mend, another one does not either. Called by reconciler.py.
"""

from __future__ import annotations

from collections import Counter

from controlplane.leader import Seat
from controlplane.picture import Picture
from core.clock import Clock
from core.findings import Finding
from core.rand import Rand
from core.states import MoveCause
from core.store.move_records import MoveWish
from core.store.moves import Moves

_NOT_AGAIN_S = 600.0


class RepairMoves:
    """Orders moves for the leader; remembers what it has moved of late."""

    def __init__(self, moves: Moves, seat: Seat, clock: Clock, rand: Rand, replica_id: str) -> None:
        self._moves = moves
        self._seat = seat
        self._clock = clock
        self._rand = rand
        self._replica_id = replica_id
        self._moved_s: dict[int, float] = {}

    async def order(self, finding: Finding, reason: str) -> Finding:
        """The finding, repaired if a move of its shard is under way for it. Raises Unavailable, OutcomeUnknown."""
        picture, shard, now_s = self._seat.picture, finding.shard, self._clock.monotonic_s()
        moved_s = self._moved_s.get(shard)
        if picture is None:
            return finding.left("this replica does not lead any more")
        if picture.rules.holds(shard):
            return finding.left("the shard would be moved, but an operator froze it")
        if moved_s is not None and now_s - moved_s < _NOT_AGAIN_S:
            return self._after_a_move(finding, now_s - moved_s)
        if shard in picture.moves:
            return finding.left("a move of the shard is under way: its end may mend this")
        wish = self._wish(picture, shard, reason)
        if wish is None:
            return finding.left("there is no other dispatcher to move the shard to")
        if not await self._moves.plan([wish], author=self._replica_id):
            return finding.left("a move of the shard is under way: its end may mend this")
        self._moved_s[shard] = now_s
        if self._seat.wake is not None:
            self._seat.wake.set()
        return finding.settled(f"move {wish.move_id} to {wish.to_dispatcher} was ordered")

    @staticmethod
    def _after_a_move(finding: Finding, ago_s: float) -> Finding:
        if ago_s < 5.0:
            return finding.settled("the move that was ordered for the shard mends this too")
        return finding.left(f"the shard was moved for such a finding {ago_s:.0f} s ago, and it goes on")

    def _wish(self, picture: Picture, shard: int, reason: str) -> MoveWish | None:
        tail = picture.tail(shard)
        if tail is None or len(picture.open_terms(shard)) > 1:
            return None
        held = Counter(picture.heads().values())
        others = sorted(picture.eligible - {tail.owner}, key=lambda each: (held[each], each))
        if not others:
            return None
        cause = MoveCause.OPERATOR
        return MoveWish(self._rand.uuid(), shard, tail.owner, tail.term, others[0], cause, f"reconciler: {reason}")
