"""Cases of the field bug log about long waits, jitter and overlap, through a whole dispatcher."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core.clock import US_PER_S
from core.policy import Overlap
from core.schedule import Schedule
from core.states import RunState, SkipReason
from tests.component.dispatcher.conftest import Departure
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.time_machine import TimeMachine, shown, us

MINUTELY = Schedule(cron=("* * * * *",))


@dataclass
class Wakings:
    """How often a dispatcher's due loop looked at what is due."""

    count: int = 0

    def of(self, dispatcher: RunningDispatcher) -> Wakings:
        due = dispatcher.parts.loops.due
        original = due.step

        async def step() -> bool:
            self.count += 1
            return await original()

        due.step = step  # type: ignore[method-assign]
        return self


async def test_b46_a_wait_of_months_or_years_neither_fires_at_once_nor_keeps_the_loop_awake(depart: Departure) -> None:
    tick_s = 20.0
    machine = await depart("2026-01-02T00:00Z", tick_s=tick_s)
    monthly = await machine.create(Schedule(cron=("0 4 1 * *",)))
    yearly = await machine.create(Schedule(cron=("0 9 1 3 *",)))
    once = await machine.create(Schedule(at_us=(us("2031-01-01T00:00Z"),)))
    assert machine.owned_by is not None
    wakings = Wakings().of(machine.owned_by)
    await machine.clock.advance(180)
    assert wakings.count <= 180 / tick_s + 2, "nothing but the tick wakes it"
    await machine.run_until("2026-01-02T01:00Z")
    assert await machine.room.runs() == [], "no run in the first hour"
    assert await machine.next_due(monthly) == "2026-02-01T04:00:00Z"
    assert await machine.next_due(yearly) == "2026-03-01T09:00:00Z"
    assert await machine.next_due(once) == "2031-01-01T00:00:00Z"

    await machine.run_until("2026-03-01T10:00Z")
    assert await machine.ran(monthly) == ["2026-02-01T04:00:00Z", "2026-03-01T04:00:00Z"]
    assert await machine.ran(yearly) == ["2026-03-01T09:00:00Z"]
    assert await machine.ran(once) == []
    await machine.run_until("2031-01-01T00:05Z")
    assert await machine.ran(once) == ["2031-01-01T00:00:00Z"]
    assert len(await machine.ran(monthly)) == 59
    assert len(await machine.ran(yearly)) == 5
    assert await machine.next_due(once) is None
    await machine.check()


async def test_b47_jitter_is_never_negative_and_no_slot_runs_twice(depart: Departure) -> None:
    machine = await depart("2026-01-10T00:30Z")
    window_us = 120 * US_PER_S
    jobs = [await machine.create(Schedule(cron=("0 * * * *",), jitter_us=window_us)) for _ in range(4)]
    await machine.run_until("2026-01-11T00:30Z")
    hours = [f"2026-01-10T{hour:02}:00:00Z" for hour in range(1, 24)] + ["2026-01-11T00:00:00Z"]
    offsets = set()
    for job in jobs:
        started = await machine.started(job)
        assert [at for at, _ in started] == hours, "24 runs, of distinct nominal times"
        assert all(0 <= late_us <= window_us + US_PER_S for _, late_us in started)
        due = {run["due_at_us"] - run["scheduled_for_us"] for run in await machine.room.runs(job)}
        assert len(due) == 1, "the offset of a job is fixed"
        (offset_us,) = due
        assert 0 <= offset_us <= window_us
        offsets.add(offset_us)
        assert us(str(await machine.next_due(job))) == us("2026-01-11T01:00Z") + offset_us
    assert len(offsets) > 1, "jobs are spread"
    await machine.check()


