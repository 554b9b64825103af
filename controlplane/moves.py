"""The account of planned moves: carries rows on as the terms show what became of them, and orders within the budget.

Called by the leader at each step. Every step is a compare-and-set on a row's state, so that the next leader goes on
from the rows, and two at once take each step once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controlplane.move_steps import orders, recently_ordered, steps
from controlplane.picture import Picture
from controlplane.seams import ControlPlaneMetrics
from core.clock import US_PER_S, Clock
from core.config import ControlPlaneSettings
from core.failpoints import Failpoints
from core.states import MoveCause, MoveState
from core.store.move_records import Advance, MoveRecord
from core.store.moves import Moves

log = logging.getLogger(__name__)

_MINUTE_US = 60 * US_PER_S
# A move that waits for longer before it is ordered is rolled back (move_steps.py).
_LOOK_BACK_US = 15 * _MINUTE_US


class MoveAccount:
    """One replica's hand on the account; what it remembers is the budget of the last minute."""

    def __init__(
        self,
        moves: Moves,
        settings: ControlPlaneSettings,
        clock: Clock,
        metrics: ControlPlaneMetrics,
        failpoints: Failpoints,
    ) -> None:
        self._moves = moves
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._failpoints = failpoints
        self._ordered_us: list[int] | None = None

    def begin(self) -> None:
        """A tenure begins: what other leaders ordered is to be read."""
        self._ordered_us = None

    async def rebalancing_left(self, picture: Picture) -> int:
        """How many moves rebalancing may still begin within this minute."""
        minute_ago_us = picture.now_us - _MINUTE_US
        if self._ordered_us is None:
            recent = await self._moves.since(picture.now_us - _LOOK_BACK_US)
            self._ordered_us = recently_ordered(recent, minute_ago_us)
        self._ordered_us = [at_us for at_us in self._ordered_us if at_us > minute_ago_us]
        return self._settings.moves_per_minute - len(self._ordered_us)

    async def carry_on(self, picture: Picture) -> Picture:
        """Take the steps that the terms show; the picture with the moves that are still open."""
        taken = steps(picture)
        if not taken:
            return picture
        await self._pass("leader.before_complete")
        done = await self._moves.advance(taken)
        await self._pass("leader.after_complete")
        self._tell(done)
        return _with(picture, taken, done)

    async def order(self, picture: Picture) -> Picture:
        """Order what the budget has room for; the picture with those moves ordered."""
        if all(move.state is not MoveState.PENDING for move in picture.moves.values()):
            return picture
        left = await self.rebalancing_left(picture)
        taken = orders(picture, self._settings, left)
        if not taken:
            return picture
        await self._pass("leader.before_order")
        done = await self._moves.advance(taken)
        await self._pass("leader.after_order")
        log.info("ordered moves of shards %s", _numbers(done) or "none")
        if self._ordered_us is not None:
            self._ordered_us += [move.ordered_us for move in done if move.cause is MoveCause.REBALANCE]
        return _with(picture, taken, done)

    def _tell(self, done: Sequence[MoveRecord]) -> None:
        for move in done:
            if move.state is MoveState.ROLLED_BACK:
                log.warning(
                    "the move of shard %d to %s was rolled back: %s", move.shard, move.to_dispatcher, move.error
                )
            if not move.is_open:
                self._metrics.move_ended(move.cause, move.state)
        completed = [move for move in done if move.state is MoveState.COMPLETED]
        for target in sorted({move.to_dispatcher for move in completed}):
            log.info("moved to %s: shards %s", target, _numbers(m for m in completed if m.to_dispatcher == target))

    async def _pass(self, name: str) -> None:
        wait_s = self._failpoints.pass_by(name)
        if wait_s:
            await self._clock.sleep(wait_s)


def _numbers(moves: Iterable[MoveRecord]) -> str:
    return ", ".join(str(shard) for shard in sorted(move.shard for move in moves))


def _with(picture: Picture, taken: Sequence[Advance], done: Sequence[MoveRecord]) -> Picture:
    """The picture after these steps; a move that somebody else carried on meanwhile is left out until the next look."""
    tried = {step.before.shard for step in taken}
    kept = {shard: move for shard, move in picture.moves.items() if shard not in tried}
    return replace(picture, moves={**kept, **{move.shard: move for move in done if move.is_open}})
