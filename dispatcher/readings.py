"""Reads of open runs that are under way, and what this process learns meanwhile of the runs they may show. No I/O.

A read of many runs takes its time. A run that ended here, or was found to have ended, after the read began may stand in
its answer as if it went on: taken up from there it would wait, run or rest in memory alone. So whoever reads says when
it begins, and leaves out what was outdated since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID


class Readings:
    """The reads under way, each with the runs of which its answer may be old news."""

    def __init__(self) -> None:
        self._under_way: list[set[UUID]] = []

    @contextmanager
    def begin(self) -> Iterator[set[UUID]]:
        """For the length of a read and of taking up its answer; gives the runs that are not to be taken from it."""
        outdated: set[UUID] = set()
        self._under_way.append(outdated)
        try:
            yield outdated
        finally:
            self._under_way = [each for each in self._under_way if each is not outdated]

    def outdate(self, run_id: UUID) -> None:
        """The run has changed, and memory knows more of it than any read that began before."""
        for outdated in self._under_way:
            outdated.add(run_id)
