"""Promise 1 and 2 under kill -9: what was accepted fires exactly once per occurrence, and never early."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta

import pytest
from tidewheel import Every

from tests.support.live_system import US, LiveSystem, now_us
from tests.support.polling import eventually

EVERY_US = US
JOBS = 8


async def _accept(system: LiveSystem, seconds: int) -> dict[str, list[int]]:
    """Register jobs that fire each second for a while, through the API; returns what each owes."""
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    owed = {}
    async with system.client() as client:
        for number in range(JOBS):
            name = f"tick-{number}"
            await client.create_job(
                name, handler="record", schedule=Every(timedelta(seconds=1), end=until), overlap="allow"
            )
            until_us = round(until.timestamp() * US)
            owed[name] = await system.job_occurrences(client, name, EVERY_US, until_us)
    return owed


async def _judge(system: LiveSystem, owed: dict[str, list[int]], *, within_s: float) -> None:
    for name, expected in owed.items():
        assert expected, "the job owes something"
        await system.settled(name, expected, within_s=within_s)
        await system.assert_each_once(name, expected, repeats_explained=True)
    await system.assert_terms_tile()


async def test_a_killed_dispatcher_loses_and_doubles_nothing(system: LiveSystem) -> None:
    owed = await _accept(system, 12)
    await asyncio.sleep(3)
    system.fleet.kill(system.dispatchers[0])
    await _judge(system, owed, within_s=60)
    late = max(start.late_s for name in owed for start in system.starts(name) if start.attempt == 1)
    assert late < 15, "takeover keeps to about three times its 5 s"


async def test_a_killed_leader_fails_no_call_and_delays_nothing(system: LiveSystem) -> None:
    owed = await _accept(system, 15)
    async with system.client() as client:
        calling = asyncio.create_task(_call_for(client, seconds=8))
        await asyncio.sleep(2)
        system.fleet.kill(system.control_planes[0])
        await asyncio.sleep(3)
        assert await calling > 20, "calls went on without a failure"
        await _judge(system, owed, within_s=60)
        # Whoever is left leads in the end, and takes over when a dispatcher dies.
        system.fleet.kill(system.dispatchers[1])
        run = await client.trigger_job("tick-0", allow_overlap=True)
        await eventually(lambda: _ended(system, run.run_id), within_s=60, what="the run ends under the new leader")


async def _call_for(client: object, *, seconds: float) -> int:
    calls = 0
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await client.get_job(f"tick-{calls % JOBS}")  # type: ignore[attr-defined]
        calls += 1
        await asyncio.sleep(0.05)
    return calls


async def _ended(system: LiveSystem, run_id: str) -> bool:
    rows = await system.rows("SELECT state FROM runs WHERE run_id = $1", run_id)
    return bool(rows) and rows[0]["state"] == 3


async def test_a_worker_killed_in_the_middle_of_a_run_is_replaced(system: LiveSystem) -> None:
    await eventually(lambda: _have_workers(system, 2), within_s=60, what="every dispatcher has both workers")
    system.kill_worker("worker-2")
    await eventually(lambda: _have_workers(system, 1), within_s=30, what="its streams are gone: nothing is sent there")
    async with system.client() as client:
        await client.create_job("work", handler="slow", payload="2.5")
        run = await client.trigger_job("work")
        first = (await eventually(lambda: system.starts("work"), within_s=20, what="the run starts"))[0]
        system.kill_worker(first.worker)
        system.start_worker("worker-3")
        await eventually(lambda: _ended(system, run.run_id), within_s=60, what="another worker finishes it")
        starts = system.starts("work")
        assert [start.run for start in starts] == [run.run_id, run.run_id], "the same run"
        assert [start.attempt for start in starts] == [1, 2], "the next attempt"
        assert starts[1].fencing > starts[0].fencing
        outcomes = [attempt.outcome for attempt in await client.list_attempts(run.run_id)]
        assert outcomes == ["LOST", "SUCCEEDED"]


async def _have_workers(system: LiveSystem, count: int) -> bool:
    connected = [await system.metric(each, "tidewheel_connected_workers") for each in system.dispatchers]
    return connected == [count] * len(connected)


async def test_everything_killed_at_once_and_started_again(system: LiveSystem) -> None:
    owed = await _accept(system, 14)
    await asyncio.sleep(2)
    for name in list(system.workers):
        system.kill_worker(name)
    for member in list(system.fleet.members):
        system.fleet.kill(member)
    await asyncio.sleep(1)
    system.control_planes = [system.fleet.start_control_plane(f"controlplane-{n}") for n in (3, 4)]
    system.dispatchers = [system.fleet.start_dispatcher(f"dispatcher-{n}") for n in (3, 4)]
    system.start_worker("worker-3")
    await _judge(system, owed, within_s=90)


@pytest.mark.parametrize("fault", ["kill", "freeze"])
async def test_postgresql_killed_or_frozen(system: LiveSystem, fault: str) -> None:
    owed = await _accept(system, 12)
    await asyncio.sleep(3)
    database = system.backing.database
    assert database is not None
    if fault == "kill":
        await asyncio.to_thread(database.kill)
        await asyncio.sleep(1)
        database.start()
    else:
        database.freeze()
        await asyncio.sleep(6)
        database.thaw()
    await _judge(system, owed, within_s=90)


async def test_a_frozen_dispatcher_has_its_late_writes_refused(system: LiveSystem) -> None:
    owed = await _accept(system, 24)
    await asyncio.sleep(2)
    frozen = system.dispatchers[0]
    frozen.child.process.send_signal(signal.SIGSTOP)
    # Longer than the etcd lease (5 s), the attempt lease (3 s) and every timeout of a session.
    await asyncio.sleep(12)
    taken = "SELECT 1 FROM shard_terms WHERE state = 1 AND reason = 'takeover'"
    await eventually(lambda: system.rows(taken), within_s=30, what="its shards are taken over")
    thawed_us = now_us()
    frozen.child.process.send_signal(signal.SIGCONT)
    await eventually(
        lambda: system.metric(frozen, "tidewheel_refused_writes_total"), within_s=30, what="its late writes are refused"
    )
    await _judge(system, owed, within_s=60)
    stale = await system.rows(
        "SELECT count(*) AS n FROM runs r JOIN shard_term_events e ON e.shard = r.shard AND e.term = r.home_term"
        " WHERE r.created_us > $1 AND e.event IN ('close', 'void') AND e.at_us < r.created_us",
        thawed_us,
    )
    assert stale[0]["n"] == 0, "no run was made under a closed term after it came back"
