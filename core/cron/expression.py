"""A whole cron line: fields by position, shorthands, and the search for matching wall times.

Wall times are seconds since 1970-01-01T00:00 on the wall (core/civil.py). The search knows nothing of zones: the
mapping to instants is core/firetimes.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from core.civil import DAY_S, END_DAY, END_S, FIRST_DAY, MONTH_SHAPE, month_of_day
from core.cron.days import days_by_shape, live_months
from core.cron.fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    YEAR,
    full_mask,
    range_mask,
)
from core.cron.slots import Slots
from core.cron.times import ALL_HOURS, SIXTY, TimesOfDay, bits_around
from core.cron.tokens import FieldText, Values
from core.errors import Invalid

MAX_LENGTH = 256
MAX_EVERY_S = 100 * 366 * DAY_S

_FIVE = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
_LAYOUTS = {5: _FIVE, 6: (SECOND, *_FIVE), 7: (SECOND, *_FIVE, YEAR)}
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DURATION = re.compile(r"(?:([0-9]{1,10})h)?(?:([0-9]{1,10})m)?(?:([0-9]{1,10})s)?")


@dataclass(frozen=True, slots=True)
class EveryLine:
    """`@every 1h30m`: elapsed time, counted from the schedule's anchor."""

    every_s: int


@dataclass(frozen=True, slots=True)
class CronLine:
    """The parsed fields as bit masks. `wildcard` lines (minute or hour starts with `*`) follow real elapsed time.

    `days` holds a mask for each shape that a month can have; bit m of `live` says that month m has matching days.
    `of_minutes` is true for lines that were written without a field for seconds.
    """

    seconds: int
    minutes: int
    hours: int
    days: tuple[int, ...]
    live: int = field(repr=False)
    wildcard: bool
    of_minutes: bool = field(default=False, compare=False)

    def wall_from(self, wall_s: int, until_s: int) -> int | None:
        """The first matching wall time in [wall_s, until_s)."""
        if wall_s < 0:
            wall_s = 0
        day, second = divmod(wall_s, DAY_S)
        if day >= END_DAY:
            return None
        month = month_of_day(day)
        later = self._month_days(month) >> day - FIRST_DAY[month]
        if later & 1:
            found = self._time_from(second)
            if found is not None:
                wall_s = day * DAY_S + found
                return wall_s if wall_s < until_s else None
        later &= ~1
        if not later:
            following = self.live >> month + 1
            if not following:
                return None
            month += 1 + _lowest(following)
            day = FIRST_DAY[month]
            if day * DAY_S >= until_s:
                return None
            later = self.days[MONTH_SHAPE[month]]
        wall_s = (day + _lowest(later)) * DAY_S + self._first_time()
        return wall_s if wall_s < until_s else None

    def wall_upto(self, wall_s: int, since_s: int) -> int | None:
        """The last matching wall time in [since_s, wall_s]."""
        if wall_s >= END_S:
            wall_s = END_S - 1
        if wall_s < 0:
            return None
        day, second = divmod(wall_s, DAY_S)
        month = month_of_day(day)
        position = day - FIRST_DAY[month]
        earlier = self._month_days(month) & (2 << position) - 1
        if earlier >> position:
            found = self._time_upto(second)
            if found is not None:
                wall_s = day * DAY_S + found
                return wall_s if wall_s >= since_s else None
            earlier &= (1 << position) - 1
        if not earlier:
            preceding = self.live & (1 << month) - 1
            if not preceding or FIRST_DAY[month] * DAY_S <= since_s:
                return None
            month = _highest(preceding)
            earlier = self.days[MONTH_SHAPE[month]]
        wall_s = (FIRST_DAY[month] + _highest(earlier)) * DAY_S + self._last_time()
        return wall_s if wall_s >= since_s else None

    @property
    def times_of_day(self) -> TimesOfDay:
        """The times at which the line matches on each of its days."""
        return TimesOfDay(self.hours, self.minutes, self.seconds)

    def seconds_around(self, wall_s: int) -> tuple[int, int] | None:
        """[first, end) of matching seconds on end around `wall_s`, as far as is cheaply seen; None where it is none."""
        day, second_of_day = divmod(wall_s, DAY_S)
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        days = self.days_around(day)
        if days is None or not (self.hours >> hour & self.minutes >> minute & self.seconds >> second & 1):
            return None
        if self.seconds != SIXTY:
            mask, bit, unit = self.seconds, second, 1
        elif self.minutes != SIXTY:
            mask, bit, unit = self.minutes, minute, 60
        elif self.hours != ALL_HOURS:
            mask, bit, unit = self.hours, hour, 3600
        else:
            return days[0] * DAY_S, days[1] * DAY_S
        first, end = bits_around(mask, bit)
        base = wall_s // unit * unit - bit * unit
        return base + first * unit, base + end * unit

    def days_around(self, day: int) -> tuple[int, int] | None:
        """[first, end) of matching days on end around `day`, inside its month; None where it is none."""
        if not 0 <= day < END_DAY:
            return None
        month = month_of_day(day)
        start = FIRST_DAY[month]
        days = self._month_days(month)
        if not days >> day - start & 1:
            return None
        first, end = bits_around(days, day - start)
        return start + first, start + end

    def _month_days(self, month: int) -> int:
        return self.days[MONTH_SHAPE[month]] if self.live >> month & 1 else 0

    def _time_from(self, second_of_day: int) -> int | None:
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (later := self.seconds >> second):
                return second_of_day + _lowest(later)
            if later := self.minutes >> minute + 1:
                return hour * 3600 + (minute + 1 + _lowest(later)) * 60 + _lowest(self.seconds)
        if later := self.hours >> hour + 1:
            return (hour + 1 + _lowest(later)) * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)
        return None

    def _time_upto(self, second_of_day: int) -> int | None:
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (earlier := self.seconds & (2 << second) - 1):
                return hour * 3600 + minute * 60 + _highest(earlier)
            if earlier := self.minutes & (1 << minute) - 1:
                return hour * 3600 + _highest(earlier) * 60 + _highest(self.seconds)
        if earlier := self.hours & (1 << hour) - 1:
            return _highest(earlier) * 3600 + _highest(self.minutes) * 60 + _highest(self.seconds)
        return None

    def _first_time(self) -> int:
        return _lowest(self.hours) * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)

    def _last_time(self) -> int:
        return _highest(self.hours) * 3600 + _highest(self.minutes) * 60 + _highest(self.seconds)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1


