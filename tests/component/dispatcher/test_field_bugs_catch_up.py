"""Cases of the field bug log about time that was missed: downtime, sleep, pauses, restarts. Whole dispatchers, real
rows, every policy; what runs, what is recorded as skipped, what stands next."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest

from controlplane.ledger import LedgerKind
from controlplane.next_version import PausedOccurrences
from core.clock import US_PER_S
from core.intervals import Every
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap
from core.schedule import Schedule
from core.states import SkipReason
from tests.component.dispatcher.conftest import Departure
from tests.support.time_machine import TimeMachine, shown, us

MINUTELY = Schedule(cron=("* * * * *",))
DAY_US = 24 * 3600 * US_PER_S
# Less than how late the last missed minute is found in these cases: what the grace covers runs under every policy.
GRACE_US = 10 * US_PER_S
SKIP = CatchUp(CatchUpMode.SKIP, GRACE_US)
LATEST = CatchUp(CatchUpMode.LATEST, GRACE_US)
CAPPED = CatchUp(CatchUpMode.ALL, GRACE_US)
WHOLE = CatchUp(CatchUpMode.ALL, GRACE_US, max_runs=1_000)
BACKWARDS = CatchUp(CatchUpMode.ALL, GRACE_US, order=CatchUpOrder.NEWEST_FIRST)


@dataclass(frozen=True)
class Policies:
    """A job for each policy, alike in everything else. Their runs may overlap: what is caught up comes in a crowd."""

    machine: TimeMachine
    jobs: dict[str, UUID]

    @classmethod
    async def made(cls, machine: TimeMachine, schedule: Schedule, **policies: CatchUp) -> Policies:
        made = {
            name: await machine.create(schedule, catch_up=one, overlap=Overlap.ALLOW) for name, one in policies.items()
        }
        return cls(machine, made)

    async def ran(self, since: str) -> dict[str, list[str]]:
        """What ran of the occurrences after an instant, by policy."""
        after = {name: await self.machine.ran(job_id) for name, job_id in self.jobs.items()}
        return {name: [at for at in ran if us(at) > us(since)] for name, ran in after.items()}

    async def skipped(self) -> dict[str, list[tuple[str, str, SkipReason]]]:
        return {name: await self.machine.skipped(job_id) for name, job_id in self.jobs.items()}

    async def stand(self) -> set[str | None]:
        return {await self.machine.next_due(job_id) for job_id in self.jobs.values()}


def minutes(first: str, last: str) -> list[str]:
    """Every minute from `first` to `last`, both inclusive."""
    return [shown(at) for at in range(us(first), us(last) + 1, 60 * US_PER_S)]


async def test_b50_a_night_of_missed_minutes_is_caught_up_by_the_policy_and_the_next_minute_runs(
    depart: Departure,
) -> None:
    machine = await depart("2026-01-10T21:58:30Z")
    policies = await Policies.made(
        machine, MINUTELY, skip=SKIP, latest=LATEST, capped=CAPPED, whole=WHOLE, backwards=BACKWARDS
    )
    await machine.run_until("2026-01-10T22:00:10Z")
    await machine.crash()
    await machine.leap_to("2026-01-11T06:00:30Z")
    await machine.owner(catch_up_runs_per_s=10_000.0)
    await machine.run_until("2026-01-11T06:02:30Z")

    normal = ["2026-01-11T06:01:00Z", "2026-01-11T06:02:00Z"]
    last_six = minutes("2026-01-11T05:55Z", "2026-01-11T06:00Z")
    assert await policies.ran(since="2026-01-10T22:00:10Z") == {
        "skip": normal,
        "latest": ["2026-01-11T06:00:00Z", *normal],
        "capped": [*last_six, *normal],
        "whole": [*minutes("2026-01-10T22:01Z", "2026-01-11T06:00Z"), *normal],
        "backwards": [*last_six, *normal],
    }
    made = [run["created_us"] for run in await machine.room.runs(policies.jobs["whole"])]
    assert made == sorted(made), "in the order of their instants"
    back = [run["created_us"] for run in await machine.room.runs(policies.jobs["backwards"])][2:8]
    assert back == sorted(back, reverse=True), "from the newest back"
    first = "2026-01-10T22:01:00Z"
    assert await policies.skipped() == {
        "skip": [(first, "2026-01-11T06:00:00Z", SkipReason.CATCH_UP)],
        "latest": [(first, "2026-01-11T05:59:00Z", SkipReason.CATCH_UP)],
        "capped": [(first, "2026-01-11T05:54:00Z", SkipReason.CATCH_UP)],
        "whole": [],
        "backwards": [(first, "2026-01-11T05:54:00Z", SkipReason.CATCH_UP)],
    }
    assert await policies.stand() == {"2026-01-11T06:03:00Z"}
    assert (await machine.ledger(policies.jobs["capped"]))[LedgerKind.SKIPPED] == 474, "the number dropped is reported"
    await machine.check()


@pytest.mark.parametrize("choice", [PausedOccurrences.SKIP, PausedOccurrences.CATCH_UP], ids=lambda c: c.name.lower())
async def test_b52_what_a_pause_held_back_follows_the_choice_and_the_job_goes_on(
    depart: Departure, choice: PausedOccurrences
) -> None:
    machine = await depart("2026-01-12T09:58:30Z")
    policies = await Policies.made(machine, MINUTELY, skip=SKIP, latest=LATEST, capped=CAPPED)
    await machine.run_until("2026-01-12T10:00:30Z")
    for job_id in policies.jobs.values():
        await machine.pause(job_id)
    await machine.run_until("2026-01-12T10:10:30Z")
    assert await policies.stand() == {None}
    for job_id in policies.jobs.values():
        await machine.resume(job_id, choice)
    await machine.run_until("2026-01-12T10:11:30Z")

    caught_up = choice is PausedOccurrences.CATCH_UP
    normal, first, last = ["2026-01-12T10:11:00Z"], "2026-01-12T10:01:00Z", "2026-01-12T10:10:00Z"
    assert await policies.ran(since="2026-01-12T10:00:30Z") == {
        "skip": normal,
        "latest": [last, *normal] if caught_up else normal,
        "capped": [*minutes("2026-01-12T10:05Z", last), *normal] if caught_up else normal,
    }
    assert await policies.skipped() == {
        "skip": [(first, last, SkipReason.CATCH_UP if caught_up else SkipReason.PAUSED)],
        "latest": [(first, "2026-01-12T10:09:00Z", SkipReason.CATCH_UP)]
        if caught_up
        else [(first, last, SkipReason.PAUSED)],
        "capped": [(first, "2026-01-12T10:04:00Z", SkipReason.CATCH_UP)]
        if caught_up
        else [(first, last, SkipReason.PAUSED)],
    }
    assert await policies.stand() == {"2026-01-12T10:12:00Z"}

    for job_id in policies.jobs.values():  # and after three days
        await machine.pause(job_id)
    await machine.run_until("2026-01-15T10:11:30Z")
    for job_id in policies.jobs.values():
        await machine.resume(job_id, choice)
    await machine.run_until("2026-01-15T10:12:30Z")
    ran = await policies.ran(since="2026-01-12T10:11:30Z")
    assert {name: at[-1] for name, at in ran.items()} == dict.fromkeys(ran, "2026-01-15T10:12:00Z")
    counts = {"skip": 1, "latest": 2, "capped": 7} if caught_up else {"skip": 1, "latest": 1, "capped": 1}
    assert {name: len(at) for name, at in ran.items()} == counts
    assert {len(rows) for rows in (await policies.skipped()).values()} == {2}, "three days of minutes are one row"
    await machine.check()


@pytest.mark.parametrize("how", ["down", "paused"])
async def test_b53_an_interval_makes_up_for_what_it_missed_as_a_line_does(depart: Departure, how: str) -> None:
    machine = await depart("2018-11-15T12:00Z")
    anchor = Every(elapsed_us=DAY_US, anchor_us=us("2018-11-15T00:00Z"))
    jobs = [await machine.create(s) for s in (Schedule(every=(anchor,)), Schedule(cron=("0 0 * * *",)))]
    await machine.run_until("2018-11-17T12:00Z")
    if how == "down":
        await machine.crash()
        await machine.leap_to("2018-11-19T09:00Z")
        await machine.owner()
    else:
        for job in jobs:
            await machine.pause(job)
        await machine.run_until("2018-11-19T09:00Z")
        for job in jobs:
            await machine.resume(job, PausedOccurrences.CATCH_UP)
    await machine.run_until("2018-11-19T12:00Z")
    for job in jobs:
        assert await machine.ran(job) == ["2018-11-16T00:00:00Z", "2018-11-17T00:00:00Z", "2018-11-19T00:00:00Z"]
        only = ("2018-11-18T00:00:00Z", "2018-11-18T00:00:00Z", SkipReason.CATCH_UP)
        assert await machine.skipped(job) == [only]
        assert await machine.next_due(job) == "2018-11-20T00:00:00Z"
    await machine.check()


async def test_b55_minutes_that_were_slept_make_no_runs_whatever_the_sleep_was(depart: Departure) -> None:
    machine = await depart("2026-01-12T09:58:30Z")
    job = await machine.create(MINUTELY, catch_up=SKIP)
    within_grace = await machine.create(MINUTELY, catch_up=CatchUp(CatchUpMode.SKIP))
    await machine.run_until("2026-01-12T10:00:10Z")
    await machine.leap_to("2026-01-12T10:04:50Z")  # the process stood still
    await machine.run_until("2026-01-12T10:10:10Z")
    await machine.crash()  # it was restarted
    await machine.leap_to("2026-01-12T10:14:50Z")
    await machine.owner()
    await machine.run_until("2026-01-12T10:20:10Z")
    await machine.database_clock_jumps(280)  # the clock that decides went ahead
    await machine.run_until("2026-01-12T10:26:30Z")

    slept = [("2026-01-12T10:01Z", "10:04"), ("2026-01-12T10:11Z", "10:14"), ("2026-01-12T10:21Z", "10:24")]
    assert await machine.skipped(job) == [
        (f"{low[:-1]}:00Z", f"2026-01-12T{high}:00Z", SkipReason.CATCH_UP) for low, high in slept
    ]
    missed = {at for low, high in slept for at in minutes(low, f"2026-01-12T{high}Z")}
    every = minutes("2026-01-12T09:59Z", "2026-01-12T10:26Z")
    assert await machine.ran(job) == [at for at in every if at not in missed]
    # The grace of a minute covers the last one of each sleep, in all three ways alike.
    kept = {f"2026-01-12T{high}:00Z" for _, high in slept}
    assert await machine.ran(within_grace) == [at for at in every if at not in missed - kept]
    await machine.check()


async def test_b56_a_late_run_does_not_move_the_interval(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00Z")
    anchor = us("2026-01-09T23:55Z")
    job = await machine.create(Schedule(every=(Every(elapsed_us=DAY_US, anchor_us=anchor),)))
    await machine.run_until("2026-01-10T22:30Z")
    await machine.crash()
    await machine.leap_to("2026-01-11T00:05Z")
    await machine.owner()
    await machine.settle()
    assert await machine.ran(job) == ["2026-01-10T23:55:00Z"]
    assert await machine.next_due(job) == "2026-01-11T23:55:00Z", "not a day after the late run"
    await machine.run_until("2026-01-12T12:00Z")
    assert await machine.ran(job) == ["2026-01-10T23:55:00Z", "2026-01-11T23:55:00Z"]
    assert await machine.skipped(job) == []
    await machine.check()


async def test_b57_an_interval_longer_than_the_time_between_restarts_runs(depart: Departure) -> None:
    machine = await depart("2026-01-10T01:00Z")
    began_us = us("2026-01-10T01:00Z")
    job = await machine.create(Schedule(every=(Every(elapsed_us=DAY_US, anchor_us=began_us),)))
    for step in range(1, 13):
        await machine.run_until(began_us + step * DAY_US // 4 - 60 * US_PER_S)
        await machine.crash()
        await machine.owner()
    await machine.run_until(began_us + 3 * DAY_US)
    assert [us(at) for at in await machine.ran(job)] == [began_us + day * DAY_US for day in (1, 2, 3)]
    assert await machine.skipped(job) == []
    await machine.check()


async def test_b59_a_one_off_in_the_past_or_missed_is_done_with_at_once_by_its_policy(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00Z")
    policies = {"skip": CatchUp(CatchUpMode.SKIP), "latest": CatchUp(), "all": CatchUp(CatchUpMode.ALL)}
    hour_ago, just_now = us("2026-01-10T11:00Z"), machine.now_us - US_PER_S
    later = us("2026-01-10T12:05Z")
    jobs = {
        (what, name): await machine.create(Schedule(at_us=(at_us,)), catch_up=policy)
        for name, policy in policies.items()
        for what, at_us in (("an hour ago", hour_ago), ("just now", just_now), ("missed", later))
    }
    await machine.run_until("2026-01-10T12:01Z")
    await machine.crash()
    await machine.leap_to("2026-01-10T12:11Z")
    await machine.owner()
    await machine.run_until("2026-01-10T12:30Z")
    for (what, name), job in jobs.items():
        at = {"an hour ago": hour_ago, "just now": just_now, "missed": later}[what]
        # Within the grace it runs under every policy; beyond it, "skip" records it as missed.
        runs = name != "skip" or what == "just now"
        assert [us(one) for one in await machine.ran(job)] == ([at] if runs else []), (what, name)
        skipped = [(us(low), us(high), reason) for low, high, reason in await machine.skipped(job)]
        assert skipped == ([] if runs else [(at, at, SkipReason.CATCH_UP)]), (what, name)
        assert await machine.next_due(job) is None, "it is over, and nothing stands that never comes"
    await machine.check()


async def test_b66_an_owner_that_dies_before_the_hour_loses_nothing_that_is_due_in_it(depart: Departure) -> None:
    machine = await depart("2026-01-10T03:00Z")
    job = await machine.create(Schedule(cron=("0 4 * * *",)))
    await machine.run_until("2026-01-10T03:59:10Z")
    await machine.crash()
    await machine.leap_to("2026-01-10T03:59:40Z")
    await machine.owner()
    await machine.run_until("2026-01-10T04:10Z")
    assert await machine.ran(job) == ["2026-01-10T04:00:00Z"]
    ((_, late_us),) = await machine.started(job)
    assert 0 <= late_us < US_PER_S
    assert await machine.next_due(job) == "2026-01-11T04:00:00Z"
    await machine.check()


async def test_b67_after_five_deaths_in_a_row_everything_still_runs(depart: Departure) -> None:
    machine = await depart("2026-01-10T03:59Z")
    job = await machine.create(Schedule(cron=("*/2 * * * *",)))
    for death in range(5):
        await machine.run_until(us("2026-01-10T04:00:45Z") + death * 30 * US_PER_S)
        await machine.crash()
        await machine.owner()
    await machine.run_until("2026-01-10T04:10:30Z")
    assert await machine.ran(job) == [f"2026-01-10T04:{minute:02}:00Z" for minute in range(0, 11, 2)]
    assert await machine.skipped(job) == []
    for shard in range(4):
        rows = await machine.room.eye.fetch("SELECT term, owner FROM shard_terms WHERE shard = $1 ORDER BY term", shard)
        assert [row["term"] for row in rows] == [1, 2, 3, 4, 5, 6], "terms grow by one at each death"
        assert len({row["owner"] for row in rows}) == 6
    await machine.check()
