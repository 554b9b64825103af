"""The missed-fire watch beside a whole dispatcher: each cause is named and counted, and gone after the cure; and a busy
system that is well gives no alarm, whatever its jobs do."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from controlplane.leader import Seat
from controlplane.membership import Roster
from controlplane.missed_fires import Heard, MissedFires
from controlplane.next_version import PausedOccurrences
from core.calendars import Window, WindowAction, Windows, content_to_json
from core.clock import US_PER_S, ClockReading, DatabaseClock
from core.enumerator import Enumerator
from core.intervals import Every
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap
from core.schedule import Schedule
from core.store.cluster import read_cluster
from core.telemetry.control_plane_metrics import MissedFire
from tests.component.dispatcher.conftest import Departure
from tests.support.polling import eventually
from tests.support.time_machine import TimeMachine, us

MINUTELY = Schedule(cron=("* * * * *",))
AFTER_S = 30.0


class Watch:
    """The watch of one replica, on the machine's clock; the test decides when it looks."""

    def __init__(self, machine: TimeMachine, seat: Seat, clock: DatabaseClock, fires: MissedFires) -> None:
        self._machine = machine
        self._clock = clock
        self.seat = seat
        self.fires = fires

    @classmethod
    async def over(cls, machine: TimeMachine) -> Watch:
        room, clock, seat = machine.room, DatabaseClock(machine.clock), Seat()
        cluster = await read_cluster(room.database)
        heard = Heard(room.leader, seat)
        fires = MissedFires(room.database, cluster, clock, heard, Enumerator(), after_s=AFTER_S)
        watch = cls(machine, seat, clock, fires)
        watch.look_at_the_clock()
        return watch

    def look_at_the_clock(self) -> None:
        now_s = self._machine.clock.monotonic_s()
        self._clock.observe(ClockReading(self._machine.now_us, now_s, now_s))

    async def finds(self, looks: int = 2) -> dict[MissedFire, int]:
        """What it counts after so many looks, one right after the other."""
        for _ in range(looks):
            self.look_at_the_clock()
            await self.fires.step()
        return dict(self.fires.counts)

    @property
    def lines(self) -> str:
        return "\n".join(self.fires.problems())


async def spoil(machine: TimeMachine, job_id: UUID, stored: str) -> str:
    """Overwrite what the job says; returns what stood there."""
    query = "SELECT spec FROM job_versions WHERE job_id = $1"
    was = str(await machine.room.eye.fetchval(query, job_id))
    await machine.room.eye.execute("UPDATE job_versions SET spec = $2 WHERE job_id = $1", job_id, stored)
    return was


