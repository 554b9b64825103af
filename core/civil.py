"""The civil calendar from 1970 to 2199 as tables: what the cron walk reads instead of building dates.

Wall times are integers too: seconds since 1970-01-01T00:00 on the wall of some zone, with no zone in them. Used by
core/cron and core/firetimes.py; it knows nothing of zones.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from itertools import accumulate

from core.clock import US_PER_S

FIRST_YEAR = 1970
LAST_YEAR = 2199
DAY_S = 86_400


_MONTHS = tuple(monthrange(year, month) for year in range(FIRST_YEAR, LAST_YEAR + 1) for month in range(1, 13))

MONTH_COUNT = len(_MONTHS)
"""Months are numbered from January 1970 = 0."""

FIRST_DAY = (0, *accumulate(days for _, days in _MONTHS))
"""Days since the epoch at the first of each month; one entry past the end."""

SHAPE_COUNT = 28
MONTH_SHAPE = bytes((weekday + 1) % 7 * 4 + days - 28 for weekday, days in _MONTHS)
"""A month's shape: weekday of its first (Sunday = 0) times 4, plus its length less 28. All that day fields can ask."""

END_DAY = FIRST_DAY[MONTH_COUNT]
END_S = END_DAY * DAY_S
END_US = END_S * US_PER_S
"""2200-01-01T00:00:00Z: no schedule has an occurrence at or after it."""


def month_of_day(day: int) -> int:
    """The number of the month that holds `day` (0 <= day < END_DAY)."""
    return bisect_right(FIRST_DAY, day) - 1


def shape_parts(shape: int) -> tuple[int, int]:
    """(weekday of the first, Sunday = 0; number of days) of a month shape."""
    weekday, extra = divmod(shape, 4)
    return weekday, extra + 28
