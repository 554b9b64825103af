"""Occurrences that are listed one by one, with candidates that are taken away: a plain stand-in for a schedule.

It answers what decisions about chains ask, as core/occurrences.py promises it, searches that give up included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.occurrences import Occurrence, SearchLimit


class Listed:
    """`occurrences` in order of both their instants. A search gives up after `patience` of `taken_away`."""

    def __init__(
        self, occurrences: Iterable[Occurrence], taken_away: Iterable[int] = (), patience: int = 10**9
    ) -> None:
        self.all = tuple(occurrences)
        self._taken_away = frozenset(taken_away) - {each.nominal_us for each in self.all}
        self._patience = patience
        self.searches = 0

    def until(self, last_us: int | None) -> Listed:
        """The same up to `last_us` (inclusive)."""
        if last_us is None:
            return self
        kept = (each for each in self.all if each.nominal_us <= last_us)
        return Listed(kept, (hole for hole in self._taken_away if hole <= last_us), self._patience)

    def at(self, nominal_us: int) -> Occurrence | None:
        """The one with this nominal instant, or None."""
        self.searches += 1
        return next((each for each in self.all if each.nominal_us == nominal_us), None)

    def next_after(self, nominal_us: int) -> Occurrence | None:
        """The first later one. Raises SearchLimit."""
        return self._first(each for each in self._candidates() if each.nominal_us > nominal_us)

    def prev_before(self, nominal_us: int) -> Occurrence | None:
        """The last earlier one. Raises SearchLimit."""
        return self._first(each for each in reversed(self._candidates()) if each.nominal_us < nominal_us)

    def last_due_before(self, due_us: int) -> Occurrence | None:
        """The last one that is due earlier. Raises SearchLimit."""
        return self._first(each for each in reversed(self._candidates()) if each.due_us < due_us)

    def _candidates(self) -> list[Occurrence]:
        return sorted((*self.all, *(Occurrence(hole, hole) for hole in self._taken_away)))

    def _first(self, walk: Iterator[Occurrence]) -> Occurrence | None:
        self.searches += 1
        for walked, each in enumerate(walk):
            if each.nominal_us not in self._taken_away:
                return each
            if walked >= self._patience:
                raise SearchLimit(each.nominal_us)
        return None
