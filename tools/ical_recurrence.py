"""When events of an iCalendar file recur: exactly as a rule of ours where there is one, else expanded. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

from dateutil.rrule import rrulestr

from core.clock import US_PER_S
from tools.ical_values import IcalEvent, Span, Timed, Unkept, wall_time

_MOST = 5_000
_CLOSE = frozenset({"HOURLY", "MINUTELY", "SECONDLY"})
_CRON_DAYS = {"SU": 0, "MO": 1, "TU": 2, "WE": 3, "TH": 4, "FR": 5, "SA": 6}
_MOST_YEARLY_DAYS = 31
_LONGEST_WINDOW_US = 31 * 86_400 * US_PER_S


def yearly_days(event: IcalEvent, span: Span, moved: list[Any], from_year: int) -> list[str]:
    """The event's days as `*-MM-DD`, where it is every year on the same ones; else nothing."""
    rule = _plain_rule(event, moved)
    if rule.get("FREQ") != "YEARLY" or span.first.year > from_year:
        return []
    same = {"BYMONTH": span.first.month, "BYMONTHDAY": span.first.day}
    more = [key for key in rule if key not in ("FREQ", "WKST")]
    if any(key not in same or [int(value) for value in rule[key]] != [same[key]] for key in more):
        return []
    days = [span.first + timedelta(days=n) for n in range((span.last - span.first).days + 1)]
    crosses_leap_day = len(days) > 1 and any((day.month, day.day) in {(2, 28), (2, 29)} for day in days)
    if len(days) > _MOST_YEARLY_DAYS or crosses_leap_day:
        return []
    return [f"*-{day.month:02d}-{day.day:02d}" for day in days]


def window_line(event: IcalEvent, span: Timed, moved: list[Any], from_year: int) -> str | None:
    """The cron line of an event that recurs daily, or weekly on named days, for ever; None for every other one."""
    rule = _plain_rule(event, moved)
    days = rule.get("BYDAY", [])
    extra = set(rule) - {"FREQ", "BYDAY", "WKST"}
    if extra or span.begins.year > from_year or span.duration_us > _LONGEST_WINDOW_US or span.duration_us < US_PER_S:
        return None
    if rule.get("FREQ") == "DAILY" and not days:
        named = "*"
    elif rule.get("FREQ") == "WEEKLY" and all(day in _CRON_DAYS for day in days):
        numbers = {_CRON_DAYS[day] for day in days} or {span.begins.isoweekday() % 7}
        named = ",".join(str(number) for number in sorted(numbers))
    else:
        return None
    seconds = f"{span.begins.second} " if span.begins.second else ""
    return f"{seconds}{span.begins.minute} {span.begins.hour} * * {named}"


def occurrences_of_event(
    event: IcalEvent, begins: datetime, moved: list[Any], until_year: int, *, zone: str = ""
) -> list[datetime]:
    """The wall times of the event's occurrences up to the end of a year; events that stand for themselves left out.

    Raises Unkept for what recurs more often than daily, or too often.
    """
    bound = datetime(until_year, 12, 31, 23, 59, 59)
    found = {begins} | set(_walls(event, "RDATE", zone))
    for rule in _rules(event):
        found |= set(_expanded(rule, begins, bound, zone))
    gone = set(_walls(event, "EXDATE", zone)) | {_wall(value, zone) for value in moved}
    kept = sorted(each for each in found - gone if each <= bound)
    if len(kept) > _MOST:
        raise Unkept(f"recurs more than {_MOST} times: a lower --until-year would do")
    return kept


def _expanded(rule: Any, begins: datetime, bound: datetime, zone: str) -> Iterable[datetime]:
    rule = dict(rule)
    frequency = str(rule.get("FREQ", [""])[0])
    if frequency in _CLOSE:
        raise Unkept(f"recurs more often than daily ({frequency})")
    until = rule.pop("UNTIL", None)
    if until:
        bound = min(bound, _last_moment(until[0], zone))
    text = ";".join(f"{key}={','.join(str(value) for value in values)}" for key, values in rule.items())
    expanded = rrulestr(f"RRULE:{text}", dtstart=begins)
    found: list[datetime] = []
    for each in expanded:
        if each > bound or len(found) > _MOST:
            break
        found.append(each)
    return found


def _last_moment(until: Any, zone: str) -> datetime:
    if isinstance(until, datetime):
        return wall_time(until, zone or "UTC")
    return datetime(until.year, until.month, until.day, 23, 59, 59)


def _plain_rule(event: IcalEvent, moved: list[Any]) -> dict[str, Any]:
    """The parts of the event's one rule, where nothing but that rule decides; empty otherwise.

    INTERVAL=1 says nothing, and is left out.
    """
    rules = _rules(event)
    if len(rules) != 1 or moved or any(name in event for name in ("EXDATE", "RDATE", "EXRULE", "RECURRENCE-ID")):
        return {}
    rule = {key: values for key, values in dict(rules[0]).items() if key != "INTERVAL" or int(values[0]) != 1}
    return {**rule, "FREQ": str(rule["FREQ"][0])} if "FREQ" in rule else {}


def _rules(event: IcalEvent) -> list[Any]:
    if "EXRULE" in event:
        raise Unkept("has an EXRULE, which is not kept")
    rules = event.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _walls(event: IcalEvent, name: str, zone: str) -> list[datetime]:
    values = event.get(name, [])
    lists = values if isinstance(values, list) else [values]
    return [_wall(each.dt, zone) for one in lists for each in one.dts]


def _wall(value: Any, zone: str) -> datetime:
    if isinstance(value, datetime):
        return wall_time(value, zone) if zone else value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    raise Unkept("has a RDATE with periods, which is not kept")
