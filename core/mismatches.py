"""Why the parts of a schedule do not name an instant: one sentence for each. Pure; for `job explain`."""

from __future__ import annotations

from collections.abc import Iterator

from core.civil import DAY_S
from core.clock import US_PER_S
from core.cron import CronLine
from core.daysets import WEEKDAYS
from core.firetimes import Source, Zoned
from core.schedule import Schedule
from core.sources import words_of, zoned_of
from core.transitions import pass_at
from core.wording import clock_text, day_text, local_text
from core.zones import zone_table

_SHOWN = 12
_EPOCH_WEEKDAY = 4


def mismatches_of(schedule: Schedule, instant_us: int, last_us: int) -> list[str]:
    """A sentence for each series that does not name the instant, and one for each bound that it lies outside of."""
    return [*_bounds(schedule, instant_us, last_us), *_parts(schedule, instant_us)]


def _bounds(schedule: Schedule, instant_us: int, last_us: int) -> Iterator[str]:
    table = zone_table(schedule.zone)
    if schedule.start_us is not None and instant_us < schedule.start_us:
        yield f"the schedule starts at {local_text(schedule.start_us, table)}"
    if schedule.end_us is not None and instant_us >= schedule.end_us:
        yield f"the schedule ends at {local_text(schedule.end_us, table)}"
    elif instant_us > last_us:
        yield f"the last occurrence that its number of runs allows is at {local_text(last_us, table)}"


def _parts(schedule: Schedule, instant_us: int) -> Iterator[str]:
    for words, source in zip(words_of(schedule), schedule.sources, strict=True):
        if source.after(instant_us - 1) == instant_us:
            continue
        if isinstance(source, Zoned) and isinstance(source.series, CronLine):
            yield f"{words}: {_line(source, source.series, instant_us)}"
        else:
            yield f"{words}: {_nearest(schedule, source, instant_us)}"


def _line(zoned: Zoned, line: CronLine, instant_us: int) -> str:
    second, fraction_us = divmod(instant_us, US_PER_S)
    wall_s = second + zoned.table.offsets_s[zoned.table.index(second)]
    day, second_of_day = divmod(wall_s, DAY_S)
    hour, minute, second_of_minute = second_of_day // 3600, second_of_day // 60 % 60, second_of_day % 60
    if line.days_around(day) is None:
        return f"{day_text(wall_s)}, a {WEEKDAYS[(day + _EPOCH_WEEKDAY) % 7]}, is not one of its days"
    for name, value, mask in (
        ("hour", hour, line.hours),
        ("minute", minute, line.minutes),
        ("second", second_of_minute, line.seconds),
    ):
        if not mask >> value & 1:
            return f"its {name} is {_values(mask)}, not {value}"
    if fraction_us:
        return "it names whole seconds"
    which = {1: "first", 2: "second", None: "only"}[pass_at(zoned.table, second)]
    return f"{clock_text(wall_s)} comes twice, this is the {which} pass, and repeat rule {zoned.repeat} runs the other"


def _values(mask: int) -> str:
    values = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    shown = ", ".join(map(str, values[:_SHOWN]))
    return shown if len(values) <= _SHOWN else f"{shown}, ... ({len(values)} values)"


def _nearest(schedule: Schedule, source: Source, instant_us: int) -> str:
    table = zone_table(schedule.zone)
    before_us, after_us = source.before(instant_us), source.after(instant_us)
    before = "nothing before" if before_us is None else f"{local_text(before_us, table)} before"
    after = "nothing after" if after_us is None else f"{local_text(after_us, table)} after"
    kind = "the wall time of its anchor" if zoned_of(source) is not None else "exact instants"
    return f"it names {kind}: {before} this one, {after} it"
