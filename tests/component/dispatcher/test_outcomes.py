"""How attempts end: retries, dead letters, time-outs, lost workers, and words that come twice or too late."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.jobspec import MAX_RESULT_BYTES
from core.policy import Retry
from core.states import AttemptOutcome, RunState
from tests.support.dispatcher_room import Room
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, failure, success

SHORT: dict[str, Any] = {"attempt_lease_s": 1.5, "heartbeat_interval_s": 0.5}


async def outcomes(room: Room, run_id: Any) -> list[AttemptOutcome]:
    return [AttemptOutcome(row["outcome"]) for row in await room.attempts(run_id)]


async def test_a_run_that_keeps_failing_is_retried_with_growing_delays_and_ends_dead(room: Room) -> None:
    owner = await room.owner()
    retry = Retry(max_attempts=3, first_delay_us=200_000, factor=2.0, max_delay_us=US_PER_S, jitter=0.0)
    async with ScriptedWorker(owner.address, work=failure) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job(retry=retry))
        run = await room.becomes(run_id, RunState.DEAD)
        assert run["last_error"] == "it broke"
        assert await outcomes(room, run_id) == [AttemptOutcome.FAILED] * 3
        assert [a.fencing_token for a in worker.assignments] == [1, 2, 3]
        assert {a.ref.run_id for a in worker.assignments} == {str(run_id)}
        first, second, third = await room.attempts(run_id)
        assert second["started_us"] - first["ended_us"] >= 200_000
        assert third["started_us"] - second["ended_us"] >= 400_000
        await eventually(lambda: owner.metric("tidewheel_dead_total") == 1)
        assert owner.metric("tidewheel_retries_total") == 2
        await room.check(worker)


async def test_a_failure_that_is_not_retryable_ends_the_run_at_once(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address, work=lambda given: failure(given, not_retryable=True)) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        await room.becomes(run_id, RunState.FAILED)
        assert await outcomes(room, run_id) == [AttemptOutcome.FAILED]
        await room.check(worker)


async def test_b102_a_lost_worker_costs_an_attempt_and_the_run_keeps_its_id(room: Room) -> None:
    owner = await room.owner(**SHORT)
    job_id = await room.job(retry=Retry(max_attempts=2, first_delay_us=0, max_delay_us=0, jitter=0.0))
    async with ScriptedWorker(owner.address, "worker-1") as first:
        await first.grant(1)
        run_id = await room.trigger(job_id)
        given = await first.assignment()
    async with ScriptedWorker(owner.address, "worker-2") as second:
        await second.grant(1)
        again = await second.assignment(attempt=2)
        assert (again.ref.run_id, again.fencing_token) == (str(run_id), 2)
        assert again.ref.token != given.ref.token
        await eventually(lambda: outcomes(room, run_id))
    run = await room.becomes(run_id, RunState.DEAD, 30)
    assert await outcomes(room, run_id) == [AttemptOutcome.LOST] * 2
    assert run["attempt"] == 2
    await room.check(first, second)


async def test_row_34_an_attempt_that_takes_too_long_is_told_to_stop_and_retried(room: Room) -> None:
    owner = await room.owner()
    job_id = await room.job(timeout_us=700_000)
    async with ScriptedWorker(owner.address) as worker, worker.beating():
        await worker.grant(1)
        run_id = await room.trigger(job_id)
        given = await worker.assignment()
        assert await worker.canceled(given.ref, within_s=10) == "timed out"
        await worker.stop(given.ref)
        await worker.grant(2)
        again = await worker.assignment(attempt=2)
        await worker.succeed(again.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        assert await outcomes(room, run_id) == [AttemptOutcome.TIMED_OUT, AttemptOutcome.SUCCEEDED]
        await room.check(worker)


async def test_row_34_a_worker_that_ignores_the_time_out_loses_the_attempt_one_lease_later(room: Room) -> None:
    owner = await room.owner()
    job_id = await room.job(timeout_us=500_000)
    async with ScriptedWorker(owner.address) as worker, worker.beating(0.1):
        await worker.grant(1)
        run_id = await room.trigger(job_id)
        given = await worker.assignment()
        owner.lease_for(1.0)  # what the time-out leaves it
        await eventually(lambda: outcomes(room, run_id), 30)
        assert await outcomes(room, run_id) == [AttemptOutcome.TIMED_OUT]
        await worker.succeed(given.ref)
        assert await worker.verdict(given.ref) == pb.VERDICT_STALE
        await room.check(worker)


async def test_row_32_a_result_that_is_sent_again_is_accepted_again_and_changes_nothing(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(2)
        job_id = await room.job(retry=Retry(first_delay_us=600 * US_PER_S))
        good, bad = await room.trigger(job_id), await room.trigger(job_id)
        first, second = await worker.assigned(2)
        succeeded, failed = (first, second) if first.ref.run_id == str(good) else (second, first)
        for _ in range(3):
            worker.acknowledgements.clear()
            await worker.answer(success(succeeded), success(succeeded), failure(failed))
            assert await worker.verdict(succeeded.ref) == pb.VERDICT_ACCEPTED
            assert await worker.verdict(failed.ref) == pb.VERDICT_ACCEPTED
        assert await room.state(good) is RunState.SUCCEEDED
        assert (await room.run(bad))["attempt"] == 1
        assert await outcomes(room, bad) == [AttemptOutcome.FAILED]
        await room.check(worker)


async def test_b87_words_of_an_attempt_that_was_lost_are_refused_and_said_to_be_stale(room: Room) -> None:
    owner = await room.owner(**SHORT)
    async with ScriptedWorker(owner.address, "worker-1") as silent, ScriptedWorker(owner.address, "worker-2") as steady:
        await silent.grant(1)
        run_id = await room.trigger(await room.job())
        old = await silent.assignment()
        owner.lease_for(60.0)
        await steady.grant(1)
        async with steady.beating():
            new = await steady.assignment(attempt=2)
            await silent.heartbeat(old.ref, progress=b"half")
            assert await silent.verdict(old.ref) == pb.VERDICT_STALE
            silent.acknowledgements.clear()
            await silent.succeed(old.ref, b"too late")
            assert await silent.verdict(old.ref) == pb.VERDICT_STALE
            await steady.succeed(new.ref, b"right")
        run = await room.becomes(run_id, RunState.SUCCEEDED)
        assert (run["result"], run["progress"]) == (b"right", None)
        await room.check(silent, steady)


async def test_a_wrong_secret_changes_nothing(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        forged = pb.AttemptRef(run_id=given.ref.run_id, attempt=1, token=b"guess")
        await worker.succeed(forged, b"forged")
        assert await worker.verdict(forged) == pb.VERDICT_STALE
        await worker.heartbeat(forged, progress=b"forged")
        await worker.give_back(forged)
        await asyncio.sleep(0.3)
        run = await room.run(run_id)
        assert (run["state"], run["result"], run["progress"]) == (RunState.LEASED, None, None)
        await worker.succeed(given.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        await room.check(worker)


async def test_what_is_given_back_does_not_count_and_goes_to_another_worker_at_once(room: Room) -> None:
    owner = await room.owner()
    retry = Retry(max_attempts=1, first_delay_us=0, max_delay_us=0)
    async with ScriptedWorker(owner.address, "worker-1") as busy, ScriptedWorker(owner.address, "worker-2") as free:
        await busy.grant(1)
        run_id = await room.trigger(await room.job(retry=retry))
        given = await busy.assignment()
        await busy.give_back(given.ref)
        assert await busy.verdict(given.ref) == pb.VERDICT_ACCEPTED
        await free.grant(1)
        again = await free.assignment(attempt=2, run_id=str(run_id))
        await free.fail(again.ref)
        run = await room.becomes(run_id, RunState.DEAD)
        assert (run["attempt"], run["uncounted"]) == (2, 1)
        assert [row["attempt"] for row in await room.attempts(run_id)] == [2]
        await room.check(busy, free)


async def test_row_34_a_worker_that_reports_garbage_harms_nobody_but_its_own_runs(room: Room) -> None:
    owner = await room.owner()
    endless = Timestamp(seconds=2**60, nanos=-5)
    async with (
        ScriptedWorker(owner.address, slots=10) as worker,
        ScriptedWorker(owner.address, "other", ["sound"], work=success) as sound,
    ):
        await worker.grant(6)
        await sound.grant(5)
        job_id = await room.job(retry=Retry(max_attempts=1))
        for _ in range(6):
            await room.trigger(job_id)
        first, second, third, fourth, fifth, sixth = await worker.assigned(6)
        await worker.answer(
            pb.Result(ref=first.ref, success=pb.Success(result_type="te\0xt" * 100)),
            pb.Result(ref=second.ref, failure=pb.Failure(message="\0" * 10_000)),
            pb.Result(ref=third.ref),
            pb.Result(ref=fourth.ref, success=pb.Success(), started_at=endless),
            pb.Result(ref=fifth.ref, success=pb.Success(result=b"x" * (MAX_RESULT_BYTES + 1))),
            pb.Result(ref=pb.AttemptRef(run_id="no id at all", attempt=-1)),
        )
        await worker.heartbeat(
            pb.AttemptRef(run_id="neither"), pb.AttemptRef(run_id="00000000-0000-0000-0000-000000000001")
        )
        await worker.give_back(pb.AttemptRef(run_id=""))
        await worker.say(reclaim=pb.Reclaim(count=-7))
        await worker.grant(-3)
        await worker.say(hello=pb.Hello())
        await worker.say(results=pb.Results())
        await worker.answer(success(sixth))
        states = [
            RunState.SUCCEEDED,
            RunState.DEAD,
            RunState.DEAD,
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.SUCCEEDED,
        ]
        for given, state in zip((first, second, third, fourth, fifth, sixth), states, strict=True):
            await room.becomes(given.ref.run_id, state)
        await room.becomes(await room.trigger(await room.job(handler="sound")), RunState.SUCCEEDED)
        await room.check(worker, sound)
