"""Days that are named by date: the texts, and the set of civil days that many of them make. Pure; knows no zones.

Days are numbered from 1970-01-01 = 0 (core/civil.py). Used for the excluded dates of schedules (core/exclusions.py) and
the days off of calendars (core/calendars.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from typing import NamedTuple

from core.civil import END_DAY, FIRST_DAY, FIRST_YEAR, LAST_YEAR, month_of_day
from core.errors import Invalid

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_EPOCH_WEEKDAY = 4  # 1970-01-01 was a Thursday
_LONGEST_LOOK = 31  # days that are looked at one by one for the end of a run
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_YEARLY = re.compile(r"\*-([0-9]{2})-([0-9]{2})\Z")
_RULE = "must be a date such as 2026-12-24, a range 2026-12-24/2027-01-02, or every year *-12-25"


class NamedDays(NamedTuple):
    """Days as a caller wrote them, and what they are called."""

    date: str
    name: str = ""


class _Span(NamedTuple):
    first: int
    last: int
    named: NamedDays


def parse_date(text: str, path: str, rule: str = "must be a date such as 2026-12-24") -> int:
    """The number of the day. Raises Invalid(path, rule)."""
    if len(text) == 10 and text[4] == text[7] == "-" and text.isascii():
        with suppress(ValueError):
            day = date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
            if 0 <= day < END_DAY:
                return day
            raise Invalid(path, f"takes years from {FIRST_YEAR} to {LAST_YEAR}, not {text[:4]}")
        if _DATE.match(text):
            raise Invalid(path, f"there is no day {text}")
    raise Invalid(path, rule)


def date_text(day: int) -> str:
    """The date of a day as parse_date takes it."""
    month = month_of_day(day)
    return f"{FIRST_YEAR + month // 12}-{month % 12 + 1:02}-{day - FIRST_DAY[month] + 1:02}"


class DaySet:
    """A set of days: dates, ranges, days of every year and days of the week, less single days that are worked.

    Raises Invalid with a field below `path` for texts that are no dates. Never changes once built.
    """

    def __init__(
        self,
        days: Sequence[NamedDays],
        path: str,
        *,
        part: str = "",
        weekdays: Iterable[int] = (),
        working: Sequence[str] = (),
        working_path: str = "",
    ) -> None:
        self._spans: list[_Span] = []
        self._yearly: dict[tuple[int, int], NamedDays] = {}
        for index, named in enumerate(days):
            self._add(named, f"{path}[{index}]{part}")
        self._spans.sort()
        self._starts, self._ends = _merged(self._spans)
        self._week = sum(1 << weekday for weekday in set(weekdays))
        self._working = sorted(parse_date(text, f"{working_path}[{index}]") for index, text in enumerate(working))
        self._worked = frozenset(self._working)

    def run(self, day: int) -> tuple[int, int] | None:
        """[first, end) of days of the set around `day`, as far as is cheaply seen; None where `day` is not in it."""
        if day in self._worked:
            return None
        index = bisect_right(self._starts, day) - 1
        if index >= 0 and day < self._ends[index]:
            first, end = self._starts[index], self._ends[index]
        elif self._week == 0b1111111:
            first, end = -1, END_DAY + 1
        elif self._recurs(day):
            first, end = day, day + 1
            while end - day < _LONGEST_LOOK and self._recurs(end):
                end += 1
            while day - first < _LONGEST_LOOK and self._recurs(first - 1):
                first -= 1
        else:
            return None
        after = bisect_left(self._working, day)
        if after < len(self._working):
            end = min(end, self._working[after])
        if after > 0:
            first = max(first, self._working[after - 1] + 1)
        return first, end

    def words(self, day: int) -> str:
        """What names `day`, which is in the set: the name that it was given, or its date or day of the week."""
        named = self._yearly.get(_month_and_day(day)) if self._yearly else None
        for index in range(bisect_right(self._spans, day, key=lambda span: span.first) - 1, -1, -1):
            if self._spans[index].last >= day:
                named = self._spans[index].named
                break
        if named is None:
            return WEEKDAYS[(day + _EPOCH_WEEKDAY) % 7]
        return named.name or named.date

    def _recurs(self, day: int) -> bool:
        if self._week >> (day + _EPOCH_WEEKDAY) % 7 & 1:
            return True
        return bool(self._yearly) and _month_and_day(day) in self._yearly

    def _add(self, named: NamedDays, path: str) -> None:
        text = named.date
        if text.startswith("*") and (match := _YEARLY.match(text)):
            parse_date(f"2000-{match[1]}-{match[2]}", path, _RULE)  # a leap year: *-02-29 is a day
            self._yearly[int(match[1]), int(match[2])] = named
            return
        start, slash, end = text.partition("/")
        first = parse_date(start, path, _RULE)
        last = parse_date(end, path, _RULE) if slash else first
        if last < first:
            raise Invalid(path, f"the range must not run backwards: {text}")
        self._spans.append(_Span(first, last, named))


def _month_and_day(day: int) -> tuple[int, int]:
    if day < 0:  # still 1969 on a wall west of Greenwich
        return 12, 31
    month = month_of_day(day)
    return month % 12 + 1, day - FIRST_DAY[month] + 1


def _merged(spans: Iterable[_Span]) -> tuple[list[int], list[int]]:
    """Sorted spans as [start, end) of days, those that touch as one."""
    starts: list[int] = []
    ends: list[int] = []
    for first, last, _ in spans:
        if ends and first <= ends[-1]:
            ends[-1] = max(ends[-1], last + 1)
        else:
            starts.append(first)
            ends.append(last + 1)
    return starts, ends
