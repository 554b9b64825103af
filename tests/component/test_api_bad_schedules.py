"""Bad schedules: each field at fault is named, and nothing changes. Cases B112 to B116 and B133."""

from __future__ import annotations

import time
from typing import Any

import asyncpg
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1.job_pb2 import Interval, Schedule
from tidewheel.v1.job_service_pb2 import (
    ListJobsRequest,
)

from tests.support.bad_input import US, all_refused, cron, every, excluding, stamp
from tests.support.control_plane import ControlPlane, refused
from tests.support.instants import rfc3339, us

# What is wrong with a schedule, and the field that must be named.
BAD_SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("job.schedule", {"schedule": Schedule()}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=-1)])}),
    ("job.schedule.at[1]", {"schedule": Schedule(at=[Timestamp(seconds=1), Timestamp(seconds=1, nanos=1)])}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=1, nanos=-1)])}),
    ("job.schedule.at[0]", {"schedule": Schedule(at=[Timestamp(seconds=7_258_118_400)])}),
    ("job.schedule.at", {"schedule": Schedule(at=[Timestamp(seconds=n) for n in range(65)])}),
    ("job.schedule.at", {"schedule": cron("* * * * *", at=[Timestamp(seconds=5)])}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(nanos=999_999_000))}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(seconds=-5))}),
    ("job.schedule.every[0].elapsed", {"schedule": every(elapsed=Duration(seconds=367 * 86_400))}),
    ("job.schedule.every[0].days", {"schedule": every(days=0)}),
    ("job.schedule.every[0].days", {"schedule": every(days=3661)}),
    ("job.schedule.every[0].weeks", {"schedule": every(weeks=-1)}),
    ("job.schedule.every[0].weeks", {"schedule": every(weeks=3661)}),
    ("job.schedule.every[0].months", {"schedule": every(months=1201)}),
    ("job.schedule.every[0].anchor", {"schedule": every(days=1, anchor=Timestamp(seconds=-1))}),
    ("job.schedule.every[0]", {"schedule": every()}),
    ("job.schedule.every", {"schedule": Schedule(every=[Interval(days=1)] * 17)}),
    ("job.schedule.anchor", {"schedule": cron("* * * * *", anchor=Timestamp(seconds=5))}),
    (
        "job.schedule.anchor",
        {"schedule": Schedule(every=[Interval(days=1, anchor=Timestamp(seconds=9))], anchor=Timestamp(seconds=5))},
    ),
    ("job.schedule.end", {"schedule": cron("* * * * *", start=Timestamp(seconds=9), end=Timestamp(seconds=9))}),
    ("job.schedule.exclude.dates[0]", {"schedule": excluding(dates=["2026-02-30"])}),
    ("job.schedule.exclude.dates[1]", {"schedule": excluding(dates=["*-12-25", "yesterday"])}),
    ("job.schedule.exclude.dates[0]", {"schedule": excluding(dates=["2027-01-02/2026-12-24"])}),
    ("job.schedule.exclude.dates", {"schedule": excluding(dates=["*-12-25"] * 257)}),
    ("job.schedule.exclude.cron[0]", {"schedule": excluding(cron=["61 * * * *"])}),
    ("job.schedule.exclude.cron[1]", {"schedule": excluding(cron=["0 1 * * *", "@every 5s"])}),
    ("job.schedule.exclude.cron", {"schedule": excluding(cron=["0 1 * * *"] * 9)}),
    ("job.schedule.exclude.calendars[0]", {"schedule": excluding(calendars=["no such calendar"])}),
    ("job.schedule.exclude.calendars[0]", {"schedule": excluding(calendars=["nobody"])}),
    ("job.schedule.exclude.calendars[1]", {"schedule": excluding(calendars=["a", "a"])}),
    ("job.schedule.exclude.calendars", {"schedule": excluding(calendars=[f"c{n}" for n in range(9)])}),
    ("job.schedule.windows[0]", {"schedule": cron("* * * * *", windows=["nobody"])}),
    ("job.schedule.windows", {"schedule": cron("* * * * *", windows=[f"c{n}" for n in range(9)])}),
    ("job.schedule", {"schedule": excluding(cron=["* * * * *"])}),
    ("job.schedule.max_runs", {"schedule": cron("* * * * *", max_runs=-1)}),
    ("job.schedule.max_runs", {"schedule": cron("* * * * *", max_runs=100_001)}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(seconds=-1))}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(seconds=86_400, nanos=1000))}),
    ("job.schedule.jitter", {"schedule": cron("* * * * *", jitter=Duration(nanos=1))}),
    ("job.schedule.gap", {"schedule": cron("* * * * *", gap=9)}),
    ("job.schedule.repeat", {"schedule": cron("* * * * *", repeat=9)}),
    ("job.schedule.cron", {"schedule": cron(*["* * * * *"] * 17)}),
    ("job.schedule.cron[1]", {"schedule": cron("* * * * *", "61 * * * *")}),
    ("job.schedule.cron[0]", {"schedule": cron("* * * *")}),
    ("job.schedule.cron[0]", {"schedule": cron("* " * 150)}),
]
# B112: lines that can never fire.
NEVER = ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"]
# B113: what made a parser panic.
PANICS = [
    *("TZ=0", "TZ=TZ=TZ=", "CRON_TZ=UTC", "TZ=UTC ", "@every", "@", "", "*" * 10_240, "٣ * * * *", "1e1 * * * *"),
]
# B115: steps longer than their field.
LONG_STEPS = ["*/90 * * * *", "*/60 * * * *", "0 */25 * * *"]
# B116.
BAD_ZONES = [
    *("PST", "Mars/Olympus", "+05:30", "europe/berlin", "Europe/Berlin ", "../../etc/passwd", "/etc/localtime"),
    *("localtime", "Factory", "\0", "UTC\n", "x" * 10_000),
]


