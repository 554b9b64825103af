"""From the parts of a Schedule to the series of instants that they name. Pure; called by core/schedule.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.clock import US_PER_S
from core.cron import EveryLine, parse_line
from core.errors import Invalid
from core.firetimes import Interval, Once, Source, Zoned
from core.intervals import FromAnchor
from core.zones import zone_table

if TYPE_CHECKING:
    from core.intervals import Every
    from core.schedule import Schedule


def sources_of(schedule: Schedule) -> tuple[Source, ...]:
    """The series of `at_us`, of each interval and of each cron line. Raises Invalid for what cannot be read."""
    single = (Once(schedule.at_us),) if schedule.at_us else ()
    intervals = (_interval(schedule, index, every) for index, every in enumerate(schedule.every))
    lines = (_line(schedule, index, text) for index, text in enumerate(schedule.cron))
    return (*single, *intervals, *lines)


def words_of(schedule: Schedule) -> tuple[str, ...]:
    """What each of those series is called, in the same order."""
    single = ("single instants",) if schedule.at_us else ()
    intervals = (f"interval {every.words()}" for every in schedule.every)
    return (*single, *intervals, *(f"line {text}" for text in schedule.cron))


def zoned_of(source: Source) -> Zoned | None:
    """The series of wall times that a source follows; None where it counts elapsed time, or single instants."""
    if isinstance(source, FromAnchor):
        return source.following
    return source if isinstance(source, Zoned) else None


def _interval(schedule: Schedule, index: int, every: Every) -> Source:
    anchor_us = every.anchor_us
    if anchor_us is None:
        anchor_us = _required_anchor(schedule, f"schedule.every[{index}]")
    return every.source(anchor_us, zone_table(schedule.zone), schedule.gap, schedule.repeat)


def _line(schedule: Schedule, index: int, text: str) -> Source:
    line = parse_line(text, f"schedule.cron[{index}]", schedule.hash_key or None)
    if isinstance(line, EveryLine):
        return Interval(line.every_s * US_PER_S, _required_anchor(schedule, "@every lines"))
    return Zoned(line, zone_table(schedule.zone), schedule.gap, schedule.repeat)


def _required_anchor(schedule: Schedule, what: str) -> int:
    if schedule.anchor_us is None:
        raise Invalid("schedule.anchor_us", f"is required by {what}: the instant to count from")
    return schedule.anchor_us
