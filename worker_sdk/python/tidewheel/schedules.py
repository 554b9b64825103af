"""When and how often: the plain values that describe a job's schedule and retries, and how they become messages.

Ranges and defaults are those of proto/tidewheel/v1/job.proto; the control plane checks them and names the field at
fault. Only what a message cannot express (a time without a zone) is refused here. Called by client.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tidewheel.v1 import job_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class At:
    """Once, at this instant."""

    time: datetime


@dataclass(frozen=True, slots=True)
class Every:
    """At a fixed interval of elapsed time, counted from `anchor` (absent: the instant of registration)."""

    interval: timedelta
    anchor: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, init=False)
class Cron:
    """Cron lines, read in `zone`: `Cron("0 9 * * mon-fri", zone="Europe/Berlin")`.

    `gap` ("end", "shift" or "skip") says what happens to a wall time that does not exist, `repeat` ("first", "second"
    or "both") to one that exists twice.
    """

    lines: tuple[str, ...]
    zone: str
    start: datetime | None
    end: datetime | None
    gap: str
    repeat: str

    def __init__(
        self,
        *lines: str,
        zone: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        gap: str = "end",
        repeat: str = "first",
    ) -> None:
        for name, value in (("lines", lines), ("zone", zone), ("start", start), ("end", end)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "gap", gap)
        object.__setattr__(self, "repeat", repeat)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how late a failed attempt is repeated; what is None takes the server's default."""

    max_attempts: int | None = None
    first_delay: timedelta | None = None
    factor: float | None = None
    max_delay: timedelta | None = None
    jitter: float | None = None


def timestamp(name: str, value: datetime) -> Timestamp:
    """`value` to the microsecond. ValueError if it has no zone: the same digits mean another instant elsewhere."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f"{name}: a datetime needs a zone, for example datetime.now(timezone.utc)")
    seconds, us = divmod((value - _EPOCH) // _US, 1_000_000)
    return Timestamp(seconds=seconds, nanos=us * 1000)


def duration(value: timedelta) -> Duration:
    """`value` to the microsecond. In a Duration, seconds and nanos must not differ in sign."""
    us = value // _US
    seconds, rest = divmod(abs(us), 1_000_000)
    sign = -1 if us < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)


def to_datetime(value: Timestamp) -> datetime:
    """An aware datetime in UTC."""
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def to_timedelta(value: Duration) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos / 1000)


def schedule_message(schedule: At | Every | Cron) -> job_pb2.Schedule:
    """The message of one schedule. ValueError for a time without a zone or an unknown rule."""
    if isinstance(schedule, At):
        return job_pb2.Schedule(at=timestamp("schedule.at", schedule.time))
    message = job_pb2.Schedule(
        start=_optional("schedule.start", schedule.start), end=_optional("schedule.end", schedule.end)
    )
    if isinstance(schedule, Every):
        message.every.CopyFrom(duration(schedule.interval))
        if schedule.anchor is not None:
            message.anchor.CopyFrom(timestamp("schedule.anchor", schedule.anchor))
        return message
    message.cron.extend(schedule.lines)
    message.zone = schedule.zone
    message.gap = _member("gap", job_pb2.GapRule, "GAP_RULE", schedule.gap)
    message.repeat = _member("repeat", job_pb2.RepeatRule, "REPEAT_RULE", schedule.repeat)
    return message


def retry_message(retry: RetryPolicy) -> job_pb2.RetryPolicy:
    return job_pb2.RetryPolicy(
        max_attempts=retry.max_attempts or 0,
        first_delay=None if retry.first_delay is None else duration(retry.first_delay),
        factor=retry.factor or 0.0,
        max_delay=None if retry.max_delay is None else duration(retry.max_delay),
        jitter=retry.jitter,
    )


def overlap_value(overlap: str) -> job_pb2.OverlapPolicy:
    """ "skip" or "allow"."""
    value: job_pb2.OverlapPolicy = _member("overlap", job_pb2.OverlapPolicy, "OVERLAP_POLICY", overlap)
    return value


def catch_up_message(mode: str | None, grace: timedelta | None) -> job_pb2.CatchUpPolicy:
    """`mode` is "latest" or "skip"; None takes the server's default."""
    message = job_pb2.CatchUpPolicy(grace=None if grace is None else duration(grace))
    if mode is not None:
        message.mode = _member("catch_up", job_pb2.CatchUpMode, "CATCH_UP_MODE", mode)
    return message


def _optional(name: str, value: datetime | None) -> Timestamp | None:
    return None if value is None else timestamp(name, value)


def _member(argument: str, enum: Any, prefix: str, word: str) -> Any:
    """The enum's value that `word` names."""
    name = f"{prefix}_{word.upper()}"
    choices = [key for key in enum.keys() if not key.endswith("_UNSPECIFIED")]  # noqa: SIM118  # no mapping
    if name not in choices:
        words = ", ".join(repr(key.removeprefix(f"{prefix}_").lower()) for key in choices)
        raise ValueError(f"{argument}: must be one of {words}, not {word!r}")
    return enum.Value(name)
