"""A wall clock that jumps by an hour, forth and back, while jobs fire every second: never early, no double, no loss.

The sink's clock and the tests' own are real throughout; monotonic clocks always are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest
from tidewheel import At, Client, Cron

from tests.support.live_system import US, LiveSystem, Size, now_us
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tests.support.wall_clock import FakedWallClock, wall_clock
from tools.fleet import Member
from tools.servers.embedded import Backing
from tools.servers.homes import temporary_home
from tools.servers.postgres import PostgresServer

JOBS = 4
HOUR_S = 3600
EVERY_SECOND = "* * * * * *"
# Until a jump of the database's clock is noticed, owners go on by the time before it: a look a second, and some slack.
UNNOTICED_US = 5 * US
# Servers that a busy machine holds up for a while are neither taken for dead nor lose an attempt: here nobody is to.
PATIENT = {"TIDEWHEEL_CONTROLPLANE_MISSED_REPORTS": "8", "TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "15.0"}
# Less than the hour of a jump, by far.
PROMPT_S = 20.0


@pytest.fixture
def faked() -> Iterator[FakedWallClock]:
    with wall_clock() as clock:
        yield clock


# ---- the servers' own wall clocks ----


async def test_b78_wall_clocks_of_servers_that_jump_by_an_hour_change_nothing(faked: FakedWallClock) -> None:
    with temporary_home() as home:
        async with LiveSystem(home, {**faked.environ, **PATIENT}) as system, system.client() as client:
            terms = await system.rows("SELECT shard, term, owner FROM shard_terms ORDER BY shard, term")
            until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=15)
            for number in range(JOBS):
                await client.create_job(
                    f"tick-{number}", handler="record", schedule=Cron(EVERY_SECOND, end=until), overlap="allow"
                )
            for step, shift_s in enumerate((HOUR_S, 0, -HOUR_S, 0)):
                await asyncio.sleep(2)
                faked.shift(shift_s)
                await _sees(system, shift_s)
                # Promises made in the middle of it hold by real time: a one-off, and a delay.
                await client.create_job(f"once-{step}", handler="record", schedule=At(_in(4)))
            for number in range(JOBS):
                expected = await _seconds_after_cutover(system, f"tick-{number}", until)
                assert len(expected) > 5
                await system.settled(f"tick-{number}", expected, within_s=40)
                starts = await system.assert_each_once(f"tick-{number}", expected)
                assert max(start.late_s for start in starts) < PROMPT_S, "nothing waits for a clock"
            for step in range(4):
                await _ran(system, f"once-{step}", 1)
                assert [0 <= start.late_s < PROMPT_S for start in system.starts(f"once-{step}")] == [True]
            after = await system.rows("SELECT shard, term, owner FROM shard_terms ORDER BY shard, term")
            assert after == terms, "nobody was suspected, nothing was taken over"
            for dispatcher in system.dispatchers:
                assert await system.metric(dispatcher, "tidewheel_clock_jumps_total") == 0, (
                    "the database's did not jump"
                )


async def _sees(system: LiveSystem, shift_s: int) -> None:
    """Every server's wall clock has jumped: its metrics say by how much it is off the database's."""
    for member in [*system.dispatchers, *system.control_planes]:
        await eventually(partial(_is_off, system, member, shift_s), 60, what=f"{member.name} is {shift_s} s off")


async def _is_off(system: LiveSystem, member: Member, shift_s: int) -> bool:
    offset_s = (await scrape(system.monitor_address(member))).total("tidewheel_clock_offset_seconds")
    return abs(offset_s + shift_s) < 60


# ---- the database's clock, which decides ----


@asynccontextmanager
async def _over_faked_database(faked: FakedWallClock) -> AsyncIterator[LiveSystem]:
    with temporary_home() as home:
        server = PostgresServer(home / "postgres", environ=faked.environ)
        server.start()
        try:
            system = LiveSystem(home, size=Size(control_planes=1, dispatchers=2, workers=1))
            system.backing = Backing(home / "data", database_url=server.url())
            async with system:
                # The database's own word on when each run was made, beside what the dispatcher says.
                await system.rows(
                    "ALTER TABLE runs ADD COLUMN server_us BIGINT NOT NULL"
                    " DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
                )
                yield system
        finally:
            server.stop()


class _Jumps:
    """What the test did to the database's clock: from which instant of real time on it was off by how much."""

    def __init__(self, system: LiveSystem, faked: FakedWallClock) -> None:
        self._system = system
        self._faked = faked
        self.made: list[tuple[int, int]] = [(0, 0)]

    async def shift(self, seconds: int) -> None:
        """Jump, and wait until every server has followed."""
        self.made.append((now_us(), seconds * US))
        self._faked.shift(seconds)
        for member in [*self._system.dispatchers, *self._system.control_planes]:
            await eventually(partial(self._followed, member), within_s=60, what=f"{member.name} follows the jump")

    async def _followed(self, member: Member) -> bool:
        page = await scrape(self._system.monitor_address(member))
        return page.total("tidewheel_clock_jumps_total") == len(self.made) - 1

    def database_us(self, real_us: int) -> int:
        """What the database's clock showed then; just after a jump, the later of both times."""
        recent = [shift for at_us, shift in self.made if at_us <= real_us]
        kept = [after for (_, _), (at_us, after) in pairwise(self.made) if at_us <= real_us < at_us + UNNOTICED_US]
        before = [was for (_, was), (at_us, _) in pairwise(self.made) if at_us <= real_us < at_us + UNNOTICED_US]
        return real_us + max([recent[-1], *kept, *before])


