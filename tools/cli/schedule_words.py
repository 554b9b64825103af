"""A schedule as one readable line, in the words of the options that would make it. Called by whatever shows one.

Times of one zone stand together and are followed by it; what bounds, thins and spreads them follows after semicolons.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from tidewheel.schedules import to_datetime, to_timedelta
from tidewheel.v1 import job_pb2

from tools.cli.instants import write_instant, write_length, write_local
from tools.cli.words import word_of

MOST_INSTANTS = 3
DAYS_A_WEEK = 7
_UNITS = {"days": "day", "weeks": "week", "months": "month"}


def schedule_line(schedule: job_pb2.Schedule) -> str:
    """When, on one line: `0 3 * * * in Europe/Berlin; except 2026-12-24; at most 10 runs`."""
    return "; ".join([_times(schedule) + _bounds(schedule), *_modifiers(schedule)])


def _times(schedule: job_pb2.Schedule) -> str:
    walls = [*schedule.cron, *(_interval(each, schedule) for each in schedule.every if not each.HasField("elapsed"))]
    parts = [f"{' | '.join(walls)} in {schedule.zone or 'UTC'}"] if walls else []
    parts += [_interval(each, schedule) for each in schedule.every if each.HasField("elapsed")]
    parts += [f"at {_few(write_instant(to_datetime(at)) for at in schedule.at)}"] if schedule.at else []
    return " | ".join(parts)


def _interval(interval: job_pb2.Interval, schedule: job_pb2.Schedule) -> str:
    period: str | None = interval.WhichOneof("period")
    if period is None or period == "elapsed":
        text = f"every {write_length(to_timedelta(interval.elapsed))}"
    else:
        count = getattr(interval, period)
        if period == "days" and count % DAYS_A_WEEK == 0:  # servers keep weeks as days
            period, count = "weeks", count // DAYS_A_WEEK
        text = f"every {_UNITS[period]}" if count == 1 else f"every {count} {period}"
    if not interval.HasField("anchor"):
        return text
    return f"{text} from {_wall(to_datetime(interval.anchor), schedule.zone)}"


def _wall(instant: datetime, zone: str) -> str:
    return write_local(instant, zone) or write_instant(instant.astimezone(UTC))


def _bounds(schedule: job_pb2.Schedule) -> str:
    text = ""
    if schedule.HasField("start"):
        text += f" from {write_instant(to_datetime(schedule.start))}"
    if schedule.HasField("end"):
        text += f" until {write_instant(to_datetime(schedule.end))}"
    return text


def _modifiers(schedule: job_pb2.Schedule) -> list[str]:
    exclude = schedule.exclude
    said = [
        f"except {_few(exclude.dates)}" if exclude.dates else "",
        f"except cron {' | '.join(exclude.cron)}" if exclude.cron else "",
        f"except days off of {', '.join(exclude.calendars)}" if exclude.calendars else "",
        f"windows {', '.join(schedule.windows)}" if schedule.windows else "",
        _most(schedule.max_runs),
        f"jitter up to {write_length(to_timedelta(schedule.jitter))}" if schedule.jitter.ToNanoseconds() else "",
        f"gap {word_of(job_pb2.GapRule.DESCRIPTOR, schedule.gap)}" if schedule.gap > job_pb2.GAP_RULE_END else "",
        f"repeat {word_of(job_pb2.RepeatRule.DESCRIPTOR, schedule.repeat)}"
        if schedule.repeat > job_pb2.REPEAT_RULE_FIRST
        else "",
    ]
    return [text for text in said if text]


def _most(max_runs: int) -> str:
    if not max_runs:
        return ""
    return "at most 1 run" if max_runs == 1 else f"at most {max_runs} runs"


def _few(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = len(listed) - MOST_INSTANTS
    return ", ".join(listed[:MOST_INSTANTS]) + (f" and {more} more" if more > 0 else "")
