"""Words that come late, of workers and of the owner itself: none takes an attempt from whoever holds it by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.errors import OutcomeUnknown
from core.states import AttemptOutcome, RunState
from core.store.completion import Ended, Ending
from dispatcher.attempts import LiveAttempt
from dispatcher.endings import GivenBack, Lost
from dispatcher.judgement import Submission
from tests.support.dispatcher_room import STEADY, Room, now_us
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

DONE, LEASED = RunState.SUCCEEDED, RunState.LEASED
SHORT: dict[str, Any] = {"attempt_lease_s": 2.0, "heartbeat_interval_s": 0.5}


def live(owner: RunningDispatcher, run_id: UUID) -> LiveAttempt:
    found = owner.parts.memory.attempts.get(run_id)
    assert found is not None
    return found


async def test_a_hello_that_names_nothing_does_not_take_back_what_was_adopted(room: Room) -> None:
    """The former owner may have sent it after this Hello was composed: only the end of its lease says it is lost."""
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with ScriptedWorker(first.address) as at_first:
        await at_first.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_first.assignment()
        await room.give(second, seize=True)
        async with ScriptedWorker(second.address) as at_second:
            await at_second.grant(1)
            await at_second.succeed(given.ref)
            assert await at_second.verdict(given.ref) == pb.VERDICT_ACCEPTED
            assert ((await room.run(run_id))["attempt"], at_second.starts) == (1, [])
            await room.check(at_first, at_second)


async def test_a_hello_older_than_one_that_was_read_is_not_listened_to(room: Room) -> None:
    """It was composed before the worker got what it runs now; its stream had been given up long ago."""
    owner = await room.owner(**STEADY)
    async with ScriptedWorker(owner.address, sequence=7) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        late = ScriptedWorker(owner.address, sequence=6)
        await late.open()
        answer: object = late.first
        assert not isinstance(answer, pb.DispatcherFrame), "ended without a word"
        await late.close()
        await worker.heartbeat(given.ref)
        await eventually(lambda: worker.heartbeat_replies)
        assert worker.heartbeat_exceptions == []
        await worker.succeed(given.ref)
        assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await room.check(worker)


async def test_what_was_sent_on_an_earlier_stream_and_never_arrived_is_taken_back_at_once(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, sequence=1) as worker:
        worker.stop_reading()
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        await room.becomes(run_id, LEASED)
    async with ScriptedWorker(owner.address, sequence=2, work=success) as again:
        await again.grant(1)
        run = await room.becomes(run_id, DONE)
        assert (run["attempt"], run["uncounted"]) == (2, 1)
        await room.check(again)


async def test_an_adopted_attempt_that_nobody_was_sent_is_lost_at_the_end_of_its_lease(room: Room) -> None:
    """Its owner died between the commit of the lease and the sending."""
    first = await room.owner("first", **SHORT)
    async with ScriptedWorker(first.address, "gone") as gone:
        gone.stop_reading()
        await gone.grant(1)
        run_id = await room.trigger(await room.job())
        await room.becomes(run_id, LEASED)
        await first.kill()
    second = await room.owner("second", **SHORT)
    async with ScriptedWorker(second.address, "heir", work=success) as heir:
        await heir.grant(1)
        await room.becomes(run_id, DONE)
        outcomes = [row["outcome"] for row in await room.attempts(run_id)]
        assert outcomes == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
        await room.check(heir)


async def test_the_reaper_does_not_pass_over_a_heartbeat_that_came_in_between(room: Room) -> None:
    """The lease was extended after the reaper saw it end, and before its word was recorded."""
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        seen = live(owner, run_id).lease_until_us - 1
        await owner.parts.loops.completion.submit(Submission(run_id, 1, None, Lost(), None, lease_until_us=seen))
        await eventually(lambda: owner.parts.loops.completion.idle)
        assert await room.state(run_id) is LEASED
        await worker.succeed(given.ref)
        await room.becomes(run_id, DONE)


async def test_the_reaper_does_not_pass_over_a_lease_that_adoption_has_just_renewed(room: Room) -> None:
    """SQL holds a later end than memory: the ending is refused, and memory believes the row from then on."""
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        renewed_us = live(owner, run_id).sql_lease_until_us + 60_000_000
        await room.eye.execute("UPDATE runs SET lease_until_us = $2 WHERE run_id = $1", run_id, renewed_us)
        held = live(owner, run_id)
        held.lease_until_us = now_us() - 1
        owner.parts.memory.attempts.check_again(held, 0)
        await eventually(lambda: live(owner, run_id).lease_until_us == renewed_us, what="memory follows the row")
        await owner.parts.loops.reaper.step()
        await eventually(lambda: owner.parts.loops.completion.idle)
        assert await room.state(run_id) is LEASED
        assert await room.attempts(run_id) == []
        await worker.succeed(given.ref)
        await room.becomes(run_id, DONE)


async def test_a_loss_whose_outcome_stayed_unknown_is_recorded_by_the_next_look(room: Room) -> None:
    """Until then no heartbeat is acknowledged: the first write may still come to pass."""
    owner = await room.owner(**SHORT)
    store, left = owner.parts.loops.completion._store, [None]
    end = store.end

    async def unknown(items: Sequence[Ending], *, now_us: int) -> Ended:
        if left:
            left.pop()
            raise OutcomeUnknown("neither written nor answered")
        return await end(items, now_us=now_us)

    store.end = unknown  # type: ignore[method-assign]
    async with ScriptedWorker(owner.address, "silent") as silent:
        await silent.grant(1)
        run_id = await room.trigger(await room.job())
        given = await silent.assignment()
        await eventually(lambda: not left, 20, what="the loss was written without an answer")
        await silent.heartbeat(given.ref)
        await eventually(lambda: [one.verdict for one in silent.heartbeat_exceptions] == [pb.VERDICT_RETRY])
        async with ScriptedWorker(owner.address, "heir", work=success) as heir:
            await heir.grant(1)
            await eventually(lambda: _outcomes(room, run_id), 20, what="the loss is recorded")
            assert (await _outcomes(room, run_id))[0] == AttemptOutcome.LOST


async def _outcomes(room: Room, run_id: UUID) -> list[AttemptOutcome]:
    return [AttemptOutcome(row["outcome"]) for row in await room.attempts(run_id)]


async def test_a_take_back_is_dropped_once_the_worker_was_heard_of_the_attempt(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await worker.heartbeat(given.ref)
        await eventually(lambda: worker.heartbeat_replies)
        await owner.parts.loops.completion.submit(Submission(run_id, 1, None, GivenBack(), None))
        await eventually(lambda: owner.parts.loops.completion.idle)
        assert await room.state(run_id) is LEASED
        await worker.succeed(given.ref)
        await room.becomes(run_id, DONE)


@pytest.mark.parametrize("streams", [5])
async def test_a_stream_that_breaks_while_it_is_written_to_ends_no_dispatcher(room: Room, streams: int) -> None:
    owner = await room.owner()
    job_id = await room.job()
    for number in range(streams):
        async with ScriptedWorker(owner.address, f"worker-{number}", slots=50) as worker:
            await worker.grant(50)
            for _ in range(5):
                await room.trigger(job_id, payload=b"x" * 100_000)
            await worker.assigned(1)
    assert owner.tasks.failure is None
    assert not owner.tasks.failed.is_set()