def lines(*texts: str) -> list[tuple[str, dict[str, Any]]]:
    return [("job.schedule.cron[0]", {"schedule": cron(text)}) for text in texts]


async def test_a_schedule_names_the_field_at_fault_and_changes_nothing(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    await all_refused(plane, eye, BAD_SCHEDULES)


async def test_b112_a_line_that_never_fires_is_refused_at_once_and_leap_days_are_not(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    began = time.monotonic()
    await all_refused(plane, eye, lines(*NEVER))
    assert time.monotonic() - began < 10.0
    refusal = await refused(plane.create("a", schedule=cron(NEVER[0])))
    assert "day of month" in refusal.fields["job.schedule.cron[0]"]
    assert await plane.create("leap", schedule=cron("0 0 29 2 *"))


async def test_b113_what_is_no_line_at_all_is_refused(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    await all_refused(plane, eye, lines(*PANICS))


async def test_b115_a_step_longer_than_its_field_is_refused(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    await all_refused(plane, eye, lines(*LONG_STEPS))


async def test_b115_a_step_within_its_field_starts_anew_each_day(plane: ControlPlane) -> None:
    async def next_from(start: str) -> str | None:
        job = await plane.create(f"from-{us(start)}", schedule=cron("0 */5 * * *", start=stamp(start)))
        return rfc3339(job.next_occurrence.seconds * US)

    assert await next_from("2030-12-30T15:00:01Z") == "2030-12-30T20:00:00Z"
    assert await next_from("2030-12-30T20:00:01Z") == "2030-12-31T00:00:00Z", "four hours later, at midnight"


async def test_b116_a_bad_zone_is_refused_an_empty_one_is_utc_and_listing_works_beside(
    plane: ControlPlane, eye: asyncpg.Connection
) -> None:
    assert (await plane.create("a", schedule=cron("* * * * *"))).schedule.zone == "UTC"
    zones = [("job.schedule.zone", {"schedule": cron("* * * * *", zone=zone)}) for zone in BAD_ZONES]
    await all_refused(plane, eye, zones)
    assert [job.name for job in (await plane.jobs.ListJobs(ListJobsRequest())).jobs] == ["a"]


async def test_b133_next_is_computed_by_the_zone_that_fires(plane: ControlPlane) -> None:
    """The wall times of the case, from a start that lies ahead: 2031-12-03 is a Wednesday, as 2021-12-01 was."""
    phoenix = cron("48 17 * * 3", zone="America/Phoenix", start=stamp("2031-12-03T12:00:00Z"))
    santiago = cron("37 20 2 5 *", zone="America/Santiago", start=stamp("2032-05-02T12:00:00Z"))
    for name, schedule, expected in (
        ("a", phoenix, "2031-12-04T00:48:00Z"),
        ("b", santiago, "2032-05-03T00:37:00Z"),
    ):
        created = await plane.create(name, schedule=schedule)
        assert rfc3339(created.next_occurrence.seconds * US) == expected
        assert await plane.get(name) == created
