"""What a schedule excludes: days in its zone, and the instants that cron lines name. Pure.

Every exclusion answers for one instant with the stretch around it that is certainly taken away, so that searches
(core/search.py) jump over whole days and hours instead of looking at each occurrence. A stretch never reaches beyond
the offset of the zone that holds at the instant: inside it walls and instants run in step.

An exclusion line is read under the gap and repeat rules of the schedule, and names whole seconds; one of five fields
names every second of its minutes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from core.civil import DAY_S
from core.clock import US_PER_S
from core.cron import CronLine, EveryLine, parse_line
from core.cron.times import SIXTY
from core.daysets import DaySet, NamedDays
from core.errors import Invalid
from core.firetimes import Source, Zoned
from core.zones import ZoneTable, zone_table

if TYPE_CHECKING:
    from core.schedule import Schedule


class Stretch(NamedTuple):
    """The instants in [from_us, until_us); `steps` says what it cost to find them beyond the remover's `cost`."""

    from_us: int
    until_us: int
    steps: int = 0


class Remover(Protocol):
    """Takes instants away."""

    @property
    def cost(self) -> int:
        """What asking for one instant costs, in steps of a search."""
        ...

    def stretch(self, instant_us: int) -> Stretch | None:
        """A stretch around the instant of which every instant is taken away; None where it is not taken away."""
        ...

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        """A longer stretch of which every instant that `source` names is taken away, where one is known."""
        ...

    def words(self, instant_us: int) -> str:
        """What takes away the instant, which is taken away."""
        ...


class OffDays:
    """Takes away whole days of a zone."""

    cost = 1

    def __init__(self, days: DaySet, table: ZoneTable, label: str) -> None:
        self.days = days
        self._table = table
        self._label = label  # with {} for what names the day

    def stretch(self, instant_us: int) -> Stretch | None:
        second = instant_us // US_PER_S
        index = self._table.index(second)
        offset = self._table.offsets_s[index]
        run = self.days.run((second + offset) // DAY_S)
        if run is None:
            return None
        first_s = max(run[0] * DAY_S - offset, self._table.starts_s[index])
        end_s = min(run[1] * DAY_S - offset, self._table.starts_s[index + 1])
        return Stretch(first_s * US_PER_S, end_s * US_PER_S)

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        return None

    def words(self, instant_us: int) -> str:
        second = instant_us // US_PER_S
        day = (second + self._table.offsets_s[self._table.index(second)]) // DAY_S
        return self._label.format(self.days.words(day))


class ExcludedLine:
    """Takes away the seconds that a cron line names."""

    cost = 1

    def __init__(self, text: str, line: CronLine, zoned: Zoned) -> None:
        self._text = text
        self.line = line
        self._zoned = zoned

    def stretch(self, instant_us: int) -> Stretch | None:
        second = instant_us // US_PER_S
        part = self._zoned.part(second)
        if part.opens_s <= second < part.closes_s:
            run = self.line.seconds_around(second + part.offset_s)
            if run is not None:
                first_s = max(run[0] - part.offset_s, part.opens_s)
                end_s = min(run[1] - part.offset_s, part.closes_s)
                return Stretch(first_s * US_PER_S, end_s * US_PER_S)
        if self._zoned.makes_up(second):
            return Stretch(second * US_PER_S, (second + 1) * US_PER_S)
        return None

    def source_stretch(self, instant_us: int, source: Source) -> Stretch | None:
        """The days of the line, for a source whose times of day are all among the line's."""
        times = source.times_of_day
        if times is None or not self.line.times_of_day.cover(times):
            return None
        second = instant_us // US_PER_S
        part = self._zoned.part(second)
        # Where the source makes up for a gap its wall times are not those that the wall shows.
        opens_s = max(part.opens_s, part.made_up_until_s)
        if not opens_s <= second < part.closes_s:
            return None
        run = self.line.days_around((second + part.offset_s) // DAY_S)
        if run is None:
            return None
        first_s = max(run[0] * DAY_S - part.offset_s, opens_s)
        end_s = min(run[1] * DAY_S - part.offset_s, part.closes_s)
        return Stretch(first_s * US_PER_S, end_s * US_PER_S)

    def words(self, instant_us: int) -> str:
        return f"line {self._text}"


def exclusions_of(schedule: Schedule) -> tuple[Remover, ...]:
    """What the schedule itself excludes: its dates, then its lines. Raises Invalid for what cannot be read."""
    table = zone_table(schedule.zone)
    removers: list[Remover] = []
    if schedule.exclude_dates:
        days = DaySet([NamedDays(text) for text in schedule.exclude_dates], "schedule.exclude_dates")
        removers.append(OffDays(days, table, "date {}"))
    for index, text in enumerate(schedule.exclude_cron):
        path = f"schedule.exclude_cron[{index}]"
        line = parse_line(text, path, schedule.hash_key or None)
        if isinstance(line, EveryLine):
            raise Invalid(path, "must be a line of fields: @every excludes nothing")
        if line.of_minutes:
            line = replace(line, seconds=SIXTY)
        removers.append(ExcludedLine(text, line, Zoned(line, table, schedule.gap, schedule.repeat)))
    return tuple(removers)
