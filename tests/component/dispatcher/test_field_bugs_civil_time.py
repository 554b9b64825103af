"""Cases of the field bug log about zones and their changes, through a whole dispatcher that is never restarted: what
runs, what stands next, and that a rule which leaves an occurrence out leaves a trace of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

import core.zones
from core.firetimes import GapRule, RepeatRule
from core.schedule import Schedule
from core.states import SkipReason
from tests.component.dispatcher.conftest import Departure
from tests.support.time_machine import TimeMachine

GAP_RULES, REPEAT_RULES = list(GapRule), list(RepeatRule)


def cron(line: str, zone: str, **rules: str) -> Schedule:
    return Schedule(cron=(line,), zone=zone, **rules)  # type: ignore[arg-type]


async def by_rule(machine: TimeMachine, line: str, zone: str, rule: str) -> dict[str, UUID]:
    """One job for each value of a rule (gap or repeat)."""
    values: list[str] = [*(GAP_RULES if rule == "gap" else REPEAT_RULES)]
    return {str(value): await machine.create(cron(line, zone, **{rule: value})) for value in values}


async def found(machine: TimeMachine, jobs: Mapping[str, UUID]) -> dict[str, list[str]]:
    return {name: await machine.ran(job_id) for name, job_id in jobs.items()}


async def stand(machine: TimeMachine, jobs: Mapping[str, UUID]) -> dict[str, str | None]:
    return {name: await machine.next_due(job_id) for name, job_id in jobs.items()}


async def test_b02_a_time_in_the_spring_gap_runs_once_at_its_end(depart: Departure) -> None:
    machine = await depart("2025-03-08T12:00Z")
    jobs = await by_rule(machine, "0 2 * * *", "America/Los_Angeles", "gap")
    await machine.run_until("2025-03-10T12:00Z")
    end = ["2025-03-09T10:00:00Z", "2025-03-10T09:00:00Z"]
    assert await found(machine, jobs) == {"end": end, "shift": end, "skip": ["2025-03-10T09:00:00Z"]}
    assert set((await stand(machine, jobs)).values()) == {"2025-03-11T09:00:00Z"}
    for job_id in jobs.values():
        assert await machine.skipped(job_id) == [], "what a rule leaves out is no occurrence that was missed"
    shown = await machine.entries(jobs["skip"], "2025-03-09T00:00Z", "2025-03-10T00:00Z")
    assert [(at, marks) for at, marks, excluded in shown if excluded] == [("2025-03-09T10:00:00Z", ("gap", "excluded"))]
    await machine.check()


async def test_b03_a_job_in_the_gap_holds_no_other_job_up(depart: Departure, caplog: pytest.LogCaptureFixture) -> None:
    machine = await depart("2016-03-13T07:55Z")
    jobs = await by_rule(machine, "30 2 * * *", "America/Chicago", "gap")
    other = await machine.create(cron("*/5 * * * *", "UTC"))
    await machine.run_until("2016-03-13T09:00Z")
    assert await machine.ran(other) == [
        *(f"2016-03-13T08:{minute:02}:00Z" for minute in range(0, 60, 5)),
        "2016-03-13T09:00:00Z",
    ]
    assert await found(machine, jobs) == {
        "end": ["2016-03-13T08:00:00Z"],
        "shift": ["2016-03-13T08:30:00Z"],
        "skip": [],
    }
    assert set((await stand(machine, jobs)).values()) == {"2016-03-14T07:30:00Z"}
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
    await machine.check()


async def test_b08_an_offset_that_is_over_is_not_used_any_more(depart: Departure) -> None:
    machine = await depart("2013-10-21T10:00Z")
    job = await machine.create(cron("0 12 * * 1", "Europe/Amsterdam"))
    await machine.run_until("2013-10-28T12:30Z")
    assert await machine.ran(job) == ["2013-10-28T11:00:00Z"], "one run that day, and none at 10:00Z"
    assert await machine.next_due(job) == "2013-11-04T11:00:00Z"
    await machine.check()


async def test_b11_half_an_hour_that_repeats_runs_once_unless_both_passes_are_wanted(depart: Departure) -> None:
    machine = await depart("2026-04-04T12:00Z")
    jobs = await by_rule(machine, "45 1 * * *", "Australia/Lord_Howe", "repeat")
    await machine.run_until("2026-04-04T15:30Z")
    assert await found(machine, jobs) == {
        "first": ["2026-04-04T14:45:00Z"],
        "second": ["2026-04-04T15:15:00Z"],
        "both": ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"],
    }
    assert set((await stand(machine, jobs)).values()) == {"2026-04-05T15:15:00Z"}
    await machine.run_until("2026-04-06T16:00Z")
    for ran in (await found(machine, jobs)).values():
        assert ran[-2:] == ["2026-04-05T15:15:00Z", "2026-04-06T15:15:00Z"]
    await machine.check()


@pytest.mark.parametrize("restart", [False, True], ids=["never-restarted", "restarted"])
async def test_b22_a_long_lived_process_follows_dublin_through_both_changes(depart: Departure, restart: bool) -> None:
    machine = await depart("2025-10-24T12:00Z")
    daily = await machine.create(cron("5 2 * * *", "Europe/Dublin"))
    await machine.run_until("2025-10-25T12:00Z")
    autumn = await by_rule(machine, "30 1 * * *", "Europe/Dublin", "repeat")
    if restart:
        await machine.run_until("2025-10-26T00:10Z")  # between the passes of the hour that repeats, 00:00Z to 02:00Z
        await machine.crash()
        await machine.owner()
    await machine.run_until("2025-10-27T03:00Z")
    assert await machine.ran(daily) == ["2025-10-25T01:05:00Z", "2025-10-26T02:05:00Z", "2025-10-27T02:05:00Z"]
    assert await found(machine, autumn) == {
        "first": ["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"],
        "second": ["2025-10-26T01:30:00Z", "2025-10-27T01:30:00Z"],
        "both": ["2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z", "2025-10-27T01:30:00Z"],
    }
    for job_id in [daily, *autumn.values()]:
        await machine.delete(job_id)

    await machine.leap_to("2026-03-28T12:00Z")
    spring = await by_rule(machine, "30 1 * * *", "Europe/Dublin", "gap")
    await machine.run_until("2026-03-31T00:35Z")
    assert await found(machine, spring) == {
        "end": ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
        "shift": ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
        "skip": ["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
    }
    assert set((await stand(machine, spring)).values()) == {"2026-04-01T00:30:00Z"}
    await machine.check()


async def test_b24_no_two_runs_begin_at_one_moment_on_the_spring_date(depart: Departure) -> None:
    machine = await depart("2023-03-12T04:00Z")
    job = await machine.create(cron("0 */2 * * *", "America/Toronto"))
    await machine.run_until("2023-03-12T13:00Z")
    expected = ["2023-03-12T05:00:00Z", "2023-03-12T08:00:00Z", "2023-03-12T10:00:00Z", "2023-03-12T12:00:00Z"]
    assert await machine.ran(job) == expected, "none at 07:00Z: that wall time does not exist"
    assert [late for _, late in await machine.started(job) if late > 1_000_000] == []
    assert await machine.skipped(job) == []
    assert await machine.next_due(job) == "2023-03-12T14:00:00Z"
    await machine.check()


@pytest.fixture
def process_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Lets a test set TZ for this process by `setenv`; it is what it was afterwards."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


async def test_b26_the_zones_of_process_and_database_mean_nothing(
    depart: Departure, process_zone: pytest.MonkeyPatch
) -> None:
    process_zone.setenv("TZ", "America/New_York")
    time.tzset()
    machine = await depart("2021-04-08T00:00Z")
    database = await machine.room.eye.fetchval("SELECT current_database()")
    await machine.room.eye.execute(f"""ALTER DATABASE "{database}" SET timezone = 'Asia/Tokyo'""")
    await machine.crash()
    await machine.owner()  # with connections that were made since
    job = await machine.create(cron("1 12 * * *", "Europe/Rome"))
    await machine.run_until("2021-04-10T00:00Z")
    assert await machine.ran(job) == ["2021-04-08T10:01:00Z", "2021-04-09T10:01:00Z"]
    assert await machine.next_due(job) == "2021-04-10T10:01:00Z"
    await machine.check()


async def test_b27_a_job_west_of_the_servers_zone_runs_once_a_day(
    depart: Departure, process_zone: pytest.MonkeyPatch
) -> None:
    process_zone.setenv("TZ", "Europe/Vilnius")
    time.tzset()
    machine = await depart("2025-05-20T00:00Z")
    job = await machine.create(cron("0 6 * * *", "America/Los_Angeles"))
    await machine.run_until("2025-05-22T00:00Z")
    assert await machine.ran(job) == ["2025-05-20T13:00:00Z", "2025-05-21T13:00:00Z"]
    assert await machine.next_due(job) == "2025-05-22T13:00:00Z"
    await machine.check()


async def test_b32_a_job_whose_zone_has_no_data_is_set_aside_alone_and_picked_up_again(
    depart: Departure, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await depart("2026-01-10T12:00Z")
    singapore = await machine.create(cron("10 * * * *", "Asia/Singapore"), name="singapore")
    others = [await machine.create(cron("10 * * * *", zone)) for zone in ("UTC", "Europe/Berlin")]
    await machine.crash()

    def without_data(name: str) -> ZoneInfo:
        if name == "Asia/Singapore":
            raise ZoneInfoNotFoundError(name)
        return ZoneInfo(name)

    with monkeypatch.context() as broken:
        broken.setattr(core.zones, "ZoneInfo", without_data)
        core.zones.zone_table.cache_clear()
        await machine.owner()
        await machine.run_until("2026-01-10T14:30Z")
        assert await machine.ran(singapore) == [], "it never runs in UTC instead"
        assert "Asia/Singapore" in await machine.error_of(singapore)
        for other in others:
            assert await machine.ran(other) == ["2026-01-10T12:10:00Z", "2026-01-10T13:10:00Z", "2026-01-10T14:10:00Z"]

    await machine.run_until("2026-01-10T16:30Z")
    assert await machine.ran(singapore) == ["2026-01-10T14:10:00Z", "2026-01-10T15:10:00Z", "2026-01-10T16:10:00Z"]
    missed = [("2026-01-10T12:10:00Z", "2026-01-10T13:10:00Z", SkipReason.CATCH_UP)]
    assert await machine.skipped(singapore) == missed
    assert await machine.error_of(singapore) == "", "nothing is wrong with it any more"
    assert await machine.next_due(singapore) == "2026-01-10T17:10:00Z"
    await machine.check()
