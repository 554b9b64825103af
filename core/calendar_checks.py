"""What the content of a calendar may say. Pure; called by the API before one is stored.

Every text in it is read by the code that evaluates it later, so that what is accepted can be computed with.
"""

from __future__ import annotations

from core.calendars import CalendarContent, DaysOff, Window, WindowAction, Windows
from core.civil import DAY_S, END_US
from core.clock import US_PER_S
from core.daysets import DaySet, NamedDays
from core.errors import Invalid
from core.windows import recurring
from core.zones import UTC_NAME, zone

MAX_DAYS = 5_000
MAX_WORKING = 500
MAX_WINDOWS = 500
MAX_RECURRING_WINDOWS = 16
"""Each is looked at for every occurrence, so that a search of a schedule with eight calendars stays bounded."""
MAX_DURATION_US = 31 * DAY_S * US_PER_S
MAX_NAME = 128


def check_content(content: CalendarContent, path: str = "content") -> None:
    """Raise Invalid, with a field such as `content.days[3].date` or `content.windows[2].cron.minute`, unless sound."""
    if isinstance(content, DaysOff):
        _check_days_off(content, path)
    else:
        _check_windows(content, path)


def day_set(content: DaysOff, path: str = "content") -> DaySet:
    """The days as a set. Raises Invalid for texts that are no dates."""
    days = [NamedDays(day.date, day.name) for day in content.days]
    return DaySet(
        days,
        f"{path}.days",
        part=".date",
        weekdays=content.weekdays,
        working=content.working,
        working_path=f"{path}.working",
    )


def _check_days_off(content: DaysOff, path: str) -> None:
    if not (content.weekdays or content.days or content.working):
        raise Invalid(path, "must have at least one of weekdays, days and working")
    for index, weekday in enumerate(content.weekdays):
        if not 0 <= weekday <= 6:
            raise Invalid(f"{path}.weekdays[{index}]", "must be 0 (Sunday) to 6")
    if len(content.weekdays) > 7:
        raise Invalid(f"{path}.weekdays", "must be at most 7 days")
    if len(content.days) > MAX_DAYS:
        raise Invalid(f"{path}.days", f"must be at most {MAX_DAYS} entries, not {len(content.days)}")
    if len(content.working) > MAX_WORKING:
        raise Invalid(f"{path}.working", f"must be at most {MAX_WORKING} dates, not {len(content.working)}")
    for index, day in enumerate(content.days):
        if day.name:
            _check_name(day.name, f"{path}.days[{index}].name")
    day_set(content, path)


def _check_windows(content: Windows, path: str) -> None:
    if content.action not in list(WindowAction):
        raise Invalid(f"{path}.action", "must be SKIP or DEFER")
    if not 1 <= len(content.windows) <= MAX_WINDOWS:
        raise Invalid(f"{path}.windows", f"must be 1 to {MAX_WINDOWS} windows, not {len(content.windows)}")
    if sum(bool(window.cron) for window in content.windows) > MAX_RECURRING_WINDOWS:
        raise Invalid(f"{path}.windows", f"at most {MAX_RECURRING_WINDOWS} of them may recur by a cron line")
    for index, window in enumerate(content.windows):
        at = f"{path}.windows[{index}]"
        _check_name(window.name, f"{at}.name")
        if window.cron:
            _check_recurring(window, at)
        else:
            _check_fixed(window, at)


def _check_recurring(window: Window, path: str) -> None:
    if window.from_us is not None or window.to_us is not None:
        raise Invalid(path, "must have either from and to, or cron and duration")
    if window.duration_us is None:
        raise Invalid(f"{path}.duration_us", "is required with cron")
    if not US_PER_S <= window.duration_us <= MAX_DURATION_US:
        raise Invalid(f"{path}.duration_us", "must be from 1 second to 31 days")
    zone(window.zone, field=f"{path}.zone")
    recurring(window, path)


def _check_fixed(window: Window, path: str) -> None:
    if window.duration_us is not None:
        raise Invalid(f"{path}.duration_us", "goes with cron")
    if window.zone not in ("", UTC_NAME):
        raise Invalid(f"{path}.zone", "goes with cron")
    for name, value in (("from_us", window.from_us), ("to_us", window.to_us)):
        if value is None:
            raise Invalid(f"{path}.{name}", "is required without cron")
        if not 0 <= value < END_US:
            raise Invalid(f"{path}.{name}", "must lie between 1970-01-01 and 2199-12-31")
    if (window.from_us or 0) >= (window.to_us or 0):
        raise Invalid(f"{path}.to_us", "must be later than from")


def _check_name(name: str, path: str) -> None:
    if len(name) > MAX_NAME or not name.isprintable():
        raise Invalid(path, f"must be at most {MAX_NAME} printable characters")
