"""Streams: a broken one requeues nothing that is held, and what never arrived is taken back at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from random import Random

import grpc
import pytest
import pytest_asyncio
from tidewheel.v1 import worker_service_pb2 as pb

from core.policy import Retry
from core.states import RunState
from dispatcher import session as session_module
from tests.support.databases import Databases
from tests.support.dispatcher_parts import hello
from tests.support.dispatcher_room import LASTING, Room, open_room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success
from tools.servers.etcd import EtcdServer

ONCE = Retry(max_attempts=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lone_owner(databases: Databases, etcd: EtcdServer) -> AsyncIterator[RunningDispatcher]:
    """One for all refusals."""
    async with AsyncExitStack() as stack:
        url = await databases.create()
        room = await open_room(url, "", etcd.endpoint, stack)
        yield await room.dispatcher()
    await databases.drop(url)


@pytest.fixture
def room(room: Room) -> Room:
    """Streams do not depend on the isolation level."""
    return room


async def streams(owner: RunningDispatcher, count: int, within_s: float = 10.0) -> None:
    """Wait until the dispatcher counts so many streams."""
    await eventually(lambda: owner.metric("tidewheel_connected_workers") == count, within_s, what=f"{count} streams")


async def test_a_broken_stream_alone_requeues_nothing_and_the_result_counts_on_the_next_one(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as first, ScriptedWorker(owner.address, "idle") as idle:
        await first.grant(1)
        run_id = await room.trigger(await room.job(retry=ONCE))
        given = await first.assignment()
        await idle.grant(1)
        await first.close()
        await streams(owner, 1)
        async with ScriptedWorker(owner.address, holding=[given.ref]) as second:
            assert list(second.welcome.stale) == []
            assert await room.state(run_id) is RunState.LEASED
            await second.succeed(given.ref)
            assert await second.verdict(given.ref) == pb.VERDICT_ACCEPTED
        await room.becomes(run_id, RunState.SUCCEEDED)
        assert idle.starts == []
        await room.check(first, idle)


async def test_what_was_sent_and_is_not_held_never_arrived_and_goes_elsewhere_at_once_uncounted(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as first:
        await first.grant(2)
        job_id = await room.job(retry=ONCE)
        held, lost = await room.trigger(job_id), await room.trigger(job_id)
        given = await first.assignment(run_id=str(held))
        await first.assigned(2)
    async with (
        ScriptedWorker(owner.address, holding=[given.ref]) as second,
        ScriptedWorker(owner.address, "worker-2", work=success) as other,
    ):
        await other.grant(1)
        run = await room.becomes(lost, RunState.SUCCEEDED)
        assert (run["attempt"], run["uncounted"], run["worker"]) == (2, 1, "worker-2")
        assert await room.state(held) is RunState.LEASED
        await second.succeed(given.ref)
        await room.becomes(held, RunState.SUCCEEDED)
        await room.check(second, other)


async def test_what_a_worker_holds_and_is_not_its_any_more_is_named_stale_in_the_welcome(room: Room) -> None:
    owner = await room.owner(attempt_lease_s=1.5, heartbeat_interval_s=0.5)
    async with ScriptedWorker(owner.address) as first:
        await first.grant(1)
        run_id = await room.trigger(await room.job())
        given = await first.assignment()
    owner.lease_for(60.0)
    async with ScriptedWorker(owner.address, "worker-2") as second, second.beating():
        await second.grant(1)
        again = await second.assignment(attempt=2)
        async with ScriptedWorker(owner.address, holding=[given.ref]) as back:
            assert list(back.welcome.stale) == [given.ref]
        await second.succeed(again.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)


async def test_a_new_stream_of_a_worker_ends_the_old_one_so_that_nothing_is_sent_where_nobody_reads(room: Room) -> None:
    """A half-open connection: the worker is back, and the old stream looks alive for a while."""
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=5) as old:
        await old.grant(5)
        await streams(owner, 1)
        async with ScriptedWorker(owner.address, slots=5, work=success) as new:
            await new.grant(5)
            job_id = await room.job(retry=ONCE)
            for _ in range(4):
                await room.becomes(await room.trigger(job_id), RunState.SUCCEEDED)
            assert (len(old.starts), len(new.starts)) == (0, 4)
            await room.check(old, new)


async def test_an_assignment_that_was_never_written_is_taken_back_when_its_stream_ends(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await room.owner(**LASTING)
    async with ScriptedWorker(owner.address) as first:
        monkeypatch.setattr(session_module.WorkerSession, "take_frames", lambda session: session.outgoing.clear() or [])
        await first.grant(1)
        run_id = await room.trigger(await room.job(retry=ONCE))
        await room.becomes(run_id, RunState.LEASED)
        monkeypatch.undo()
        await first.close()
    async with ScriptedWorker(owner.address, "worker-2", work=success) as second:
        await second.grant(1)
        run = await room.becomes(run_id, RunState.SUCCEEDED, 25)
        assert (run["attempt"], run["uncounted"]) == (2, 1)
        await room.check(second)


async def test_a_reader_so_slow_that_too_much_waits_for_it_loses_its_stream_and_no_run(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "MAX_QUEUED_ITEMS", 200)
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=1000) as slow:
        await slow.grant(1)
        run_id = await room.trigger(await room.job(retry=ONCE))
        given = await slow.assignment()
        slow.stop_reading()
        heartbeats = asyncio.create_task(_endless_heartbeats(slow))
        await streams(owner, 0, 30)
        heartbeats.cancel()
    async with ScriptedWorker(owner.address, holding=[given.ref]) as back:
        await back.succeed(given.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        await room.check(back)


async def _endless_heartbeats(worker: ScriptedWorker) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the stream ended in the middle of a write
        while True:
            await worker.heartbeat(*[pb.AttemptRef(run_id="x" * 200)] * 200)


async def test_a_worker_that_leaves_gets_nothing_more_and_its_last_result_counts(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, slots=5) as worker:
        await worker.grant(5)
        job_id = await room.job()
        first = await room.trigger(job_id)
        given = await worker.assignment()
        await worker.say(goodbye=pb.Goodbye())
        await worker.heard()
        second = await room.trigger(job_id)
        await worker.succeed(given.ref)
        await room.becomes(first, RunState.SUCCEEDED)
        assert await room.state(second) is RunState.PENDING
        assert len(worker.starts) == 1
        await room.check(worker)


@pytest.mark.parametrize(
    ("field", "frame"),
    [
        ("frame", pb.WorkerFrame(grant=pb.Grant(total=1))),
        ("hello.protocol_version", pb.WorkerFrame(hello=hello(protocol_version=2))),
        ("hello.worker_id", pb.WorkerFrame(hello=hello(worker_id="spaces are not allowed"))),
        ("hello.worker_id", pb.WorkerFrame(hello=hello(worker_id=""))),
        ("hello.namespace", pb.WorkerFrame(hello=hello(namespace="UPPER"))),
        ("hello.handlers", pb.WorkerFrame(hello=hello(handlers=[]))),
        ("hello.handlers[1]", pb.WorkerFrame(hello=hello(handlers=["fine", "not fine"]))),
        ("hello.queues", pb.WorkerFrame(hello=hello(queues=[f"q{n}" for n in range(65)]))),
        ("hello.queues[0]", pb.WorkerFrame(hello=hello(queues=["\u00fc"]))),
        ("hello.slots", pb.WorkerFrame(hello=hello(slots=0))),
        ("hello.slots", pb.WorkerFrame(hello=hello(slots=100_001))),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_hello_that_breaks_a_rule_is_refused_with_the_field(
    lone_owner: RunningDispatcher, field: str, frame: pb.WorkerFrame
) -> None:
    worker = ScriptedWorker(lone_owner.address)
    await worker.open(frame)
    assert worker.first.refusal.field == field
    assert worker.first.refusal.rule
    await asyncio.wait_for(worker.ended.wait(), 15)
    await worker.close()


async def test_b83_streams_that_are_cancelled_at_random_leave_nothing_behind(room: Room) -> None:
    owner = await room.owner()
    draw = Random(83)
    before = len(asyncio.all_tasks())

    async def one(number: int) -> None:
        async with ScriptedWorker(owner.address, f"worker-{number}", slots=5) as worker:
            for total in range(1, draw.randint(1, 4)):
                await worker.grant(total)
                await worker.heartbeat(pb.AttemptRef(run_id="gone"))
            await asyncio.sleep(draw.random() / 50)

    for first in range(0, 200, 20):
        await asyncio.gather(*(one(number) for number in range(first, first + 20)))
    await streams(owner, 0)
    # The loops of the dispatcher itself start and end a few at any moment.
    await eventually(lambda: len(asyncio.all_tasks()) <= before + 20, what=f"about {before} tasks")
