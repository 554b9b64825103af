"""Every nominal instant of a schedule with what shapes it, also those that are taken away. Pure.

The long form of what core/search.py answers in short: previews, explanations and the ledger are made of it. Called by
core/occurrences.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from typing import NamedTuple

from core.clock import US_PER_S
from core.exclusions import Remover
from core.firetimes import GapRule, RepeatRule, Source, Zoned
from core.marks import Entry, Mark
from core.schedule import Schedule
from core.sources import words_of, zoned_of
from core.transitions import LeftOut, left_out, made_up_for, pass_at
from core.windows import Deferral
from core.wording import clock_text, day_text, local_text, span_text
from core.zones import zone_table


class _Named(NamedTuple):
    """An instant that one of the sources names, or that its rules leave out."""

    at_us: int
    source: int
    left_out: LeftOut | None


class Entries:
    """Builds the entries of one version's occurrences.

    `offset_us` is the job's share of the jitter; 0 where there is jitter stands for a share that is not drawn yet.
    """

    def __init__(
        self, schedule: Schedule, removers: Iterable[Remover], deferral: Deferral | None, offset_us: int, end_us: int
    ) -> None:
        self._schedule = schedule
        self._removers = tuple(removers)
        self._deferral = deferral
        self._offset_us = offset_us
        self._end_us = end_us
        self._table = zone_table(schedule.zone)
        self._words = words_of(schedule)

    def walk(self, from_us: int, to_us: int, limit: int) -> Iterator[Entry]:
        """The entries in [from_us, to_us), in order, one for each instant. `limit`: how many will be taken at most."""
        parts: list[Iterator[_Named]] = []
        for index, source in enumerate(self._schedule.sources):
            parts.append(_instants(index, source, from_us, to_us))
            zoned = zoned_of(source)
            if zoned is not None:
                anchor_us = source.after(-1) or 0
                begin_us = from_us if zoned is source else max(from_us, anchor_us)
                parts.append(_left_out(index, zoned, begin_us, to_us, limit))
        for at_us, named in groupby(merge(*parts, key=_instant), key=_instant):
            yield self._entry(at_us, list(named))

    def _entry(self, at_us: int, named: list[_Named]) -> Entry:
        marks: set[Mark] = set()
        notes: list[str] = []
        excluded_by = ""
        for each in named:
            self._add_gap(each, marks, notes)
        running = [each for each in named if each.left_out is None]
        self._add_pass(at_us, running, marks, notes)
        due_us = at_us
        if not running:
            excluded_by = self._rule_of(named[0].left_out)
        elif (remover := next((each for each in self._removers if each.stretch(at_us)), None)) is not None:
            excluded_by = remover.words(at_us)
            notes.append(f"excluded by {excluded_by}")
        else:
            due_us = self._due(at_us, marks, notes)
        if excluded_by:
            marks.add(Mark.EXCLUDED)
        local = local_text(at_us, self._table)
        return Entry(at_us, due_us, local, tuple(sorted(marks)), tuple(notes), excluded_by)

    def _add_gap(self, named: _Named, marks: set[Mark], notes: list[str]) -> None:
        who = f"{self._words[named.source]}: " if len(self._words) > 1 else ""
        if named.left_out is not None:
            if named.left_out.gap is None:
                return
            gap, walls = named.left_out.gap, list(named.left_out.walls)
            made = "nonexistent local time, which gap rule skip leaves out"
        else:
            zoned = zoned_of(self._schedule.sources[named.source])
            found = None if zoned is None else made_up_for(zoned, named.at_us // US_PER_S)
            if found is None:
                return
            gap, walls = found
            how = "the first instant after the gap"
            if self._schedule.gap is GapRule.SHIFT:
                how = "as far after the gap as it lies inside it"
            made = f"gap rule {self._schedule.gap} runs it at {clock_text(self._wall_s(named.at_us))}, {how}"
        marks.add(Mark.GAP)
        missing = ", ".join(map(clock_text, walls))
        jump = f"the clock goes from {clock_text(gap.from_s)} to {clock_text(gap.until_s)}"
        does = "does" if len(walls) == 1 else "do"
        notes.append(f"{who}{missing} {does} not exist on {day_text(walls[0])}, where {jump}: {made}")

    def _add_pass(self, at_us: int, running: list[_Named], marks: set[Mark], notes: list[str]) -> None:
        second = at_us // US_PER_S
        number = pass_at(self._table, second)
        if number is None:
            return
        marks.add(Mark.REPEATED)
        wall_s = self._wall_s(at_us)
        which = "first" if number == 1 else "second"
        by_rule = [zoned for each in running if (zoned := zoned_of(self._schedule.sources[each.source])) is not None]
        if not running:
            what = f"which repeat rule {self._schedule.repeat} leaves out"
        elif any(not zoned.wildcard for zoned in by_rule):
            both = self._schedule.repeat is RepeatRule.BOTH
            what = f"which repeat rule {self._schedule.repeat} runs{' like the other one' if both else ''}"
        else:
            what = "which runs because elapsed time is followed"
        notes.append(f"{clock_text(wall_s)} comes twice on {day_text(wall_s)}: this is the {which} pass, {what}")

    def _wall_s(self, at_us: int) -> int:
        second = at_us // US_PER_S
        return second + self._table.offsets_s[self._table.index(second)]

    def _rule_of(self, out: LeftOut | None) -> str:
        if out is not None and out.gap is not None:
            return f"gap rule {GapRule.SKIP}"
        return f"repeat rule {self._schedule.repeat}"

    def _due(self, at_us: int, marks: set[Mark], notes: list[str]) -> int:
        free_us = at_us
        if self._deferral is not None:
            free_us = self._deferral.end_of(at_us) or at_us
            if free_us != at_us:
                marks.add(Mark.DEFERRED)
                until = local_text(free_us, self._table)
                notes.append(f"in {self._deferral.words(at_us)}, and put off until it ends at {until}")
        due_us = min(free_us + self._offset_us, self._end_us - 1)
        if due_us != free_us:
            marks.add(Mark.JITTERED)
            cut = ", cut to stay before the schedule's end" if due_us < free_us + self._offset_us else ""
            notes.append(f"put off by {span_text(due_us - free_us)}: the job's share of the jitter{cut}")
        elif self._schedule.jitter_us and not self._offset_us:
            marks.add(Mark.JITTERED)
            notes.append(f"to be put off by up to {span_text(self._schedule.jitter_us)} of jitter")
        return due_us


def _instant(named: _Named) -> int:
    return named.at_us


def _left_out(index: int, zoned: Zoned, from_us: int, to_us: int, most: int) -> Iterator[_Named]:
    return (_Named(out.at_us, index, out) for out in left_out(zoned, from_us, to_us, most))


def _instants(index: int, source: Source, from_us: int, to_us: int) -> Iterator[_Named]:
    at_us = source.after(from_us - 1)
    while at_us is not None and at_us < to_us:
        yield _Named(at_us, index, None)
        at_us = source.after(at_us)