def parse_line(text: str, path: str = "cron", hash_key: str | None = None) -> CronLine | EveryLine:
    """Parse one cron line. Raises Invalid(field, rule): field is `path`, or `path.minute` and the like.

    `hash_key` chooses the slots of `H`; the same key always gives the same slots.
    """
    if len(text) > MAX_LENGTH:
        raise Invalid(path, f"must be at most {MAX_LENGTH} characters long, not {len(text)}")
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        raise Invalid(path, "must be printable ASCII on one line")
    words = text.split()
    if not words:
        raise Invalid(path, "must not be empty: five fields (minute hour day month weekday), or six, or seven")
    if "=" in text:
        raise Invalid(path, "takes no TZ= or CRON_TZ= prefix: the zone has a field of its own")
    if words[0].startswith("@"):
        return _parse_shorthand(words, path, hash_key)
    return _parse_fields(words, path, hash_key)


def _parse_shorthand(words: list[str], path: str, hash_key: str | None) -> CronLine | EveryLine:
    name = words[0].lower()
    if name == "@every":
        if len(words) != 2:
            raise Invalid(path, "@every takes one duration, such as @every 1h30m or @every 2s")
        return EveryLine(_parse_duration(words[1], path))
    if name not in _SHORTHANDS or len(words) != 1:
        raise Invalid(path, f"a shorthand is one of {', '.join(_SHORTHANDS)}, or @every with a duration")
    return _parse_fields(_SHORTHANDS[name].split(), path, hash_key)


def _parse_duration(text: str, path: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    every_s = hours * 3600 + minutes * 60 + seconds
    if not 1 <= every_s <= MAX_EVERY_S:
        raise Invalid(
            path, "the duration of @every is whole hours, minutes and seconds such as 1h30m, from 1s to 100 years"
        )
    return every_s


def _parse_fields(words: list[str], path: str, hash_key: str | None) -> CronLine:
    layout = _LAYOUTS.get(len(words))
    if layout is None:
        raise Invalid(
            path,
            f"has {len(words)} fields; takes 5 (minute hour day month weekday), 6 (second first) or 7 (and year last)",
        )
    slots = Slots(hash_key)
    fields = {
        spec.name: FieldText(spec, word, f"{path}.{spec.name}", slots) for spec, word in zip(layout, words, strict=True)
    }
    month_days, weekdays = fields[DAY_OF_MONTH.name], fields[DAY_OF_WEEK.name]
    days = days_by_shape(tuple(month_days.items()), tuple(weekdays.items()), month_days.starred or weekdays.starred)
    years = _mask(fields[YEAR.name]) if YEAR.name in fields else full_mask(YEAR)
    line = CronLine(
        seconds=_mask(fields[SECOND.name]) if SECOND.name in fields else 1,
        minutes=_mask(fields[MINUTE.name]),
        hours=_mask(fields[HOUR.name]),
        days=days,
        live=live_months(days, _mask(fields[MONTH.name]), years),
        wildcard=fields[MINUTE.name].starred or fields[HOUR.name].starred,
        of_minutes=SECOND.name not in fields,
    )
    if not line.live:
        raise Invalid(
            month_days.path,
            "never fires: no such day exists in the months and years chosen",
        )
    return line


def _mask(field: FieldText) -> int:
    mask = 0
    for item in field.items():
        if isinstance(item, Values):  # other items exist in day fields only
            mask |= range_mask(field.spec, item.first, item.last, item.step)
    return mask
