"""Walks two schedules over a span and compares them: a bounded walk that leaves room for others.

The comparison itself is core/comparison.py. Called by controlplane/api/schedules.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from controlplane.schedule_preview import Drawn
from core.civil import DAY_S
from core.clock import US_PER_S, Clock
from core.comparison import Comparison, Placed, compare
from core.occurrences import SearchLimit
from core.zones import ZoneTable, zone_table

MAX_OCCURRENCES = 100_000
# So many are walked without letting anybody else go on.
_STRIDE = 500


@dataclass(frozen=True, slots=True)
class _Walk:
    """Every occurrence of a schedule in [.., end_us)."""

    placed: list[Placed]
    end_us: int


async def compare_over(
    before: Drawn, after: Drawn, from_us: int, to_us: int, clock: Clock, most: int = MAX_OCCURRENCES
) -> tuple[Comparison, bool]:
    """What differs in [from_us, to_us), and whether only a part of it could be compared: `most` of either."""
    old = await _walk(before, from_us, to_us, clock, most)
    new = await _walk(after, from_us, to_us, clock, most)
    end_us = min(old.end_us, new.end_us)
    kept = [[each for each in walk.placed if each.nominal_us < end_us] for walk in (old, new)]
    return await asyncio.to_thread(compare, *kept), end_us < to_us


async def _walk(drawn: Drawn, from_us: int, to_us: int, clock: Clock, most: int) -> _Walk:
    table = zone_table(drawn.schedule.zone)
    placed: list[Placed] = []
    at_us = from_us
    while at_us < to_us:
        await clock.sleep(0)
        limit = _STRIDE if drawn.left is None else min(_STRIDE, drawn.left - len(placed))
        if limit <= 0:
            break
        try:
            found = drawn.occurrences.between(at_us, to_us, limit)
        except SearchLimit as stop:
            return _Walk(placed, max(at_us, stop.at_us))
        placed += (Placed(each.nominal_us, each.due_us, _day(table, each.nominal_us)) for each in found)
        if len(placed) > most:
            return _Walk(placed[:most], placed[most].nominal_us)
        if len(found) < limit:
            break
        at_us = found[-1].nominal_us + 1
    return _Walk(placed, to_us)


def _day(table: ZoneTable, instant_us: int) -> int:
    """The local day that holds the instant, counted from the epoch."""
    instant_s = instant_us // US_PER_S
    return (instant_s + table.offsets_s[table.index(instant_s)]) // DAY_S