async def test_a_database_clock_that_jumps_by_an_hour_fires_nothing_early_twice_or_never(faked: FakedWallClock) -> None:
    async with _over_faked_database(faked) as system, system.client() as client:
        jumps = _Jumps(system, faked)
        await _tick(client, "tick")
        await _ran(system, "tick", 3)

        await jumps.shift(-HOUR_S)  # what was due next is an hour away now
        ran = len(system.starts("tick"))
        await _tick(client, "past")  # by the database's clock, which decides
        await _ran(system, "past", 3)
        assert len(system.starts("tick")) == ran, "by the database's clock nothing of it was due"

        await jumps.shift(0)
        await _ran(system, "tick", ran + 3)

        await jumps.shift(HOUR_S)  # an hour is missed at once
        await _ran(system, "tick", ran + 70)
        await _made(system, 3, after_us=now_us() + HOUR_S * US)
        reached_us = now_us() + (HOUR_S - 2) * US

        await jumps.shift(0)
        ran_at_last = len(system.starts())
        await asyncio.sleep(3)
        assert len(system.starts()) == ran_at_last, "nothing of the hour that ran already runs again"

        for name in ("tick", "past"):
            await _judge(system, jumps, name, reached_us)


async def _tick(client: Client, name: str) -> None:
    """A job that fires every second, and makes up for a minute of what it missed."""
    await client.create_job(name, handler="record", schedule=Cron(EVERY_SECOND), overlap="allow")


async def _ran(system: LiveSystem, job: str, count: int) -> None:
    await eventually(lambda: len(system.starts(job)) >= count, within_s=40, what=f"{job} has run {count} times")


async def _made(system: LiveSystem, count: int, *, after_us: int) -> None:
    """Occurrences of that time, not only those that were made up for, run."""

    async def enough() -> bool:
        (row,) = await system.rows("SELECT count(*) AS n FROM runs WHERE scheduled_for_us > $1", after_us)
        return int(row["n"]) >= count

    await eventually(enough, within_s=40, what="the job goes on at the time that the database shows")


async def _judge(system: LiveSystem, jumps: _Jumps, name: str, reached_us: int) -> None:
    expected = await _seconds_after_cutover(system, name, datetime.fromtimestamp(reached_us / US, UTC))
    assert len(expected) > HOUR_S - 60
    await system.settled(name, expected, within_s=30)
    runs = await system.rows(
        "SELECT r.scheduled_for_us, r.due_at_us, r.server_us, r.state FROM runs r JOIN jobs j ON j.job_id = r.job_id"
        " WHERE j.name = $1 ORDER BY r.scheduled_for_us",
        name,
    )
    skips = await system.rows(
        "SELECT s.from_us, s.to_us FROM skips s JOIN jobs j ON j.job_id = s.job_id WHERE j.name = $1", name
    )
    ran = [row["scheduled_for_us"] for row in runs]
    assert len(ran) == len(set(ran)), "no occurrence has two runs"
    for at_us in expected:
        skipped = sum(skip["from_us"] <= at_us <= skip["to_us"] for skip in skips)
        assert (at_us in set(ran)) + skipped == 1, f"the occurrence at {at_us} has one run or one recorded skip"
    early = [row["due_at_us"] - row["server_us"] for row in runs if row["server_us"] < row["due_at_us"]]
    jumped_back_us = {after - was for (_, was), (_, after) in pairwise(jumps.made) if after < was}
    unnoticed = [us for us in early if any(-back - UNNOTICED_US < us < -back + UNNOTICED_US for back in jumped_back_us)]
    assert early == unnoticed, "no run was made before its time by the database's clock, as far as that was known"
    assert len(unnoticed) <= 2 * UNNOTICED_US / US, "and a jump back was noticed soon"
    starts = system.starts(name)
    assert len(starts) == len({start.run for start in starts}), "no run was started twice"
    assert not [s for s in starts if s.due_us > jumps.database_us(s.at_us)], "no handler began before its time"


async def _seconds_after_cutover(system: LiveSystem, name: str, until: datetime) -> list[int]:
    """By plain arithmetic: every whole second after the job's cut-over, up to `until` (exclusive)."""
    (row,) = await system.rows("SELECT cutover_us FROM jobs WHERE name = $1", name)
    first = (row["cutover_us"] // US + 1) * US
    return list(range(first, round(until.timestamp() * US), US))


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
