"""The pace at which late runs are made: so many a second for each namespace, by this dispatcher. No I/O.

Called by drafting for runs that a catch-up makes; what is on time never comes here. A late run that may not be made yet
gets its turn, if there is one soon. Otherwise it is only told when to ask again, spread by the same pace: whoever waits
for long waits in SQL, memory holds the turns of a few seconds, and the rows that are read stay those that are due.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from core.clock import US_PER_S

# Turns are given out so far ahead.
HORIZON_US = 2 * US_PER_S
# A turn that was not taken by then has lapsed.
_TURN_KEPT_US = 60 * US_PER_S


@dataclass(slots=True)
class _Queue:
    """Of one namespace: the next free turn, and when the last one that found none was told to ask again."""

    free_us: int
    ask_us: int = 0


class Pace:
    """Turns by namespace. After a rest a second's worth of them may be taken at once."""

    def __init__(self, runs_per_s: float, *, max_turns: int = 100_000, max_namespaces: int = 10_000) -> None:
        self._apart_us = max(1, round(US_PER_S / runs_per_s))
        self._at_once_us = max(0, US_PER_S - self._apart_us)
        self._max_turns = max_turns
        self._max_namespaces = max_namespaces
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        self._turns: OrderedDict[UUID, int] = OrderedDict()

    def __len__(self) -> int:
        """How many turns were given and not taken yet."""
        return len(self._turns)

    def ask(self, namespace: str, chain: UUID, now_us: int, yields_us: int | None = None) -> int:
        """When the late run of `chain` may be made, or is to be asked for again: now, or a later instant.

        At `yields_us` something becomes due that goes before it: a turn that only came later is left to others.
        """
        self._forget_lapsed(now_us)
        turn_us = self._turns.get(chain)
        if turn_us is None:
            return self._queue_up(namespace, chain, now_us, yields_us)
        if turn_us > now_us:
            return turn_us
        del self._turns[chain]
        return now_us

    def _queue_up(self, namespace: str, chain: UUID, now_us: int, yields_us: int | None) -> int:
        queue = self._queue(namespace, now_us)
        turn_us = max(queue.free_us, now_us - self._at_once_us)
        if turn_us <= now_us:
            queue.free_us = turn_us + self._apart_us
            return now_us
        is_soon = turn_us <= now_us + HORIZON_US
        asked_us = turn_us if is_soon else max(queue.ask_us, now_us + HORIZON_US) + self._apart_us
        if yields_us is not None and yields_us <= asked_us:
            return yields_us
        if is_soon:
            queue.free_us = turn_us + self._apart_us
            self._turns[chain] = turn_us
            if len(self._turns) > self._max_turns:
                self._turns.popitem(last=False)
        else:
            queue.ask_us = asked_us
        return asked_us

    def _queue(self, namespace: str, now_us: int) -> _Queue:
        queue = self._queues.setdefault(namespace, _Queue(now_us - self._at_once_us))
        self._queues.move_to_end(namespace)
        if len(self._queues) > self._max_namespaces:
            self._queues.popitem(last=False)
        return queue

    def _forget_lapsed(self, now_us: int) -> None:
        """The oldest come first, all but in order: each was given at most the horizon before its turn."""
        while self._turns:
            chain, turn_us = next(iter(self._turns.items()))
            if turn_us >= now_us - _TURN_KEPT_US:
                return
            del self._turns[chain]
