"""What the gap and repeat rules made of wall times that are missing or come twice: for previews and explanations. Pure.

Looks at the same zone tables and series as the walk itself (core/firetimes.py), and so cannot tell another story.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.clock import US_PER_S
from core.firetimes import GapRule, RepeatRule, Zoned
from core.zones import ZoneTable


class Gap(NamedTuple):
    """Wall times that the clock jumped over: [from_s, until_s)."""

    from_s: int
    until_s: int


class LeftOut(NamedTuple):
    """Wall times of a series that its rules leave out, and the instant at which that is shown.

    `gap` is given for wall times that do not exist, shown at the gap's end; None: one pass that is not run.
    """

    at_us: int
    walls: tuple[int, ...]
    gap: Gap | None


_MISSING_SHOWN = 3


def pass_at(table: ZoneTable, second: int) -> int | None:
    """1 or 2 where the wall shows the time of `second` twice: which of the two this is."""
    run = table.index(second)
    offset = table.offsets_s[run]
    if run > 0 and second < table.starts_s[run] + table.offsets_s[run - 1] - offset:
        return 2
    if run + 1 < len(table.offsets_s) and second >= table.starts_s[run + 1] - (offset - table.offsets_s[run + 1]):
        return 1
    return None


def made_up_for(zoned: Zoned, second: int) -> tuple[Gap, list[int]] | None:
    """The gap and the (first few) missing wall times that the instant `second` stands for; None without any."""
    if not zoned.makes_up(second):
        return None
    run = zoned.table.index(second)
    gap = _gap_before(zoned.table, run)
    if zoned.gap is GapRule.SHIFT:
        return gap, [second + zoned.table.offsets_s[run - 1]]
    return gap, _walls(zoned, gap.from_s, gap.until_s, _MISSING_SHOWN)


def left_out(zoned: Zoned, from_us: int, to_us: int, most: int) -> Iterator[LeftOut]:
    """What the rules leave out at instants in [from_us, to_us), in order; at most `most` at each change."""
    table = zoned.table
    for run in range(table.index(from_us // US_PER_S), len(table.offsets_s)):
        if run == 0:
            continue
        change_s = table.starts_s[run]
        turned_s = table.offsets_s[run - 1] - table.offsets_s[run]
        if (change_s - max(0, turned_s)) * US_PER_S >= to_us:
            return
        for found in _left_out_at(zoned, run, most):
            if from_us <= found.at_us < to_us:
                yield found


def _left_out_at(zoned: Zoned, run: int, most: int) -> Iterator[LeftOut]:
    change_s = zoned.table.starts_s[run]
    before, after = zoned.table.offsets_s[run - 1], zoned.table.offsets_s[run]
    if after > before and zoned.gap is GapRule.SKIP and not zoned.wildcard:
        gap = _gap_before(zoned.table, run)
        if walls := _walls(zoned, gap.from_s, gap.until_s, _MISSING_SHOWN):
            yield LeftOut(change_s * US_PER_S, tuple(walls), gap)
    elif after < before and zoned.repeat is not RepeatRule.BOTH:
        offset = after if zoned.repeat is RepeatRule.FIRST else before
        for wall_s in _walls(zoned, change_s + after, change_s + before, most):
            yield LeftOut((wall_s - offset) * US_PER_S + zoned.fraction_us, (wall_s,), None)


def _gap_before(table: ZoneTable, run: int) -> Gap:
    return Gap(table.starts_s[run] + table.offsets_s[run - 1], table.starts_s[run] + table.offsets_s[run])


def _walls(zoned: Zoned, from_s: int, until_s: int, most: int) -> list[int]:
    found: list[int] = []
    wall_s = zoned.series.wall_from(from_s, until_s)
    while wall_s is not None and len(found) < most:
        found.append(wall_s)
        wall_s = zoned.series.wall_from(wall_s + 1, until_s)
    return found
