"""A dispatcher that is told to end under load gives its shards up: nothing is lost, doubled or run again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tidewheel import Every

from core.buckets import NO_END
from tests.support.live_system import US, LiveSystem, now_us
from tests.support.polling import eventually
from tools.fleet import Member
from tools.servers.homes import temporary_home

JOBS = 16
# A planned end takes some 3 s. That it keeps to its documented limit, dispatcher.drain_limit_s, its log says.
ENDS_WITHIN_S = 30.0
OWNED_WITHIN_S = 30.0
# No attempt is to be lost here, not for a busy machine either.
CALM = {"TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "15.0"}


@pytest.fixture
async def system() -> AsyncIterator[LiveSystem]:
    """Two of each role."""
    with temporary_home() as home:
        async with LiveSystem(home, CALM) as live:
            yield live


async def test_sigterm_and_sigint_of_a_dispatcher_under_load(system: LiveSystem) -> None:
    first, second = system.dispatchers
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=18)
    owed = {}
    async with system.client() as client:
        for number in range(JOBS):
            name = f"tick-{number}"
            await client.create_job(
                name, handler="record", schedule=Every(timedelta(seconds=1), end=until), overlap="allow"
            )
            owed[name] = await system.job_occurrences(client, name, US, round(until.timestamp() * US))
        # Runs that are under way while their shards change hands, twice.
        for number in range(4):
            await client.create_job(f"long-{number}", handler="slow", payload="14")
            await client.trigger_job(f"long-{number}")
        await eventually(lambda: len(system.starts()) > 2 * JOBS, within_s=30, what="the load runs")
        await eventually(lambda: _is_at_rest(system), within_s=30, what="no shard is on the move")
        await _told_to_end(system, first, signal.SIGTERM, successor=second)
        third = system.fleet.start_dispatcher("dispatcher-3")
        await eventually(lambda: system.owned_shards(third), within_s=30, what="the new one gets shards")
        await eventually(lambda: _is_at_rest(system), within_s=30, what="it has all that it is to get")
        await _told_to_end(system, second, signal.SIGINT, successor=third)
        for name, expected in owed.items():
            await system.settled(name, expected, within_s=60)
            await system.assert_each_once(name, expected)
        for number in range(4):
            await _ended_once(system, f"long-{number}")
    await system.assert_terms_tile()
    late = sorted(start.late_s for name in owed for start in system.starts(name))
    print(f"lateness over two planned ends: p50 {late[len(late) // 2]:.3f} s, max {late[-1]:.3f} s")
    assert late[-1] < 10, "dispatch paused for no longer than a shard is without an owner"


async def _told_to_end(system: LiveSystem, dispatcher: Member, how: signal.Signals, *, successor: Member) -> None:
    """It ends with exit code 0 within its limit, and the other one owns every shard, by moves and not by takeover."""
    # Not those that are on the move to another one already.
    rows = await system.rows(
        "SELECT shard FROM shard_terms WHERE state = 1 AND owner = $1 AND to_bucket = $2",
        system.owner_id(dispatcher),
        NO_END,
    )
    owned, told_us = {row["shard"] for row in rows}, now_us()
    assert owned, "it has something to give up"
    process = dispatcher.child.process
    process.send_signal(how)
    assert await asyncio.to_thread(process.wait, ENDS_WITHIN_S) == 0
    log = dispatcher.child.log.read_text()
    assert "Traceback" not in log
    assert "took longer" not in log
    assert "gave up" not in log, "every shard was handed off"
    shards = int(system.environ["TIDEWHEEL_CLUSTER_SHARD_COUNT"])

    async def has_all() -> bool:
        return len(await system.owned_shards(successor)) == shards

    await eventually(has_all, within_s=OWNED_WITHIN_S, what="the other dispatcher owns every shard")
    rows = await system.rows("SELECT shard, reason FROM shard_terms WHERE opened_us >= $1", told_us)
    assert {row["shard"] for row in rows if row["reason"] == "drain"} >= owned, "given up, not seized"


async def _is_at_rest(system: LiveSystem) -> bool:
    return not await system.rows("SELECT 1 FROM shard_moves WHERE ended_us = 0")


async def _ended_once(system: LiveSystem, job: str) -> None:
    async def succeeded() -> bool:
        rows = await system.rows(
            "SELECT r.state, r.attempt FROM runs r JOIN jobs j ON j.job_id = r.job_id WHERE j.name = $1", job
        )
        return [(row["state"], row["attempt"]) for row in rows] == [(3, 1)]

    await eventually(succeeded, within_s=40, what=f"{job} ends with its first attempt")
    assert len(system.starts(job)) == len(system.noted("end", job)) == 1
