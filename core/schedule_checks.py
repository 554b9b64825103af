"""The rules that each field of a Schedule keeps by itself: types, bounds, numbers of entries. Pure.

Called by core/schedule.py while one is built. What lines, dates and zones may say is checked where they are parsed.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from core.civil import DAY_S, END_US
from core.clock import US_PER_S
from core.errors import Invalid
from core.firetimes import GapRule, RepeatRule
from core.intervals import Every

if TYPE_CHECKING:
    from core.schedule import Schedule

MAX_INSTANTS = 64
MAX_INTERVALS = 16
MAX_LINES = 16
MAX_EXCLUDED_DATES = 256
MAX_EXCLUDED_LINES = 8
MAX_CALENDARS = 8
MAX_RUNS = 100_000
MAX_JITTER_US = DAY_S * US_PER_S
MAX_HASH_KEY = 256

_CALENDAR_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_OPTIONAL_INSTANTS = ("anchor_us", "start_us", "end_us")
_LISTS: dict[str, tuple[type, str, int]] = {
    "at_us": (int, "instants", MAX_INSTANTS),
    "every": (Every, "intervals", MAX_INTERVALS),
    "cron": (str, "cron lines", MAX_LINES),
    "exclude_dates": (str, "dates", MAX_EXCLUDED_DATES),
    "exclude_cron": (str, "cron lines", MAX_EXCLUDED_LINES),
    "exclude_calendars": (str, "calendars", MAX_CALENDARS),
    "windows": (str, "calendars", MAX_CALENDARS),
}


def check_types(schedule: Schedule) -> None:
    """Raise Invalid unless every field is of its type, and every list within its length."""
    for name in (*_OPTIONAL_INSTANTS, "max_runs", "jitter_us"):
        value = getattr(schedule, name)
        if not _is_whole(value) and not (value is None and name in _OPTIONAL_INSTANTS):
            unit = "" if name == "max_runs" else " of microseconds"
            raise Invalid(f"schedule.{name}", f"must be a whole number{unit}")
    for name in ("zone", "hash_key"):
        if not isinstance(getattr(schedule, name), str):
            raise Invalid(f"schedule.{name}", "must be text")
    for name, (kind, words, most) in _LISTS.items():
        _check_list(name, getattr(schedule, name), kind, words, most)
    _check_word("gap", schedule.gap, GapRule)
    _check_word("repeat", schedule.repeat, RepeatRule)


def check_bounds(schedule: Schedule) -> None:
    """Raise Invalid unless every number and name is within its bounds."""
    instants = [(name, getattr(schedule, name)) for name in _OPTIONAL_INSTANTS]
    instants += [(f"at_us[{index}]", value) for index, value in enumerate(schedule.at_us)]
    for name, value in instants:
        if value is not None and not 0 <= value < END_US:
            rule = "must lie between 1970-01-01 and 2199-12-31, in microseconds since the epoch"
            raise Invalid(f"schedule.{name}", rule)
    for index, every in enumerate(schedule.every):
        every.check(f"schedule.every[{index}]")
    if not (schedule.at_us or schedule.every or schedule.cron):
        raise Invalid("schedule", "must have at least one of at_us, every and cron")
    if schedule.start_us is not None and schedule.end_us is not None and schedule.end_us <= schedule.start_us:
        raise Invalid("schedule.end_us", "must be later than start_us")
    if len(schedule.hash_key) > MAX_HASH_KEY or not schedule.hash_key.isprintable():
        raise Invalid("schedule.hash_key", f"must be at most {MAX_HASH_KEY} printable characters")
    if not 0 <= schedule.max_runs <= MAX_RUNS:
        raise Invalid("schedule.max_runs", f"must be 0 to {MAX_RUNS}")
    if not 0 <= schedule.jitter_us <= MAX_JITTER_US:
        raise Invalid("schedule.jitter_us", "must be from 0 to 24 hours")
    for name in ("exclude_calendars", "windows"):
        _check_names(f"schedule.{name}", getattr(schedule, name))


def _check_list(name: str, values: Any, kind: type, words: str, most: int) -> None:
    path = f"schedule.{name}"
    if not isinstance(values, (tuple, list)):
        raise Invalid(path, f"must be a list of {words}")
    if len(values) > most:
        raise Invalid(path, f"must be at most {most} {words}, not {len(values)}")
    for index, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Invalid(f"{path}[{index}]", f"is not of the kind that a list of {words} takes")


def _check_word(name: str, value: object, kind: type[StrEnum]) -> None:
    if not isinstance(value, str) or value not in list(kind):
        raise Invalid(f"schedule.{name}", f"must be one of {', '.join(kind)}")


def _check_names(path: str, names: tuple[str, ...]) -> None:
    for index, name in enumerate(names):
        if not _CALENDAR_NAME.match(name):
            raise Invalid(f"{path}[{index}]", "is not the name of a calendar")
        if name in names[:index]:
            raise Invalid(f"{path}[{index}]", f"names {name} again")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