async def test_b49_slots_follow_the_nominal_time_and_none_is_put_off_past_the_end(depart: Departure) -> None:
    machine = await depart("2026-01-10T09:59:30Z")
    jitter_us, end_us = 59 * US_PER_S, us("2026-01-10T10:30Z")
    open_ended = await machine.create(Schedule(cron=("* * * * *",), jitter_us=jitter_us))
    ending = [await machine.create(Schedule(cron=("* * * * *",), jitter_us=jitter_us, end_us=end_us)) for _ in range(3)]
    # An end so soon after the last slot that every offset reaches beyond it.
    close = await machine.create(Schedule(cron=("* * * * *",), jitter_us=jitter_us, end_us=end_us - 59_999_000))
    await machine.run_until("2026-01-10T11:00:30Z")

    minutes = [f"2026-01-10T10:{minute:02}:00Z" for minute in range(60)]
    assert (await machine.ran(open_ended))[:60] == minutes, "60 distinct nominal minutes"
    for job in ending:
        assert await machine.ran(job) == minutes[:30], "the last one before the exclusive end is not lost"
        assert all(run["due_at_us"] < end_us for run in await machine.room.runs(job))
        assert await machine.next_due(job) is None
    assert (await machine.ran(close))[-1] == "2026-01-10T10:29:00Z"
    assert (await machine.room.runs(close))[-1]["due_at_us"] < end_us - 59_999_000
    for job in [open_ended, *ending, close]:
        assert all(late_us <= 60 * US_PER_S for _, late_us in await machine.started(job))
        assert await machine.skipped(job) == []
    await machine.check()


async def test_b62_what_is_due_during_a_run_is_skipped_for_good_where_overlap_is_forbidden(depart: Departure) -> None:
    machine = await depart("2026-01-10T09:59:30Z")
    job = await machine.create(MINUTELY, handler="long", overlap=Overlap.SKIP)
    for end in ("10:01:30", "10:03:30", "10:05:30"):  # each run takes 90 s
        await machine.run_until(f"2026-01-10T{end}Z")
        await machine.finish(job)
    assert await _starts(machine, job) == ["10:00 at 10:00:00", "10:02 at 10:02:00", "10:04 at 10:04:00"]
    assert await machine.skipped(job) == [
        (f"2026-01-10T10:0{minute}:00Z", f"2026-01-10T10:0{minute}:00Z", SkipReason.OVERLAP) for minute in (1, 3, 5)
    ]
    assert await machine.next_due(job) == "2026-01-10T10:06:00Z"
    await machine.check()


async def test_b62_what_is_due_during_a_run_starts_at_its_end_where_one_may_wait(depart: Departure) -> None:
    machine = await depart("2026-01-10T09:59:30Z")
    job = await machine.create(MINUTELY, handler="long", overlap=Overlap.BUFFER_ONE)
    for end in ("10:01:30", "10:03:00", "10:04:30"):  # each run takes 90 s
        await machine.run_until(f"2026-01-10T{end}Z")
        await machine.finish(job)
    assert await _starts(machine, job) == [
        "10:00 at 10:00:00",
        "10:01 at 10:01:30",
        "10:02 at 10:03:00",
        "10:04 at 10:04:30",
    ]
    full = ("2026-01-10T10:03:00Z", "2026-01-10T10:03:00Z", SkipReason.BUFFER_FULL)
    assert await machine.skipped(job) == [full], "10:02 waited already"
    assert await machine.next_due(job) == "2026-01-10T10:05:00Z"
    await machine.finish(job)
    await machine.check()


async def test_b60_a_restart_does_not_forget_the_run_that_is_under_way(depart: Departure) -> None:
    machine = await depart("2026-01-10T09:59:30Z")
    job = await machine.create(MINUTELY, handler="long", overlap=Overlap.SKIP)
    await machine.run_until("2026-01-10T10:00:40Z")
    running = await machine.crash()  # while the worker goes on
    assert len(running) == 1
    await machine.owner(running)
    await machine.run_until("2026-01-10T10:02:30Z")
    await machine.finish(job)  # after 150 s
    await machine.run_until("2026-01-10T10:03:30Z")
    assert await _starts(machine, job) == ["10:00 at 10:00:00", "10:03 at 10:03:00"]
    first, second = await machine.room.runs(job)
    assert (first["attempt"], first["state"]) == (1, RunState.SUCCEEDED)
    assert first["ended_us"] <= second["started_us"], "at most one runs at any instant"
    assert await machine.skipped(job) == [
        (f"2026-01-10T10:0{minute}:00Z", f"2026-01-10T10:0{minute}:00Z", SkipReason.OVERLAP) for minute in (1, 2)
    ]
    await machine.finish(job)
    await machine.check()


async def _starts(machine: TimeMachine, job: UUID) -> list[str]:
    """Which occurrence started when, to the second."""
    runs = await machine.room.runs(job)
    return [f"{_clock(run['scheduled_for_us'])[:5]} at {_clock(run['started_us'])}" for run in runs]


def _clock(instant_us: int) -> str:
    return shown(instant_us)[11:19]