async def test_no_open_term(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    await machine.create(MINUTELY, name="nightly")
    await machine.crash()
    await machine.room.eye.execute("UPDATE shard_terms SET state = 2")
    await machine.leap_to("2026-01-10T12:01:29Z")
    assert await watch.finds() == {}, "not yet 30 s late"
    await machine.leap_to("2026-01-10T12:01:31Z")
    assert await watch.finds(looks=1) == {}, "seen only once"
    assert await watch.finds(looks=1) == {MissedFire.NO_TERM: 1}
    line = "1 overdue by more than 30 s, no dispatcher owns the shard: default/nightly, due 2026-01-10T12:01:00.000Z"
    assert watch.lines.startswith(line)
    await machine.room.eye.execute("UPDATE shard_terms SET state = 1")
    await machine.owner()
    await machine.settle()
    assert await watch.finds() == {}
    assert watch.lines == ""


async def test_an_owner_that_is_not_heard_of(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    for number in range(5):
        await machine.create(MINUTELY, name=f"job-{number}")
    assert machine.owned_by is not None
    gone = machine.owned_by.name
    await machine.crash()
    await machine.leap_to("2026-01-10T12:05:00Z")
    await eventually(lambda: gone not in machine.room.leader.members(), what="etcd has forgotten it")
    assert await watch.finds() == {MissedFire.OWNER_SILENT: 5}
    assert f"of {gone}" in watch.lines
    assert "; and 2 more" in watch.lines
    await machine.owner()
    await machine.settle()
    assert await watch.finds() == {}


async def test_a_leader_goes_by_its_own_judgement_of_who_is_alive(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    await machine.create(MINUTELY)
    assert machine.owned_by is not None
    hold_still(machine)
    watch.seat.roster = Roster(frozenset(), frozenset(), frozenset(), frozenset({machine.owned_by.name}), False)
    await machine.clock.leap(120)
    assert await watch.finds() == {MissedFire.OWNER_SILENT: 1}


def hold_still(machine: TimeMachine) -> None:
    """From now on the owner fires nothing, though it is alive."""

    async def nothing() -> bool:
        return False

    assert machine.owned_by is not None
    machine.owned_by.parts.loops.due.step = nothing  # type: ignore[method-assign]


async def test_an_owner_that_is_alive_and_does_not_fire(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    await machine.create(MINUTELY, name="stuck")
    assert machine.owned_by is not None
    original = machine.owned_by.parts.loops.due.step
    hold_still(machine)
    await machine.clock.leap(120)
    assert await watch.finds() == {MissedFire.STUCK: 1}
    assert f"default/stuck, due 2026-01-10T12:01:00.000Z ({machine.owned_by.name})" in watch.lines
    machine.owned_by.parts.loops.due.step = original  # type: ignore[method-assign]
    await machine.settle()
    assert await watch.finds() == {}


async def test_a_job_that_cannot_be_read_is_set_aside(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    job = await machine.create(MINUTELY, name="spoilt")
    well = await machine.create(MINUTELY, name="well")
    was = await spoil(machine, job, json.dumps({"schedule": 5}))
    await machine.run_until("2026-01-10T12:03:10Z")
    assert await watch.finds() == {MissedFire.SET_ASIDE: 1}
    assert "default/spoilt" in watch.lines
    assert "not readable" in watch.lines
    assert len(await machine.ran(well)) == 3
    await spoil(machine, job, was)
    await machine.run_until("2026-01-10T12:05:10Z")
    assert await watch.finds() == {}
    assert await machine.error_of(job) == ""


async def test_a_version_that_does_not_exist(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    job = await machine.create(MINUTELY, name="torn")
    eye = machine.room.eye
    row = dict(await eye.fetchrow("DELETE FROM job_versions WHERE job_id = $1 RETURNING *", job))
    await machine.clock.leap(31)
    await machine.until(lambda: _has_error(machine, job), "the owner has met the row")
    await machine.clock.leap(60)
    assert await watch.finds() == {MissedFire.UNREADABLE: 1}
    assert f"there is no version 1 of job {job}" in watch.lines
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await eye.execute(f"INSERT INTO job_versions ({', '.join(row)}) VALUES ({places})", *row.values())
    await machine.clock.leap(60)  # the owner looks again once a minute
    await machine.settle()
    assert await watch.finds() == {}


async def _has_error(machine: TimeMachine, job_id: UUID) -> bool:
    return await machine.error_of(job_id) != ""


@pytest.mark.parametrize("order", list(CatchUpOrder), ids=lambda o: o.name.lower())
async def test_what_waits_for_the_catch_up_pace(depart: Departure, order: CatchUpOrder) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    policy = CatchUp(CatchUpMode.ALL, max_runs=3, order=order)
    jobs = [
        await machine.create(Schedule(cron=("0 * * * *",)), catch_up=policy, overlap=Overlap.ALLOW) for _ in range(4)
    ]
    await machine.crash()
    await machine.leap_to("2026-01-10T18:20Z")
    await machine.owner(catch_up_runs_per_s=0.05)  # twelve runs take four minutes
    await machine.run_until("2026-01-10T18:22Z")
    found = await watch.finds()
    assert set(found) == {MissedFire.CATCH_UP}
    assert 1 <= found[MissedFire.CATCH_UP] <= 4
    assert "(namespace default)" in watch.lines
    await machine.run_until("2026-01-10T18:40Z")
    assert [len(await machine.ran(job)) for job in jobs] == [3] * 4
    assert await watch.finds() == {}


async def test_a_chain_that_is_lost(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    job = await machine.create(Schedule(cron=("0 4 1 * *",)), name="monthly")
    for number in range(20):
        await machine.create(MINUTELY, name=f"well-{number}")
    await machine.room.eye.execute("DELETE FROM due WHERE job_id = $1", job)
    assert await watch.finds(looks=2) == {}, "a first look finds nothing in its place; a second one nothing anywhere"
    assert await watch.finds(looks=1) == {MissedFire.LOST_CHAIN: 1}
    assert watch.lines == "1 jobs, no due row stands for what is to come: default/monthly"
    assert await watch.finds(looks=3) == {MissedFire.LOST_CHAIN: 1}, "as long as it is so"
    await machine.edit(job, description="given a new version, and with it a row")
    assert await watch.finds() == {}


async def test_a_dead_row_of_an_older_version_is_nothing_missed(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00:30Z")
    watch = await Watch.over(machine)
    job = await machine.create(MINUTELY)
    await machine.edit(job, schedule=Schedule(cron=("30 4 * * *",)))
    await machine.crash()
    await machine.leap_to("2026-01-10T12:10Z")
    assert await watch.finds() == {}, "the old row of 12:01 is no occurrence any more"


async def test_a_busy_system_that_is_well_gives_no_alarm(depart: Departure) -> None:
    machine = await depart("2026-01-10T09:30:10Z")
    watch = await Watch.over(machine)
    await _every_kind_of_job(machine)
    seen: list[str] = []
    for step in range(1, 41):
        await machine.run_until(us("2026-01-10T09:30:10Z") + step * 57 * US_PER_S)
        await watch.finds(looks=1)
        seen += watch.fires.problems()
    await machine.crash()
    await machine.owner()
    await machine.settle()
    for step in range(1, 20):
        await machine.run_until(us("2026-01-10T10:08:30Z") + step * 7 * US_PER_S)
        await watch.finds(looks=1)
        seen += watch.fires.problems()
    assert seen == []
    await machine.check()


async def _every_kind_of_job(machine: TimeMachine) -> None:
    """Jobs that move fast, jobs that are deferred by jitter or a window, paused ones, and those that are over."""
    allow = {"overlap": Overlap.ALLOW}
    for _ in range(3):
        await machine.create(Schedule(cron=("*/15 * * * * *",)), **allow)
        await machine.create(Schedule(cron=("* * * * *",), jitter_us=59 * US_PER_S), **allow)
        await machine.create(Schedule(cron=("0 * * * *",), jitter_us=3_600 * US_PER_S), **allow)
    await machine.create(Schedule(every=(Every(elapsed_us=90 * US_PER_S, anchor_us=machine.now_us),)), **allow)
    await machine.create(Schedule(cron=("0 4 29 2 *",)))
    await machine.create(Schedule(at_us=(machine.now_us + 300 * US_PER_S,)))
    await machine.create(Schedule(cron=("* * * * *",), max_runs=5), **allow)
    await machine.create(None)
    await machine.pause(await machine.create(MINUTELY))
    resumed = await machine.create(MINUTELY, **allow)
    await machine.pause(resumed)
    await machine.resume(resumed, PausedOccurrences.CATCH_UP)
    await machine.delete(await machine.create(MINUTELY))
    await machine.edit(await machine.create(MINUTELY, **allow), schedule=Schedule(cron=("*/2 * * * *",)))
    await _calendar(machine, "maintenance", _windows("2026-01-10T09:40Z", "2026-01-10T10:05Z"))
    for _ in range(3):
        await machine.create(Schedule(cron=("*/10 * * * *",), windows=("maintenance",)), **allow)


def _windows(from_instant: str, to_instant: str) -> Windows:
    return Windows(WindowAction.DEFER, (Window(us(from_instant), us(to_instant)),))


async def _calendar(machine: TimeMachine, name: str, content: Windows) -> None:
    calendar_id, at_us = uuid4(), machine.now_us
    await machine.room.eye.execute(
        "INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)"
        " VALUES ($1, 'default', $2, 1, $3, $3)",
        *(calendar_id, name, at_us),
    )
    await machine.room.eye.execute(
        "INSERT INTO calendar_versions VALUES ($1, 1, $2, '', $3, 'tester', '', '')",
        *(calendar_id, json.dumps(content_to_json(content)), at_us),
    )
