"""The walk over a union of series less what is taken away, in both directions, with bounded work. Pure.

Used by core/schedule.py and core/occurrences.py. Each step takes the nearest instant of the union and asks what takes
it away; where something does, the walk jumps over the whole stretch. After `MAX_STEPS` it gives up with SearchLimit
rather than hold up everybody else; the walk can be taken up where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from core.errors import TidewheelError
from core.exclusions import Remover, Stretch
from core.firetimes import Source

MAX_STEPS = 1_000
"""Steps of 2 to 4 us: a search stays below 5 ms."""


class SearchLimit(TidewheelError):
    """A search walked too far over what is taken away.

    Nothing is there between the instant that was asked for and `at_us`, which is no occurrence either: ask again from
    there.
    """

    def __init__(self, at_us: int) -> None:
        super().__init__(f"nothing was found up to {at_us} microseconds since the epoch, and the search stopped there")
        self.at_us = at_us


class Search:
    """The instants of `sources` in [start_us, end_us) that none of `removers` takes away. Never changes once built."""

    def __init__(self, sources: Sequence[Source], removers: Sequence[Remover], start_us: int, end_us: int) -> None:
        self._sources = sources
        self._removers = removers
        self._start_us = start_us
        self._end_us = end_us
        self._step_cost = sum(remover.cost for remover in removers)

    def next_after(self, instant_us: int) -> int | None:
        """The first instant later than `instant_us`, or None. Raises SearchLimit."""
        instant_us = max(instant_us, self._start_us - 1)
        heads = [source.after(instant_us) for source in self._sources]
        left = MAX_STEPS - len(heads)
        while (at_us := min(filter(_is_there, heads), default=self._end_us)) < self._end_us:
            if left < 0:
                raise SearchLimit(at_us - 1)
            taken = self._taken(at_us)
            if taken is None:
                return at_us
            remover, (_, until_us, steps) = taken
            left -= self._step_cost + steps
            for index, head in enumerate(heads):
                if head is not None and head < until_us:
                    source = self._sources[index]
                    longer = remover.source_stretch(head, source) if head == at_us else None
                    heads[index] = source.after(max(until_us, longer.until_us if longer else 0) - 1)
                    left -= 1
        return None

    def prev_before(self, instant_us: int) -> int | None:
        """The last instant earlier than `instant_us`, or None. Raises SearchLimit."""
        instant_us = min(instant_us, self._end_us)
        heads = [source.before(instant_us) for source in self._sources]
        left = MAX_STEPS - len(heads)
        while (at_us := max(filter(_is_there, heads), default=-1)) >= self._start_us:
            if left < 0:
                raise SearchLimit(at_us + 1)
            taken = self._taken(at_us)
            if taken is None:
                return at_us
            remover, (from_us, _, steps) = taken
            left -= self._step_cost + steps
            for index, head in enumerate(heads):
                if head is not None and head >= from_us:
                    source = self._sources[index]
                    longer = remover.source_stretch(head, source) if head == at_us else None
                    heads[index] = source.before(min(from_us, longer.from_us if longer else from_us))
                    left -= 1
        return None

    def has(self, instant_us: int) -> bool:
        """Whether the instant is one of those that are left."""
        return (
            self._start_us <= instant_us < self._end_us
            and any(source.after(instant_us - 1) == instant_us for source in self._sources)
            and self._taken(instant_us) is None
        )

    def _taken(self, at_us: int) -> tuple[Remover, Stretch] | None:
        for remover in self._removers:
            stretch = remover.stretch(at_us)
            if stretch is not None:
                return remover, stretch
        return None


def _is_there(head: int | None) -> TypeGuard[int]:
    return head is not None
