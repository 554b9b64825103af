"""From options to a Schedule message: times that join, and what bounds, thins and spreads them.

Ranges and rules are the server's, which names the field. Called by job_options.py and by the commands that look at a
draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.cli.exits import usage
from tools.cli.instants import read_length
from tools.cli.option_fields import Reader, option, set_number

if TYPE_CHECKING:
    from tidewheel.v1 import job_pb2

WHEN = "When (all times that are given join)"

FIELDS = (
    option("cron", list[str], WHEN, "Cron line of 5, 6 or 7 fields, or a macro such as @daily; repeatable.", "LINE"),
    option("at", list[str], WHEN, "Once: RFC 3339 with offset, or `in 5m`; repeatable.", "INSTANT"),
    option("every", list[str], WHEN, "Elapsed time, such as 10s or 1h30m; repeatable.", "LENGTH"),
    option("every_days", list[int], WHEN, "Every N days at the anchor's wall time; repeatable.", "N"),
    option("every_weeks", list[int], WHEN, "Every N weeks at the anchor's wall time; repeatable.", "N"),
    option("every_months", list[int], WHEN, "Every N months; the last day of a month too short; repeatable.", "N"),
    option("anchor", str, WHEN, "First instant of every --every... Default: the registration.", "INSTANT"),
    option("zone", str, WHEN, "IANA name of the zone of all wall times. Default: UTC.", "ZONE"),
    option("start", str, WHEN, "No occurrence before this instant.", "INSTANT"),
    option("end", str, WHEN, "No occurrence at or after this instant.", "INSTANT"),
    option("max_runs", int, WHEN, "End after so many occurrences. 0: without end.", "N"),
    option("jitter", str, WHEN, "Put each run off by a fixed amount of at most this much.", "LENGTH"),
    option("exclude_date", list[str], WHEN, "No run on this day: 2026-12-24, FROM/TO or *-12-25; repeatable.", "DATE"),
    option("exclude_cron", list[str], WHEN, "No run at instants of this cron line; repeatable.", "LINE"),
    option("exclude_calendar", list[str], WHEN, "No run on days off of this calendar; repeatable.", "NAME"),
    option("window", list[str], WHEN, "Skip or put off inside the windows of this calendar; repeatable.", "NAME"),
    option("gap", str, WHEN, "For wall times that do not exist: end (default), shift or skip.", "RULE"),
    option("repeat", str, WHEN, "For wall times that occur twice: first (default), second or both.", "RULE"),
)

TIMES = ("cron", "at", "every", "every_days", "every_weeks", "every_months")
NAMES = tuple(field.name for field in FIELDS)
_EXCLUSIONS = {"exclude_date": "dates", "exclude_cron": "cron", "exclude_calendar": "calendars"}


def fill_schedule(schedule: job_pb2.Schedule, reader: Reader) -> None:
    """Put what was given into `schedule`; lists that are given replace those that are there. Raises Failure(USAGE).

    The times are one list: whoever gives any of them gives all, and the anchor with them.
    """
    from tidewheel.v1 import job_pb2

    if reader.any(*TIMES):
        for name in ("at", "every", "cron", "anchor"):
            schedule.ClearField(name)
        schedule.cron.extend(reader.texts("cron"))
        schedule.at.extend(reader.instants("at"))
        schedule.every.extend(_intervals(reader))
    for name in ("anchor", "start", "end"):
        reader.put_instant(schedule, name)
    schedule.zone = reader.given.get("zone", schedule.zone)
    reader.put_number(schedule, "max_runs", "max_runs")
    _fill_lists(schedule, reader)
    if "jitter" in reader.given:
        schedule.jitter.CopyFrom(reader.length("jitter"))
    if "gap" in reader.given:
        schedule.gap = reader.word("gap", job_pb2.GapRule)
    if "repeat" in reader.given:
        schedule.repeat = reader.word("repeat", job_pb2.RepeatRule)
    if not (schedule.at or schedule.every or schedule.cron):
        raise usage("the schedule needs a time", "--cron, --at, --every, --every-days, --every-weeks or --every-months")


def _fill_lists(schedule: job_pb2.Schedule, reader: Reader) -> None:
    for name, field in _EXCLUSIONS.items():
        if name in reader.given:
            schedule.exclude.ClearField(field)
            getattr(schedule.exclude, field).extend(reader.texts(name))
    if "window" in reader.given:
        schedule.ClearField("windows")
        schedule.windows.extend(reader.texts("window"))
    exclude = schedule.exclude
    if schedule.HasField("exclude") and not (exclude.dates or exclude.cron or exclude.calendars):
        schedule.ClearField("exclude")


def _intervals(reader: Reader) -> list[job_pb2.Interval]:
    from tidewheel.v1 import job_pb2

    made = [job_pb2.Interval(elapsed=_elapsed(text)) for text in reader.texts("every")]
    for unit in ("days", "weeks", "months"):
        for count in reader.given.get(f"every_{unit}", ()):
            interval = job_pb2.Interval()
            set_number(interval, unit, count, f"--every-{unit}")
            made.append(interval)
    return made


def _elapsed(text: str) -> Any:
    from tidewheel.schedules import duration

    if text.strip().endswith("d"):
        raise usage(
            f"--every: {text!r}: a day is not always 24 hours",
            "--every-days keeps the wall time; --every 24h counts elapsed time",
        )
    return duration(read_length(text, "--every"))
