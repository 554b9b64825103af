"""When each job had to run, by somebody else's reckoning: cronsim for cron lines, plain arithmetic for intervals.

Nothing of the product's own engine is used here: what judges must not share a mistake with what is judged. Called by
the demo for its verdict and for what is due next.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

from cronsim import CronSim
from tidewheel.v1 import job_pb2

US_PER_S = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MACROS = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)


def occurrences(schedule: job_pb2.Schedule, after_us: int, before_us: int) -> tuple[int, ...]:
    """The instants strictly between the two at which a schedule has an occurrence, in microseconds, ascending."""
    if schedule.HasField("at"):
        found = {schedule.at.ToMicroseconds()}
    elif schedule.HasField("every"):
        found = set(_steps(schedule, after_us, before_us))
    else:
        zone = ZoneInfo(schedule.zone or "UTC")
        found = {at for line in schedule.cron for at in _line(line, zone, after_us, before_us)}
    return tuple(sorted(at for at in found if after_us < at < before_us))


def _steps(schedule: job_pb2.Schedule, after_us: int, before_us: int) -> Iterator[int]:
    every_us = schedule.every.ToMicroseconds()
    anchor_us = schedule.anchor.ToMicroseconds()
    at = anchor_us + max(0, (after_us - anchor_us) // every_us) * every_us
    while at < before_us:
        yield at
        at += every_us


def _line(line: str, zone: ZoneInfo, after_us: int, before_us: int) -> Iterator[int]:
    from_whole_second = _EPOCH + timedelta(seconds=after_us // US_PER_S - 1)
    for at in CronSim(MACROS.get(line.lower(), line), from_whole_second.astimezone(zone)):
        at_us = (at - _EPOCH) // timedelta(microseconds=1)
        if at_us >= before_us:
            return
        yield at_us


def instant(at_us: int) -> datetime:
    """Microseconds since the epoch as an instant in UTC."""
    return _EPOCH + timedelta(microseconds=at_us)
