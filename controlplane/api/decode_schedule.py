"""A Schedule message as a core Schedule, and back. Pure.

Core speaks of its own field names (`schedule.every[0].elapsed_us`, `schedule.cron[0].minute`); what goes out names the
fields of the message. All lines, dates and bounds are checked by core's own value: there is one idea of what a schedule
is. What only a message can get wrong (timestamps, periods, an anchor for nothing) is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2

from controlplane.api.fields import duration_us, instant_us
from controlplane.api.violations import Violations
from core.civil import DAY_S
from core.clock import US_PER_S
from core.errors import Invalid
from core.firetimes import GapRule, RepeatRule
from core.intervals import Every
from core.schedule import Schedule

_MAX_ELAPSED_US: Final = 366 * DAY_S * US_PER_S
_MAX_DAYS: Final = 3660
_MAX_MONTHS: Final = 1200
_DAYS_A_WEEK: Final = 7
# How many entries a list may have, by the path below the message.
_MOST: Final = {
    "at": 64,
    "every": 16,
    "cron": 16,
    "exclude.dates": 256,
    "exclude.cron": 8,
    "exclude.calendars": 8,
    "windows": 8,
}
_CORE_PATH = re.compile(r"schedule(?:\.(?P<name>[a-z_]+)(?P<index>\[\d+\])?(?:\.(?P<part>.+))?)?\Z")
_EVERY_LINE = re.compile(r"[ \t]*@every(?![a-z])", re.IGNORECASE)
# A field that uses `H`: at the field's beginning or after a comma, followed by its range, its step or an end.
_SLOT = re.compile(r"(?:^|[ \t,])h(?=$|[ \t,(/])", re.IGNORECASE)

_GAPS = {
    job_pb2.GAP_RULE_UNSPECIFIED: GapRule.END,
    job_pb2.GAP_RULE_END: GapRule.END,
    job_pb2.GAP_RULE_SHIFT: GapRule.SHIFT,
    job_pb2.GAP_RULE_SKIP: GapRule.SKIP,
}
_REPEATS = {
    job_pb2.REPEAT_RULE_UNSPECIFIED: RepeatRule.FIRST,
    job_pb2.REPEAT_RULE_FIRST: RepeatRule.FIRST,
    job_pb2.REPEAT_RULE_SECOND: RepeatRule.SECOND,
    job_pb2.REPEAT_RULE_BOTH: RepeatRule.BOTH,
}
_SHOWN_GAPS = {rule: number for number, rule in _GAPS.items()}
_SHOWN_REPEATS = {rule: number for number, rule in _REPEATS.items()}


@dataclass(frozen=True, slots=True)
class WantedSchedule:
    """A schedule as it was asked for. Where no anchor was given it counts from the instant of the request, unless
    `following` finds the phase that the job already has."""

    schedule: Schedule
    anchor_given: bool

    def following(self, present: Schedule | None) -> Schedule:
        """The schedule for a job that has `present` now: an edit without an anchor keeps the phase."""
        counts = self.schedule.anchor_us is not None and not self.anchor_given
        if not counts or present is None or present.anchor_us is None:
            return self.schedule
        return replace(self.schedule, anchor_us=present.anchor_us)


def decode_schedule(message: job_pb2.Schedule, at: str, *, now_us: int, hash_key: str) -> WantedSchedule:
    """Read the message; `at` is its path. Raises BadRequest or Invalid."""
    faults = Violations()
    _check_lengths(faults, message, at)
    bounds = {
        name: _instant(faults, getattr(message, name), f"{at}.{name}")
        for name in ("anchor", "start", "end")
        if message.HasField(name)
    }
    at_us = tuple(_instant(faults, value, f"{at}.at[{index}]") for index, value in enumerate(message.at))
    every = tuple(_interval(faults, value, f"{at}.every[{index}]") for index, value in enumerate(message.every))
    jitter_us = 0
    with faults.noted():
        jitter_us = duration_us(message.jitter, f"{at}.jitter")
    _check_shape(faults, message, at)
    faults.refuse()
    start_us, end_us = bounds.get("start"), bounds.get("end")
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise Invalid(f"{at}.end", "must be later than start")
    try:
        schedule = Schedule(
            at_us=tuple(value for value in at_us if value is not None),
            every=every,
            anchor_us=bounds.get("anchor", now_us) if _counts(message) else None,
            cron=tuple(message.cron),
            zone=message.zone,
            start_us=start_us,
            end_us=end_us,
            gap=_GAPS[message.gap],
            repeat=_REPEATS[message.repeat],
            hash_key=hash_key if any(map(_SLOT.search, (*message.cron, *message.exclude.cron))) else "",
            exclude_dates=tuple(message.exclude.dates),
            exclude_cron=tuple(message.exclude.cron),
            exclude_calendars=tuple(message.exclude.calendars),
            windows=tuple(message.windows),
            max_runs=message.max_runs,
            jitter_us=jitter_us,
        )
    except Invalid as fault:
        raise _renamed(fault, at) from None
    return WantedSchedule(schedule, anchor_given="anchor" in bounds)


def encode_schedule(schedule: Schedule) -> job_pb2.Schedule:
    """The message for a stored schedule, with every default spelt out."""
    message = job_pb2.Schedule(
        at=map(timestamp, schedule.at_us),
        every=map(_shown_interval, schedule.every),
        cron=schedule.cron,
        zone=schedule.zone,
        gap=_SHOWN_GAPS[schedule.gap],
        repeat=_SHOWN_REPEATS[schedule.repeat],
        windows=schedule.windows,
        max_runs=schedule.max_runs,
    )
    for name in ("anchor", "start", "end"):
        value_us = getattr(schedule, f"{name}_us")
        if value_us is not None:
            getattr(message, name).CopyFrom(timestamp(value_us))
    if schedule.exclude_dates or schedule.exclude_cron or schedule.exclude_calendars:
        message.exclude.dates.extend(schedule.exclude_dates)
        message.exclude.cron.extend(schedule.exclude_cron)
        message.exclude.calendars.extend(schedule.exclude_calendars)
    if schedule.jitter_us:
        message.jitter.CopyFrom(duration(schedule.jitter_us))
    return message


def timestamp(value_us: int) -> Timestamp:
    """Microseconds since the epoch as a message."""
    seconds, micros = divmod(value_us, US_PER_S)
    return Timestamp(seconds=seconds, nanos=micros * 1000)


def duration(value_us: int) -> Duration:
    """Microseconds as a message."""
    seconds, micros = divmod(value_us, US_PER_S)
    return Duration(seconds=seconds, nanos=micros * 1000)


def _instant(faults: Violations, value: Timestamp, at: str) -> int | None:
    with faults.noted():
        return instant_us(value, at)
    return None


def _interval(faults: Violations, message: job_pb2.Interval, at: str) -> Every:
    """The interval; one whose period is at fault, which is noted, comes back as one of a day."""
    anchor_us = _instant(faults, message.anchor, f"{at}.anchor") if message.HasField("anchor") else None
    period = message.WhichOneof("period")
    if period is None:
        faults.add(at, "must have exactly one of elapsed, days, weeks and months")
    elif period == "elapsed":
        with faults.noted():
            return Every(elapsed_us=_elapsed_us(message.elapsed, f"{at}.elapsed"), anchor_us=anchor_us)
    else:
        count, most = getattr(message, period), _MAX_MONTHS if period == "months" else _MAX_DAYS
        if 1 <= count <= most:
            days = count * _DAYS_A_WEEK if period == "weeks" else count
            return Every(**{"months" if period == "months" else "days": days}, anchor_us=anchor_us)
        faults.add(f"{at}.{period}", f"must lie within 1 and {most}")
    return Every(days=1, anchor_us=anchor_us)


def _elapsed_us(value: Duration, at: str) -> int:
    elapsed_us = duration_us(value, at)
    if not US_PER_S <= elapsed_us <= _MAX_ELAPSED_US:
        raise Invalid(at, "must be from 1 second to 366 days")
    return elapsed_us


def _shown_interval(every: Every) -> job_pb2.Interval:
    message = job_pb2.Interval()
    if every.elapsed_us is not None:
        message.elapsed.CopyFrom(duration(every.elapsed_us))
    elif every.months is not None:
        message.months = every.months
    elif every.days is not None and every.days > _MAX_DAYS:  # only weeks are ever so many
        message.weeks = every.days // _DAYS_A_WEEK
    else:
        message.days = every.days or 0
    if every.anchor_us is not None:
        message.anchor.CopyFrom(timestamp(every.anchor_us))
    return message


def _check_lengths(faults: Violations, message: job_pb2.Schedule, at: str) -> None:
    exclude = message.exclude
    lists: dict[str, Iterable[object]] = {
        "at": message.at,
        "every": message.every,
        "cron": message.cron,
        "exclude.dates": exclude.dates,
        "exclude.cron": exclude.cron,
        "exclude.calendars": exclude.calendars,
        "windows": message.windows,
    }
    for name, entries in lists.items():
        count = len(list(entries))
        if count > _MOST[name]:
            faults.add(f"{at}.{name}", f"has {count} entries; at most {_MOST[name]} are taken")


def _check_shape(faults: Violations, message: job_pb2.Schedule, at: str) -> None:
    if not (message.at or message.every or message.cron):
        faults.add(at, "must have at least one of at, every and cron")
    if message.HasField("anchor") and not _counts(message):
        faults.add(f"{at}.anchor", "is only valid with an interval that has no anchor of its own, or an @every line")
    for index, line in enumerate(message.exclude.cron):
        if _EVERY_LINE.match(line):
            faults.add(f"{at}.exclude.cron[{index}]", "@every lines cannot exclude")
    if message.gap not in _GAPS:
        faults.add(f"{at}.gap", "is not a known rule")
    if message.repeat not in _REPEATS:
        faults.add(f"{at}.repeat", "is not a known rule")


def _counts(message: job_pb2.Schedule) -> bool:
    """Whether anything of the schedule counts from the schedule's own anchor."""
    return any(not each.HasField("anchor") for each in message.every) or any(map(_EVERY_LINE.match, message.cron))


def _renamed(fault: Invalid, at: str) -> Invalid:
    """The same fault, with the message's names for the fields."""
    found = _CORE_PATH.match(fault.field)
    if found is None:
        return fault
    name, index = found["name"] or "", found["index"] or ""
    if not name:
        return Invalid(at, fault.rule)
    shown = name.removesuffix("_us")
    if shown.startswith("exclude_"):
        shown = f"exclude.{shown.removeprefix('exclude_')}"
    rule = f"{found['part'].replace('_', ' ')}: {fault.rule}" if found["part"] else fault.rule
    return Invalid(f"{at}.{shown}{index}", rule)
