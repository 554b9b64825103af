"""Planned moves of shards as values: what is asked for, how far it came, how it ended. Pure: no SQL here.

Instants are microseconds since the epoch, 0 for "never"; boundaries are buckets. Kept by moves.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from core.errors import InvariantBroken
from core.states import MOVE_TRANSITIONS, OPEN_MOVE_STATES, MoveCause, MoveEvent, MoveState

_MAX_ERROR_CHARS = 500

MoveKey = tuple[int, UUID]
"""Where a page ended: (requested_us, move id)."""


@dataclass(frozen=True, slots=True)
class MoveWish:
    """A move to be written down: the shard is to leave `from_term` of `from_owner` for `to_dispatcher`."""

    move_id: UUID
    shard: int
    from_owner: str
    from_term: int
    to_dispatcher: str
    cause: MoveCause
    reason: str


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move as it stands. `boundary` and `new_term` are 0 until the split was seen; `error` says why it was rolled
    back; `author` is who asked for it, the leader's replica or an operator.
    """

    move_id: UUID
    shard: int
    from_owner: str
    from_term: int
    to_dispatcher: str
    cause: MoveCause
    state: MoveState
    boundary: int
    new_term: int
    author: str
    reason: str
    request_id: str
    requested_us: int
    ordered_us: int
    split_us: int
    ended_us: int
    error: str

    @property
    def is_open(self) -> bool:
        """Whether it stands in the way of another move of its shard."""
        return self.state in OPEN_MOVE_STATES

    @property
    def key(self) -> MoveKey:
        return self.requested_us, self.move_id

    def after(
        self, event: MoveEvent, now_us: int, *, boundary: int = 0, new_term: int = 0, error: str = ""
    ) -> MoveRecord:
        """The move after `event`. Raises InvariantBroken where STATES.md knows no such step."""
        try:
            state = MOVE_TRANSITIONS[self.state, event]
        except KeyError:
            raise InvariantBroken(f"a move in state {self.state.name} cannot take {event.name}") from None
        # The picture by which a leader judges may be older than the row: instants of one move never decrease.
        now_us = max(now_us, self.requested_us, self.ordered_us, self.split_us)
        stepped = replace(self, state=state, boundary=boundary or self.boundary, new_term=new_term or self.new_term)
        if state is MoveState.ORDERED:
            return replace(stepped, ordered_us=now_us)
        if state is MoveState.SPLIT:
            return replace(stepped, split_us=now_us)
        split_us = self.split_us or (now_us if state is MoveState.COMPLETED else 0)
        return replace(stepped, split_us=split_us, ended_us=now_us, error=error[:_MAX_ERROR_CHARS])


@dataclass(frozen=True, slots=True)
class Advance:
    """One step of a move: the row is changed only while its state is still that of `before`."""

    before: MoveRecord
    now: MoveRecord


@dataclass(frozen=True, slots=True)
class MovePage:
    """Moves, newest first; `more_after` says where to go on when there may be further ones."""

    moves: tuple[MoveRecord, ...]
    more_after: MoveKey | None
