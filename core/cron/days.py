"""Day-of-month and day-of-week together: which days of a month match, for each of the 28 shapes a month can have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from core.civil import MONTH_COUNT, MONTH_SHAPE, SHAPE_COUNT, shape_parts
from core.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, YEAR, full_mask, range_mask
from core.cron.tokens import Item, LastDay, NearestWeekday, NthWeekday, Values


@lru_cache(maxsize=4096)
def days_by_shape(month_days: tuple[Item, ...], weekdays: tuple[Item, ...], either_starred: bool) -> tuple[int, ...]:
    """For each month shape, the matching days; bit d stands for day d + 1 of the month.

    The fields are joined by OR, unless one of them starts with `*`: then by AND, as cron(8) has it.
    """
    masks = []
    for shape in range(SHAPE_COUNT):
        first_weekday, length = shape_parts(shape)
        by_day = _month_day_mask(month_days, first_weekday, length)
        by_weekday = _weekday_mask(weekdays, first_weekday, length)
        joined = by_day & by_weekday if either_starred else by_day | by_weekday
        masks.append(joined & ((1 << length) - 1))
    return tuple(masks)


_ALL_MONTHS = (1 << MONTH_COUNT) - 1
_OF_SHAPE = tuple(sum(1 << m for m in range(MONTH_COUNT) if MONTH_SHAPE[m] == shape) for shape in range(SHAPE_COUNT))
_OF_YEAR = tuple(sum(1 << m for m in range(number, MONTH_COUNT, 12)) for number in range(12))


@lru_cache(maxsize=4096)
def live_months(days: tuple[int, ...], months: int, years: int) -> int:
    """The months (bit m: month m since January 1970) that have matching days.

    `days` is what days_by_shape gives, `months` and `years` are the masks of their fields.
    """
    by_shape = by_number = 0
    for shape, mask in enumerate(days):
        if mask:
            by_shape |= _OF_SHAPE[shape]
    for number in range(12):
        if months >> number + 1 & 1:
            by_number |= _OF_YEAR[number]
    by_year = _ALL_MONTHS
    if years != full_mask(YEAR):
        by_year = sum(0xFFF << 12 * year for year in range(years.bit_length()) if years >> year & 1)
    return by_shape & by_number & by_year


def _month_day_mask(items: Iterable[Item], first_weekday: int, length: int) -> int:
    mask = 0
    for item in items:
        match item:
            case Values():
                mask |= range_mask(DAY_OF_MONTH, item.first, item.last, item.step) >> 1
            case LastDay(back) if back < length:
                mask |= 1 << (length - back - 1)
            case NearestWeekday(day) if day is None or day <= length:
                mask |= 1 << (_nearest_weekday(day, first_weekday, length) - 1)
            case _:
                pass  # a day that this month is too short for
    return mask


def _nearest_weekday(day: int | None, first_weekday: int, length: int) -> int:
    """The Monday to Friday nearest to `day` without leaving the month; the last one of the month where day is None."""
    wanted = length if day is None else day
    weekday = (first_weekday + wanted - 1) % 7
    if weekday == 6:
        return wanted - 1 if wanted > 1 else wanted + 2
    if weekday == 0:
        return wanted + 1 if wanted < length else wanted - 2
    return wanted


def _weekday_mask(items: Iterable[Item], first_weekday: int, length: int) -> int:
    mask = 0
    for item in items:
        match item:
            case Values():
                week = range_mask(DAY_OF_WEEK, item.first, item.last, item.step)
                mask |= sum(1 << day for day in range(length) if week >> (first_weekday + day) % 7 & 1)
            case NthWeekday(weekday, nth):
                first = (weekday - first_weekday) % 7
                last = first + (length - 1 - first) // 7 * 7
                day = last if nth is None else first + (nth - 1) * 7
                mask |= 1 << day
            case _:
                pass
    return mask
