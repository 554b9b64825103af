"""Counts far ahead: the n-th occurrence of a union of cron lines, whole days at a time. Pure.

Called by core/occurrences.py for the bound on the number of runs, which may be a hundred thousand. On a day on which
the clock of the zone does not change, the times of a union are the same on every day that has the same lines: they are
one mask of the seconds of a day, counted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.civil import DAY_S
from core.clock import US_PER_S
from core.cron import CronLine
from core.exclusions import ExcludedLine, OffDays, Remover
from core.firetimes import Source, Zoned
from core.zones import ZoneTable


class DayCounter:
    """The times of each ordinary day of a union of cron lines in one zone, less days off and excluded lines."""

    def __init__(
        self, table: ZoneTable, lines: Sequence[CronLine], excluded: Sequence[CronLine], off: Sequence[OffDays]
    ) -> None:
        self._table = table
        self._all = (*lines, *excluded)
        self._line_count = len(lines)
        self._off = off
        self._times: dict[tuple[bool, ...], tuple[int, int]] = {}

    @classmethod
    def of(cls, sources: Sequence[Source], removers: Sequence[Remover]) -> DayCounter | None:
        """The counter; None where some part does not go by days."""
        zoned = [source for source in sources if isinstance(source, Zoned)]
        lines = [source.series for source in zoned if isinstance(source.series, CronLine)]
        excluded = [remover.line for remover in removers if isinstance(remover, ExcludedLine)]
        off = [remover for remover in removers if isinstance(remover, OffDays)]
        if len(lines) != len(sources) or len(excluded) + len(off) != len(removers):
            return None
        return cls(zoned[0].table, lines, excluded, off)

    def nth_after(self, instant_us: int, n: int, end_us: int, step: Callable[[int], int | None]) -> int | None:
        """The n-th instant after `instant_us` and before `end_us`; None where there are fewer.

        `step` gives the next one after an instant, on days on which the clock changes.
        """
        while instant_us < end_us:
            second = instant_us // US_PER_S + 1
            offset, times, count = self._ordinary_day(second) or (0, 0, 0)
            second_of_day = (second + offset) % DAY_S
            if second_of_day and count:  # most questions are about whole days
                times = times >> second_of_day << second_of_day
                count = times.bit_count()
            day_s = second - second_of_day
            if count >= n:
                return (day_s + _nth_bit(times, n)) * US_PER_S
            if count:
                n -= count
                instant_us = (day_s + DAY_S) * US_PER_S - 1
                continue
            following = step(instant_us)
            n -= 1
            if following is None or n == 0:
                return following
            instant_us = following
        return None

    def _ordinary_day(self, second: int) -> tuple[int, int, int] | None:
        """(offset, times, their number) of the local day of an instant; None where the clock changes on it, or near."""
        table = self._table
        run = table.index(second)
        offset = table.offsets_s[run]
        day = (second + offset) // DAY_S
        first_s, end_s = day * DAY_S - offset, (day + 1) * DAY_S - offset
        before_s = abs(offset - table.offsets_s[run - 1]) if run else 0
        after_s = abs(table.offsets_s[run + 1] - offset) if run + 1 < len(table.offsets_s) else 0
        if first_s < table.starts_s[run] + before_s or end_s > table.starts_s[run + 1] - after_s:
            return None
        return offset, *self._times_of(day)

    def _times_of(self, day: int) -> tuple[int, int]:
        if any(each.days.run(day) is not None for each in self._off):
            return 0, 0
        on = tuple(line.days_around(day) is not None for line in self._all)
        if on not in self._times:
            named, excluded = 0, 0
            for index, line in enumerate(self._all):
                if on[index] and index < self._line_count:
                    named |= line.times_of_day.mask()
                elif on[index]:
                    excluded |= line.times_of_day.mask()
            times = named & ~excluded
            self._times[on] = times, times.bit_count()
        return self._times[on]


def _nth_bit(mask: int, n: int) -> int:
    """The position of the n-th (from 1) set bit, counted from below."""
    low, high = 0, mask.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if (mask & (1 << middle) - 1).bit_count() >= n:
            high = middle
        else:
            low = middle
    return low
