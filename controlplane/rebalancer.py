"""Asks for the leader's own moves: drains at each look, rounds of evening out every `rebalance_interval_s`.

Called by the leader. What it asks for becomes rows like those of operators; moves.py orders them within the budget. A
dispatcher that joins is given its share at once, not only at the next round.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from controlplane.balancing import drains, rebalancing, wishes
from controlplane.picture import Picture
from controlplane.placement import Step
from core.clock import Clock
from core.config import ControlPlaneSettings
from core.rand import Rand
from core.states import MoveCause, MoveState
from core.store.moves import Moves

log = logging.getLogger(__name__)


class Rebalancer:
    """One replica's; what it remembers is when the last round was, and who was there."""

    def __init__(self, moves: Moves, settings: ControlPlaneSettings, clock: Clock, rand: Rand, author: str) -> None:
        self._moves = moves
        self._settings = settings
        self._clock = clock
        self._rand = rand
        self._author = author
        self._round_s = clock.monotonic_s()
        self._met: frozenset[str] = frozenset()

    def begin(self) -> None:
        """A tenure begins: the first round comes when loads have been heard."""
        self._round_s, self._met = self._clock.monotonic_s(), frozenset()

    async def ask(self, picture: Picture, rebalancing_left: int) -> Picture:
        """Ask for what should move now; the picture with the moves that came of it."""
        if not _waits_for_somebody(picture):
            drained = drains(picture, self._settings)
            picture = await self._write(picture, drained, MoveCause.DRAIN, "its dispatcher is drained")
        if self._is_due(picture):
            waiting = sum(
                move.cause is MoveCause.REBALANCE and move.state is MoveState.PENDING for move in picture.moves.values()
            )
            evened = rebalancing(picture, self._settings, limit=max(0, rebalancing_left - waiting))
            picture = await self._write(picture, evened, MoveCause.REBALANCE, "loads were uneven")
        return picture

    def _is_due(self, picture: Picture) -> bool:
        if picture.roster.settling or not self._settings.rebalance:
            return False
        now_s, eligible = self._clock.monotonic_s(), picture.eligible
        joined = eligible - self._met
        if not joined and now_s - self._round_s < self._settings.rebalance_interval_s:
            return False
        self._round_s, self._met = now_s, eligible
        return True

    async def _write(self, picture: Picture, steps: Sequence[Step], cause: MoveCause, reason: str) -> Picture:
        if not steps:
            return picture
        made = await self._moves.plan(wishes(steps, picture, cause, reason, self._rand.uuid), author=self._author)
        if made:
            targets = sorted({move.to_dispatcher for move in made})
            log.info("%s: %d shards are to move to %s", reason, len(made), ", ".join(targets))
        return replace(picture, moves={**picture.moves, **{move.shard: move for move in made}})


def _waits_for_somebody(picture: Picture) -> bool:
    """Whether the leader is new, and some who live have not been heard: those that were would get everything."""
    roster = picture.roster
    return roster.settling and any(each in roster.keepers - roster.eligible for each in picture.members)
