"""The memory of job versions: read once, kept within bounds, and never mistaken about what it dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from core.calendars import CalendarContent, CalendarPin, DayOff, DaysOff
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence
from core.schedule import Schedule
from core.states import JobState
from core.store.calendar_lookup import Contents
from core.store.job_lookup import StoredVersion
from dispatcher.jobs import Jobs, JobVersion, Unreadable, VersionKey
from tests.support.dispatcher_parts import new_id
from tests.support.instants import us

SPEC = JobSpec(handler="work", schedule=Schedule(cron=("0 0 * * *",)))


class Shelf:
    """Stands for the lookup in the database: job versions by key, and what was asked."""

    def __init__(self) -> None:
        self.versions: dict[VersionKey, StoredVersion] = {}
        self.calendar_versions: Contents = {}
        self.asked: list[VersionKey] = []
        self.asked_calendars: list[CalendarPin] = []

    def put(
        self, *, spec: Any = None, payload: bytes = b"", version: int = 1, job_id: UUID | None = None
    ) -> VersionKey:
        key = (job_id or new_id(), version)
        stored = spec if spec is not None else SPEC.to_json()
        self.versions[key] = StoredVersion(*key, "default", "a-job", 1, stored, payload, "", version, None)
        return key

    def put_calendar(self, content: CalendarContent | Invalid) -> CalendarPin:
        pin = CalendarPin(new_id(), 1)
        self.calendar_versions[pin] = content
        return pin

    async def calendars(self, pins: Iterable[CalendarPin]) -> Contents:
        wanted = list(pins)
        self.asked_calendars += wanted
        return {pin: self.calendar_versions[pin] for pin in wanted if pin in self.calendar_versions}

    async def load(self, keys: Sequence[VersionKey]) -> dict[VersionKey, StoredVersion]:
        self.asked += keys
        return {key: self.versions[key] for key in keys if key in self.versions}


def jobs_over(shelf: Shelf, **bounds: int) -> Jobs:
    return Jobs(shelf, Enumerator(), **bounds)  # type: ignore[arg-type]


def is_known(jobs: Jobs, key: VersionKey) -> bool:
    return jobs.get(key) is not None


async def test_a_version_is_read_once_and_again_only_after_it_was_forgotten() -> None:
    shelf = Shelf()
    key = shelf.put(payload=b"p")
    jobs = jobs_over(shelf)
    assert jobs.get(key) is None
    await jobs.load([key, key])
    await jobs.load([key])
    job = jobs.get(key)
    assert isinstance(job, JobVersion)
    assert (job.job_id, job.spec, job.payload, shelf.asked) == (key[0], SPEC, b"p", [key])
    jobs.forget([key])
    await jobs.load([key])
    assert shelf.asked == [key, key]


async def test_equal_schedules_are_shared() -> None:
    shelf = Shelf()
    keys = [shelf.put(), shelf.put()]
    jobs = jobs_over(shelf)
    await jobs.load(keys)
    first, second = (jobs.get(key) for key in keys)
    assert isinstance(first, JobVersion)
    assert isinstance(second, JobVersion)
    assert first.spec.schedule is second.spec.schedule


async def test_b108_a_spoilt_version_is_known_as_such_and_spoils_no_other() -> None:
    shelf = Shelf()
    good = shelf.put()
    spoilt = [
        shelf.put(spec="no object"),
        shelf.put(spec={}),
        shelf.put(spec=SPEC.to_json() | {"overlap": "SOMETIMES"}),
        shelf.put(spec=SPEC.to_json() | {"schedule": '{"cron": ["x"]}'}),
        shelf.put(spec=SPEC.to_json() | {"schedule": '{"cron": ["0 0 * * *"], "zone": "Nowhere/Bad"}'}),
        shelf.put(spec=SPEC.to_json() | {"timeout_us": "long"}),
    ]
    missing = (new_id(), 1)
    jobs = jobs_over(shelf)
    await jobs.load([*spoilt, good, missing])
    assert isinstance(jobs.get(good), JobVersion)
    for key in spoilt:
        broken = jobs.get(key)
        assert isinstance(broken, Unreadable)
        assert (broken.current_version, bool(broken.error)) == (1, True)
    lost = jobs.get(missing)
    assert isinstance(lost, Unreadable)
    assert lost.current_version == 0


async def test_no_more_versions_are_kept_than_the_bound_and_the_unused_leave_first() -> None:
    shelf = Shelf()
    old, used, new = (shelf.put() for _ in range(3))
    jobs = jobs_over(shelf, max_versions=2)
    await jobs.load([old, used])
    assert is_known(jobs, old)
    assert is_known(jobs, used)  # now the last that was looked at
    await jobs.load([new])
    assert [is_known(jobs, key) for key in (old, used, new)] == [False, True, True]


async def test_payloads_are_bounded_in_bytes_and_what_left_counts_no_more() -> None:
    shelf = Shelf()
    keys = [shelf.put(payload=b"x" * 40) for _ in range(5)]
    jobs = jobs_over(shelf, max_bytes=100)
    await jobs.load(keys)
    assert [is_known(jobs, key) for key in keys] == [False, False, False, True, True]
    jobs.forget(keys)
    await jobs.load(keys[:2])
    assert [is_known(jobs, key) for key in keys[:2]] == [True, True]


async def test_a_payload_above_the_bound_is_kept_alone() -> None:
    shelf = Shelf()
    small, large = shelf.put(payload=b"x"), shelf.put(payload=b"x" * 500)
    jobs = jobs_over(shelf, max_bytes=100)
    await jobs.load([small, large])
    assert [is_known(jobs, key) for key in (small, large)] == [False, True]


async def test_what_is_asked_for_together_is_not_pushed_out_by_its_own_company() -> None:
    shelf = Shelf()
    known, stranger, wanted = (shelf.put(payload=b"x" * 40) for _ in range(3))
    jobs = jobs_over(shelf, max_bytes=100)
    await jobs.load([known, stranger])
    await jobs.load([known, wanted])
    assert [is_known(jobs, key) for key in (known, stranger, wanted)] == [True, False, True]


# --- occurrences, and the calendars that they are computed by ---

CHRISTMAS = DaysOff(days=(DayOff("*-12-25", "Christmas"),))


def spec_with_calendar(pin: CalendarPin) -> Any:
    schedule = Schedule(cron=("0 9 * * *",), exclude_calendars=("holidays",))
    return JobSpec(handler="work", schedule=schedule, pins=Pins(calendars={"holidays": pin})).to_json()


async def test_the_occurrences_of_a_version_leave_out_what_its_calendars_take_away() -> None:
    shelf = Shelf()
    key = shelf.put(spec=spec_with_calendar(shelf.put_calendar(CHRISTMAS)))
    jobs = jobs_over(shelf)
    await jobs.load([key])
    job = jobs.get(key)
    assert isinstance(job, JobVersion)
    assert job.occurrences is not None
    after = job.occurrences.next_after(us("2026-12-24T09:00:00Z"))
    assert after == Occurrence(us("2026-12-26T09:00:00Z"), us("2026-12-26T09:00:00Z"))


async def test_the_occurrences_of_a_version_end_where_the_next_one_took_over() -> None:
    shelf = Shelf()
    key = shelf.put()
    superseded_us, stopped_us = us("2026-01-05T12:00:00Z"), us("2026-01-07T12:00:00Z")
    stored = shelf.versions[key]
    shelf.versions[key] = replace(
        stored, superseded_us=superseded_us, stopped_us=stopped_us, stopped_as=int(JobState.DELETED)
    )
    jobs = jobs_over(shelf)
    await jobs.load([key])
    job = jobs.get(key)
    assert isinstance(job, JobVersion)
    assert job.occurrences is not None
    assert job.occurrences.next_after(us("2026-01-05T00:00:00Z")) is None
    assert (job.superseded_us, job.stopped_us, job.stopped_as) == (superseded_us, stopped_us, JobState.DELETED)


async def test_b32_a_job_without_its_calendar_is_known_as_unreadable_and_others_go_on() -> None:
    shelf = Shelf()
    missing = CalendarPin(new_id(), 1)
    spoilt = shelf.put_calendar(Invalid("content", "is not readable"))
    good = shelf.put(spec=spec_with_calendar(shelf.put_calendar(CHRISTMAS)))
    broken = [shelf.put(spec=spec_with_calendar(pin)) for pin in (missing, spoilt)]
    jobs = jobs_over(shelf)
    await jobs.load([*broken, good])
    assert isinstance(jobs.get(good), JobVersion)
    for key in broken:
        found = jobs.get(key)
        assert isinstance(found, Unreadable)
        assert (found.current_version, "content" in found.error or "holidays" in found.error) == (1, True)


async def test_a_calendar_that_was_repaired_is_read_again_with_its_job() -> None:
    shelf = Shelf()
    pin = shelf.put_calendar(Invalid("content", "is not readable"))
    key = shelf.put(spec=spec_with_calendar(pin))
    jobs = jobs_over(shelf)
    await jobs.load([key])
    shelf.calendar_versions[pin] = CHRISTMAS
    jobs.forget([key])
    await jobs.load([key])
    assert isinstance(jobs.get(key), JobVersion)


async def test_a_calendar_is_read_once_for_all_its_jobs_and_kept_within_bounds() -> None:
    shelf = Shelf()
    pin = shelf.put_calendar(CHRISTMAS)
    keys = [shelf.put(spec=spec_with_calendar(pin)) for _ in range(3)]
    jobs = jobs_over(shelf, max_calendars=1)
    await jobs.load(keys[:2])
    await jobs.load(keys[2:])
    assert shelf.asked_calendars == [pin]
    await jobs.load([shelf.put(spec=spec_with_calendar(shelf.put_calendar(CHRISTMAS)))])
    jobs.forget(keys[:1])
    await jobs.load(keys[:1])
    assert shelf.asked_calendars.count(pin) == 2


async def test_jobs_without_calendars_ask_for_none() -> None:
    shelf = Shelf()
    jobs = jobs_over(shelf)
    await jobs.load([shelf.put()])
    assert shelf.asked_calendars == []
