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
_NOT_RECKONED = ("start", "end", "exclude", "jitter")
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
    """The instants strictly between the two at which a schedule has an occurrence, in microseconds, ascending.

    Raises ValueError for what this reckoning does not know: it must not judge by half of a schedule.
    """
    unknown = [name for name in _NOT_RECKONED if getattr(schedule, name).ByteSize()] + [
        name for name in ("windows", "max_runs") if getattr(schedule, name)
    ]
    if unknown:
        raise ValueError(f"cannot reckon with {', '.join(unknown)}")
    zone = ZoneInfo(schedule.zone or "UTC")
    found = {at.ToMicroseconds() for at in schedule.at}
    for interval in schedule.every:
        found.update(_steps(interval, schedule.anchor.ToMicroseconds(), after_us, before_us))
    for line in schedule.cron:
        found.update(_line(line, zone, after_us, before_us))
    return tuple(sorted(at for at in found if after_us < at < before_us))


def _steps(interval: job_pb2.Interval, anchor_us: int, after_us: int, before_us: int) -> Iterator[int]:
    if not interval.HasField("elapsed"):
        raise ValueError("cannot reckon with calendar intervals")
    every_us = interval.elapsed.ToMicroseconds()
    if interval.HasField("anchor"):
        anchor_us = interval.anchor.ToMicroseconds()
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
