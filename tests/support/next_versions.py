"""Decisions about the next version of a job, asked as a transaction asks them, at the turn of the year 2026."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from controlplane.next_version import Creation, Edit, PausedOccurrences, Resume
from core.calendars import CalendarPin, DayOff, DaysOff, Window, WindowAction, Windows
from core.enumerator import Enumerator
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence
from core.schedule import Schedule
from core.states import JobState
from core.store.calendar_lookup import Contents
from core.store.job_changes import Decision, NextVersion
from core.store.jobs import JobRecord
from core.store.surroundings import MINUTE_US, Surroundings
from tests.support.instants import us

# A Thursday.
NOW_US = us("2026-01-01T00:00:00Z")
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
JOB = UUID(int=77)
MINUTELY = Schedule(cron=("* * * * *",))
HOURLY = Schedule(cron=("0 * * * *",))
HOLIDAYS = CalendarPin(UUID(int=5), 1)
NIGHT = CalendarPin(UUID(int=6), 3)
CONTENTS: Contents = {
    HOLIDAYS: DaysOff(days=(DayOff("2026-01-01"),)),
    replace(HOLIDAYS, version=2): DaysOff(days=(DayOff("2026-01-01"), DayOff("2026-01-02"))),
    NIGHT: Windows(WindowAction.DEFER, (Window(cron="0 22 * * *", duration_us=8 * HOUR_US),)),
}
AROUND = Surroundings({"holidays": HOLIDAYS, "night": NIGHT}, CONTENTS)


def spec(schedule: Schedule | None, pins: Pins | None = None) -> JobSpec:
    return JobSpec("h", schedule=schedule, pins=pins or Pins())


def job(
    schedule: Schedule | None = MINUTELY,
    pins: Pins | None = None,
    *,
    state: JobState = JobState.ACTIVE,
    since_us: int = NOW_US - DAY_US,
) -> JobRecord:
    """A job at its third version, which took over at `since_us`."""
    return JobRecord(
        JOB, "default", "a", 0, 0, 3, state, since_us, since_us, 0, since_us, 0, "", spec(schedule, pins), b"old"
    )


def decided(
    decision: Decision, present: JobRecord | None = None, around: Surroundings = AROUND, at_us: int = NOW_US
) -> NextVersion:
    """What the transaction would get, asked in its order."""
    decision.wishes(present)
    decision.minutes(present, around, at_us)
    wanted = decision.version(present, around, at_us)
    assert wanted is not None
    return wanted


def created(schedule: Schedule | None, around: Surroundings = AROUND) -> NextVersion:
    return decided(Creation(JOB, spec(schedule), b"p", Enumerator()), None, around)


def edited(present: JobRecord, schedule: Schedule | None, around: Surroundings = AROUND) -> NextVersion:
    assert present.spec is not None
    changed = replace(present.spec, schedule=schedule)
    return decided(Edit(lambda _: (changed, b"new"), Enumerator()), present, around)


def restored(present: JobRecord, old: JobSpec) -> NextVersion:
    return decided(Edit(lambda _: (old, b"old"), Enumerator(), restored=True), present)


def resumed(present: JobRecord, choice: PausedOccurrences, around: Surroundings = AROUND) -> NextVersion:
    return decided(Resume(choice, Enumerator()), present, around)


def at(nominal_us: int, due_us: int | None = None) -> Occurrence:
    return Occurrence(nominal_us, nominal_us if due_us is None else due_us)


def pins_of(version: NextVersion) -> Pins:
    assert version.spec is not None
    return version.spec.pins
