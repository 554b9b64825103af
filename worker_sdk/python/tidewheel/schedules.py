"""When: the plain values that describe a job's schedule, and how they become messages.

Ranges and defaults are those of proto/tidewheel/v1/job.proto; the control plane checks them and names the field at
fault. Only what a message cannot express (a time without a zone, an interval of two periods) is refused here. Called
by client.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tidewheel.v1 import job_pb2
from tidewheel.words import member

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


class Options(TypedDict, total=False):
    """What every schedule may have beside its instants, intervals or lines: the other fields of `Schedule`."""

    zone: str
    start: datetime | None
    end: datetime | None
    gap: str
    repeat: str
    exclude_dates: Sequence[date | str]
    exclude_cron: Sequence[str]
    exclude_calendars: Sequence[str]
    windows: Sequence[str]
    max_runs: int
    jitter: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The union of instants, intervals and cron lines, less what is excluded.

    `zone` is where lines, calendar intervals and excluded dates are read; `anchor` where intervals and `@every` lines
    count from that have no anchor of their own (absent: the instant of registration). `gap` ("end", "shift" or "skip")
    says what happens to a wall time that does not exist, `repeat` ("first", "second" or "both") to one that exists
    twice. An excluded date is a `datetime.date`, "2026-12-24", "2026-12-24/2027-01-02" or "*-12-25". Calendars of days
    off and of maintenance `windows` are named. `max_runs` 0 is without end. `jitter` puts each run off by a share of it
    that is fixed for the job.
    """

    at: Sequence[datetime] = ()
    every: Sequence[Every] = ()
    cron: Sequence[str] = ()
    anchor: datetime | None = None
    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    gap: str = "end"
    repeat: str = "first"
    exclude_dates: Sequence[date | str] = ()
    exclude_cron: Sequence[str] = ()
    exclude_calendars: Sequence[str] = ()
    windows: Sequence[str] = ()
    max_runs: int = 0
    jitter: timedelta | None = None


@dataclass(frozen=True, slots=True, init=False)
class At:
    """Once at each of these instants: `At(datetime(2030, 1, 1, tzinfo=timezone.utc))`."""

    times: tuple[datetime, ...]
    options: Options

    def __init__(self, *times: datetime, **options: Unpack[Options]) -> None:
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True, slots=True, init=False)
class Every:
    """At an interval: of elapsed time, `Every(timedelta(minutes=5))`, or of the calendar, `Every(months=1)`.

    Exactly one period is given. It counts from `anchor`, the first occurrence; calendar periods keep the anchor's wall
    time in the schedule's zone, and a month that is too short has its last day instead.
    """

    elapsed: timedelta | None
    days: int
    weeks: int
    months: int
    anchor: datetime | None
    options: Options

    def __init__(
        self,
        elapsed: timedelta | None = None,
        *,
        days: int = 0,
        weeks: int = 0,
        months: int = 0,
        anchor: datetime | None = None,
        **options: Unpack[Options],
    ) -> None:
        given = {"elapsed": elapsed, "days": days, "weeks": weeks, "months": months, "anchor": anchor}
        for name, value in (*given.items(), ("options", options)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, init=False)
class Cron:
    """Cron lines of five, six (seconds first) or seven fields (years last): `Cron("0 9 * * mon-fri", zone=...)`."""

    lines: tuple[str, ...]
    options: Options

    def __init__(self, *lines: str, **options: Unpack[Options]) -> None:
        object.__setattr__(self, "lines", lines)
        object.__setattr__(self, "options", options)


AnySchedule = At | Every | Cron | Schedule


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


def schedule_message(schedule: AnySchedule) -> job_pb2.Schedule:
    """The message of a schedule. ValueError for a time without a zone, an unknown rule or an interval of no period."""
    whole = _whole(schedule)
    message = job_pb2.Schedule(
        at=[timestamp("schedule.at", time) for time in whole.at],
        every=[_interval(every, f"schedule.every[{index}]") for index, every in enumerate(whole.every)],
        cron=whole.cron,
        zone=whole.zone,
        gap=member("gap", job_pb2.GapRule, "GAP_RULE", whole.gap),
        repeat=member("repeat", job_pb2.RepeatRule, "REPEAT_RULE", whole.repeat),
        windows=whole.windows,
        max_runs=whole.max_runs,
        jitter=None if whole.jitter is None else duration(whole.jitter),
    )
    for name in ("anchor", "start", "end"):
        time = getattr(whole, name)
        if time is not None:
            getattr(message, name).CopyFrom(timestamp(f"schedule.{name}", time))
    if whole.exclude_dates or whole.exclude_cron or whole.exclude_calendars:
        message.exclude.dates.extend(_shown_date(each) for each in whole.exclude_dates)
        message.exclude.cron.extend(whole.exclude_cron)
        message.exclude.calendars.extend(whole.exclude_calendars)
    return message


def _whole(schedule: AnySchedule) -> Schedule:
    match schedule:
        case At():
            return Schedule(at=schedule.times, **schedule.options)
        case Every():
            return Schedule(every=[_bare(schedule)], **schedule.options)
        case Cron():
            return Schedule(cron=schedule.lines, **schedule.options)
    return schedule


def _bare(every: Every) -> Every:
    periods: dict[str, Any] = {part.name: getattr(every, part.name) for part in fields(every) if part.name != "options"}
    return Every(**periods)


def _interval(every: Every, name: str) -> job_pb2.Interval:
    if every.options:
        raise ValueError(f"{name}: {', '.join(sorted(every.options))} belong to the Schedule that it is part of")
    given = [period for period in ("elapsed", "days", "weeks", "months") if getattr(every, period)]
    if len(given) != 1:
        raise ValueError(f"{name}: needs exactly one of elapsed, days, weeks and months")
    message = job_pb2.Interval()
    if every.elapsed is not None and given == ["elapsed"]:
        message.elapsed.CopyFrom(duration(every.elapsed))
    else:
        setattr(message, given[0], getattr(every, given[0]))
    if every.anchor is not None:
        message.anchor.CopyFrom(timestamp(f"{name}.anchor", every.anchor))
    return message


def _shown_date(value: date | str) -> str:
    return value if isinstance(value, str) else value.strftime("%Y-%m-%d")
