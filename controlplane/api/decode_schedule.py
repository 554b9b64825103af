"""A Schedule message as a core Schedule, and back. Pure.

Core speaks of its own field names (`schedule.every_us`, `schedule.cron[0].minute`); what goes out names the fields of
the message. All lines and bounds are checked by core's own value: there is one idea of what a schedule is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2

from controlplane.api.fields import duration_us, instant_us
from controlplane.api.violations import Violations
from core.civil import DAY_S
from core.clock import US_PER_S
from core.errors import Invalid
from core.firetimes import GapRule, RepeatRule
from core.schedule import Schedule

_MAX_LINES = 16
_MAX_EVERY_US = 366 * DAY_S * US_PER_S
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
    instants = {
        name: _instant(faults, message, name, f"{at}.{name}")
        for name in ("at", "anchor", "start", "end")
        if message.HasField(name)
    }
    every_us = None
    if message.HasField("every"):
        with faults.noted():
            every_us = _every(message.every, f"{at}.every")
    _check_shape(faults, message, at)
    if message.gap not in _GAPS:
        faults.add(f"{at}.gap", "is not a known rule")
    if message.repeat not in _REPEATS:
        faults.add(f"{at}.repeat", "is not a known rule")
    faults.refuse()
    start_us, end_us = instants.get("start"), instants.get("end")
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise Invalid(f"{at}.end", "must be later than start")
    counting = every_us is not None or any(map(_EVERY_LINE.match, message.cron))
    anchor_us = instants.get("anchor", now_us) if counting else None
    try:
        schedule = Schedule(
            at_us=instants.get("at"),
            every_us=every_us,
            anchor_us=anchor_us,
            cron=tuple(message.cron),
            zone=message.zone,
            start_us=start_us,
            end_us=end_us,
            gap=_GAPS[message.gap],
            repeat=_REPEATS[message.repeat],
            hash_key=hash_key if any(map(_SLOT.search, message.cron)) else "",
        )
    except Invalid as fault:
        raise _renamed(fault, at) from None
    return WantedSchedule(schedule, anchor_given="anchor" in instants)


def encode_schedule(schedule: Schedule) -> job_pb2.Schedule:
    """The message for a stored schedule, with every default spelt out."""
    message = job_pb2.Schedule(
        cron=schedule.cron,
        zone=schedule.zone,
        gap=_SHOWN_GAPS[schedule.gap],
        repeat=_SHOWN_REPEATS[schedule.repeat],
    )
    for name in ("at", "anchor", "start", "end"):
        value_us = getattr(schedule, f"{name}_us")
        if value_us is not None:
            getattr(message, name).CopyFrom(timestamp(value_us))
    if schedule.every_us is not None:
        message.every.CopyFrom(duration(schedule.every_us))
    return message


def timestamp(value_us: int) -> Timestamp:
    """Microseconds since the epoch as a message."""
    seconds, micros = divmod(value_us, US_PER_S)
    return Timestamp(seconds=seconds, nanos=micros * 1000)


def duration(value_us: int) -> Duration:
    """Microseconds as a message."""
    seconds, micros = divmod(value_us, US_PER_S)
    return Duration(seconds=seconds, nanos=micros * 1000)


def _instant(faults: Violations, message: job_pb2.Schedule, name: str, at: str) -> int | None:
    with faults.noted():
        return instant_us(getattr(message, name), at)
    return None


def _every(value: Duration, at: str) -> int:
    every_us = duration_us(value, at)
    if not US_PER_S <= every_us <= _MAX_EVERY_US:
        raise Invalid(at, "must be from 1 second to 366 days")
    return every_us


def _check_shape(faults: Violations, message: job_pb2.Schedule, at: str) -> None:
    given = [message.HasField("at"), message.HasField("every"), bool(message.cron)]
    if given.count(True) != 1:
        faults.add(at, "must have exactly one of at, every and cron")
    if len(message.cron) > _MAX_LINES:
        faults.add(f"{at}.cron", f"has {len(message.cron)} lines; at most {_MAX_LINES} are taken")
    if message.HasField("anchor") and not (message.HasField("every") or any(map(_EVERY_LINE.match, message.cron))):
        faults.add(f"{at}.anchor", "is only valid with every, or with an @every line")


def _renamed(fault: Invalid, at: str) -> Invalid:
    """The same fault, with the message's names for the fields."""
    found = _CORE_PATH.match(fault.field)
    if found is None:
        return fault
    name = (found["name"] or "").removesuffix("_us")
    rule = f"{found['part'].replace('_', ' ')}: {fault.rule}" if found["part"] else fault.rule
    return Invalid(f"{at}.{name}{found['index'] or ''}" if name else at, rule)
