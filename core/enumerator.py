"""Shares schedule work among equal schedules: each is read once, and a crowd's next instant is computed once.

A process builds one Enumerator and passes it on; there is no module-level cache of results. It only remembers what the
values themselves answer, so leaving it out changes speed and nothing else. Not safe for threads: one event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from core.schedule import Schedule

T = TypeVar("T")


class Enumerator:
    """A bounded memory of parsed schedules and of their latest next occurrence.

    Per series it keeps one stretch [asked_us, next_us): any instant inside has the same next occurrence. The oldest
    entries leave first once `max_entries` is reached.
    """

    def __init__(self, max_entries: int = 50_000, max_compiled: int = 500) -> None:
        self._max_entries = max_entries
        self._max_compiled = max_compiled
        self._schedules: dict[str, Schedule] = {}
        self._stretches: dict[str, tuple[int, int | None]] = {}
        self._compiled: dict[object, object] = {}
        self.hits = 0
        self.misses = 0

    def read(self, text: str) -> Schedule:
        """`Schedule.from_json(text)`, shared among equal texts. Raises Invalid."""
        schedule = self._schedules.get(text)
        if schedule is None:
            schedule = Schedule.from_json(text)
            _make_room(self._schedules, self._max_entries)
            self._schedules[text] = schedule
        return schedule

    def next_after(self, schedule: Schedule, instant_us: int) -> int | None:
        """`schedule.next_after(instant_us)`. Raises SearchLimit."""
        key = schedule.series_key
        if key is None:  # arithmetic on an instant of its own: cheaper than remembering it
            return schedule.next_after(instant_us)
        return self.shared(key, instant_us, schedule.next_after)

    def shared(self, key: str, instant_us: int, compute: Callable[[int], int | None]) -> int | None:
        """`compute(instant_us)`: the first instant later than `instant_us` of the series that `key` names."""
        known = self._stretches.get(key)
        if known is not None and known[0] <= instant_us and (known[1] is None or instant_us < known[1]):
            self.hits += 1
            return known[1]
        self.misses += 1
        next_us = compute(instant_us)
        if known is None:
            _make_room(self._stretches, self._max_entries)
        self._stretches[key] = (instant_us, next_us)
        return next_us

    def compiled(self, key: object, build: Callable[[], T]) -> T:
        """`build()`, kept under `key`, which names an immutable thing such as one version of a calendar."""
        if key not in self._compiled:
            built = build()
            _make_room(self._compiled, self._max_compiled)
            self._compiled[key] = built
        return cast(T, self._compiled[key])


def _make_room(entries: dict[Any, Any], max_entries: int) -> None:
    while len(entries) >= max_entries:
        del entries[next(iter(entries))]
