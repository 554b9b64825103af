"""The database's faults: what an answer was lost of is neither lost nor done twice, and costs no attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.policy import Retry
from core.states import RunState
from core.store.migrations import migrate
from dispatcher.process import run as run_dispatcher
from tests.support.db_faults import DbFaults
from tests.support.dispatcher_room import Room, now_us, open_room
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, failure, success
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer
from tools.servers.postgres import PostgresServer

DONE = RunState.SUCCEEDED
ONCE = Retry(max_attempts=1)
SLOW: dict[str, Any] = {"attempt_lease_s": 30.0, "heartbeat_interval_s": 5.0}
WRITES = (
    "fire_and_move_chains",
    "fire_and_end_chains",
    "fire_due_runs",
    "lease_waiting_runs",
    "end_attempts",
    "end_attempts_and_land_retries",
    "raise_floors",
    "raise_watermarks",
    "raise_open_from_marks",
    "stand_open_runs",
    "adopt_open_runs",
)
# As often as the loop around the database tries: the caller is told that the outcome is unknown.
ALL_TRIES = 8


class Story:
    """One of everything: occurrences, one-offs, triggers with a credit and without, retries. All end well."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.triggered: list[UUID] = []
        self.retried: list[UUID] = []
        self._failed: set[str] = set()

    async def begin(self, occurrences: int = 3) -> None:
        room = self.room
        for n in range(4):
            await room.every_second(occurrences, first_after_s=0.4 + n / 10, retry=ONCE)
            await room.once(after_s=0.8 + n / 5, retry=ONCE)
        job_id = await room.job(retry=ONCE)
        self.triggered = [await room.trigger(job_id, delay_s=n % 3 / 2) for n in range(6)]
        flaky = await room.job(handler="flaky", retry=Retry(2, 200_000, 1.0, 200_000, 0.0))
        self.retried = [await room.trigger(flaky) for _ in range(3)]

    def work(self, given: pb.Assignment) -> pb.Result:
        """`flaky` fails once a run."""
        if given.handler == "flaky" and given.ref.run_id not in self._failed:
            self._failed.add(given.ref.run_id)
            return failure(given)
        return success(given)

    def worker(self, address: str, worker_id: str = "worker-1") -> ScriptedWorker:
        return ScriptedWorker(address, worker_id, ["work", "flaky"], 50, work=self.work)

    async def ends_well(self, *workers: ScriptedWorker, within_s: float = 30.0) -> None:
        """Every run succeeds, and none spends an attempt on the database's faults."""
        room = self.room
        for job_id, occurrences in room.expected.items():
            await room.all_become(job_id, [DONE] * len(occurrences), within_s)
        for run_id in self.triggered + self.retried:
            run = await room.becomes(run_id, DONE, within_s)
            assert run["attempt"] - run["uncounted"] == (2 if run_id in self.retried else 1)
        await room.check(*workers)


@pytest.mark.parametrize("times", [1, ALL_TRIES])
async def test_lost_answers_of_every_write_lose_nothing_double_nothing_and_cost_no_attempt(
    room: Room, times: int
) -> None:
    owner = await room.owner(**SLOW)
    story = Story(room)
    faults = DbFaults(owner.database)
    with faults.lost_answers(dict.fromkeys(WRITES, times)):
        async with story.worker(owner.address) as worker:
            await worker.grant(3)
            await story.begin()
            await story.ends_well(worker)
    assert faults.count >= 8 * times


async def test_writes_that_never_reached_the_database_are_made_later(room: Room) -> None:
    owner = await room.owner(**SLOW)
    story = Story(room)
    with DbFaults(owner.database).lost_answers(dict.fromkeys(WRITES, 2 * ALL_TRIES), applied=False):
        async with story.worker(owner.address) as worker:
            await worker.grant(3)
            await story.begin()
            await story.ends_well(worker)


async def test_marks_whose_raise_was_not_answered_go_on_rising(room: Room) -> None:
    owner = await room.owner()
    marks = ("raise_floors", "raise_watermarks", "raise_open_from_marks")
    faults = DbFaults(owner.database)
    with faults.lost_answers(dict.fromkeys(marks, 1)):
        await eventually(lambda: faults.count == len(marks))
    lost_at_us = now_us()

    async def passed() -> bool:
        (low,) = await room.eye.fetch(
            "SELECT min(floor) AS floor, min(watermark) AS watermark, min(open_from_us) AS open_from_us"
            " FROM shard_floors JOIN shard_marks USING (shard)"
        )
        bucket = room.scale.bucket_of(lost_at_us)
        return bool(low["floor"] > bucket and low["watermark"] > bucket and low["open_from_us"] > lost_at_us)

    await eventually(passed, 15, what="every mark of every shard rises")
    assert owner.refused_writes == 0


