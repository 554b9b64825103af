"""What the calendars of a schedule do to its occurrences: days off, windows that skip, windows that put off. Pure.

Built once for a version of a job by core/occurrences.py, and asked for every occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.calendar_checks import day_set
from core.calendars import CalendarContent, DaysOff, WindowAction
from core.civil import END_US
from core.daysets import DaySet
from core.exclusions import OffDays, Remover
from core.schedule import Schedule
from core.search import Search
from core.windows import Deferral, DeferredAway, InWindows, WindowSet
from core.zones import zone_table

Compiled = DaySet | WindowSet
"""What a calendar says, ready to be asked. It hangs on the content and the calendar's name alone."""


def compiled(name: str, content: CalendarContent) -> Compiled:
    """The content of the calendar `name`, ready to be asked. Raises Invalid for texts that cannot be read."""
    return day_set(content) if isinstance(content, DaysOff) else WindowSet(name, content)


class Shaping:
    """The removers of a schedule with its calendars, its deferral (None without one), and the search over them.

    `calendars` holds what the schedule's names stand for; a name that is missing there has no effect.
    """

    def __init__(self, schedule: Schedule, calendars: Mapping[str, Compiled]) -> None:
        end_us = END_US if schedule.end_us is None else schedule.end_us
        removers: list[Remover] = list(schedule.exclusions)
        table = zone_table(schedule.zone)
        for name in schedule.exclude_calendars:
            days = calendars.get(name)
            if isinstance(days, DaySet):
                removers.append(OffDays(days, table, f"calendar {name} ({{}})"))
        windows = [found for name in schedule.windows if isinstance(found := calendars.get(name), WindowSet)]
        skip = [each for each in windows if each.action is WindowAction.SKIP]
        defer = [each for each in windows if each.action is WindowAction.DEFER]
        skipping = InWindows(skip) if skip else None
        self.deferral = Deferral(defer) if defer else None
        if skipping is not None:
            removers.append(skipping)
        if self.deferral is not None:
            removers.append(DeferredAway(self.deferral, skipping, end_us))
        self.removers = tuple(removers)
        self.search = Search(schedule.sources, removers, schedule.start_us or 0, end_us)