async def test_a_lost_answer_of_an_adoption_leaves_no_run_behind(room: Room) -> None:
    first = await room.owner(**SLOW)
    job_id = await room.job(retry=ONCE)
    waiting = [await room.trigger(job_id) for _ in range(5)]
    await eventually(lambda: first.parts.memory.routes.waiting == 5)
    await first.kill()
    second = await room.dispatcher(**SLOW)
    with DbFaults(second.database).lost_answers({"adopt_open_runs": 3, "read_marks": 1, "list_newest_terms": 1}):
        await room.give(second)
        async with ScriptedWorker(second.address, work=success, slots=5) as worker:
            await worker.grant(5)
            for run_id in waiting:
                await room.becomes(run_id, DONE)
            await room.check(worker)


async def test_b110_connections_that_are_cut_at_random_lose_and_double_nothing(
    room: Room, postgres: PostgresServer
) -> None:
    assert postgres.port is not None
    draw = Random(110)
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        through = room.url.replace(f":{postgres.port}/", f":{proxy.port}/")
        owner = await room.owner(url=through, **SLOW)
        story = Story(room)
        async with story.worker(owner.address) as worker:
            await worker.grant(4)
            await story.begin(occurrences=6)
            for _ in range(18):
                await asyncio.sleep(draw.uniform(0.05, 0.5))
                if draw.random() < 0.5:
                    proxy.cut()
                else:
                    proxy.cut_after(draw.randint(1, 3_000))
            proxy.heal()
            await story.ends_well(worker)
        await owner.kill()


@pytest.fixture
async def own_room(own_postgres: PostgresServer, etcd: EtcdServer) -> AsyncIterator[Room]:
    """A room over a database server that may be killed."""
    await migrate(own_postgres.url())
    async with AsyncExitStack() as stack:
        yield await open_room(own_postgres.url(), "", etcd.endpoint, stack)


async def test_row_23_postgresql_killed_and_started_again_in_the_middle_of_it_all(
    own_room: Room, own_postgres: PostgresServer
) -> None:
    room = own_room
    owner = await room.owner(**SLOW)
    story = Story(room)
    async with story.worker(owner.address) as worker:
        await worker.grant(4)
        await story.begin(occurrences=6)
        await eventually(lambda: len(worker.starts) >= 5)
        await asyncio.to_thread(own_postgres.kill)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(own_postgres.start)
        await room.look_again()
        await story.ends_well(worker)
        assert owner.refused_writes == 0


async def test_a_database_that_is_away_at_the_start_is_waited_for_with_one_line(
    room: Room, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert postgres.port is not None
    stop = asyncio.Event()
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        await proxy.refuse()
        settings = room.settings(url=room.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        with caplog.at_level(logging.WARNING):
            process = asyncio.create_task(run_dispatcher(settings, stop))
            await eventually(lambda: "waiting for the database" in caplog.text, 15)
        (line,) = [r for r in caplog.records if "database" in r.getMessage()][:1]
        assert "\n" not in line.getMessage()
        assert line.exc_info is None
        await proxy.start()
        await eventually(room.leader.members, 20, what="the dispatcher appears")
        stop.set()
        await asyncio.wait_for(process, 15)
    await eventually(lambda: not room.leader.members())


async def test_row_30_a_jump_of_the_databases_clock_holds_firing_until_it_is_explained(room: Room) -> None:
    owner = await room.owner()
    shifts = iter(range(10**9))
    async with ScriptedWorker(owner.address, work=success, slots=5) as worker:
        await worker.grant(5)

        async def wild() -> None:
            owner.probe.shift_us = (600 + 100 * (next(shifts) % 7)) * US_PER_S
            await type(owner.probe).step(owner.probe)

        owner.probe.step = wild  # type: ignore[method-assign]
        await eventually(lambda: owner.clock.holding)
        job_id = await room.once(after_s=1.0)
        await eventually(lambda: now_us() > room.expected[job_id][0] + US_PER_S)
        assert await room.runs(job_id) == [], "neither early nor late while nobody knows what time it is"
        owner.probe.shift_us = 0
        del owner.probe.step
        await room.all_become(job_id, [DONE])
        assert owner.clock.jumps == 0
        await room.check(worker)
