"""Heartbeats hold leases, in memory and in SQL; only their end, a time-out or the worker's word ends an attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.errors import OutcomeUnknown, Unavailable
from core.states import AttemptOutcome, RunState
from core.store.leases import Renewal, Renewed
from tests.component.dispatcher.conftest import Departure
from tests.support.dispatcher_room import STEADY, Room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

SHORT: dict[str, Any] = {"attempt_lease_s": 1.5, "heartbeat_interval_s": 0.5}


async def test_b89_a_run_many_times_as_long_as_its_lease_is_executed_once(depart: Departure) -> None:
    machine = await depart("2026-01-10T12:00Z", attempt_lease_s=15.0, heartbeat_interval_s=5.0)
    room, worker = machine.room, machine.worker
    assert worker is not None
    run_id = await room.trigger(await room.job(handler="long"))
    await machine.until(lambda: worker.holding, "the run is under way")
    (given,) = worker.assignments
    first_end_us = (await room.run(run_id))["lease_until_us"]
    for _ in range(12):
        await machine.clock.leap(5.0)
        await machine.until(lambda: _is_acknowledged(worker, given.ref), "its heartbeat is acknowledged")
        await machine.until(lambda: _is_leased(room, run_id, machine.now_us), "SQL holds the lease too")
    assert machine.now_us > first_end_us + 30 * US_PER_S
    await worker.succeed(given.ref)
    run = await room.becomes(run_id, RunState.SUCCEEDED)
    assert (run["attempt"], len(worker.starts)) == (1, 1)
    await machine.check()


async def _is_acknowledged(worker: ScriptedWorker, ref: pb.AttemptRef) -> bool:
    """Send one heartbeat and say whether it extended the lease."""
    refused = len(worker.heartbeat_exceptions)
    number = await worker.heartbeat(ref)
    await eventually(lambda: worker.heartbeat_replies and worker.heartbeat_replies[-1].sequence == number)
    return len(worker.heartbeat_exceptions) == refused


async def _is_leased(room: Room, run_id: Any, until_us: int) -> bool:
    return bool((await room.run(run_id))["lease_until_us"] > until_us)


async def test_every_frame_of_heartbeats_is_answered_with_its_number(room: Room) -> None:
    owner = await room.owner(**STEADY)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        await room.trigger(await room.job())
        given = await worker.assignment()
        sequences = [await worker.heartbeat(given.ref) for _ in range(3)]
        await eventually(lambda: [reply.sequence for reply in worker.heartbeat_replies] == sequences)
        assert worker.heartbeat_exceptions == []


async def test_renewals_reach_sql_only_when_half_of_its_lease_is_used_up(room: Room) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        end_us = (await room.run(run_id))["lease_until_us"]
        for _ in range(5):
            await worker.heartbeat(given.ref)
        await eventually(lambda: len(worker.heartbeat_replies) == 5)
        await asyncio.sleep(0.3)
        assert (await room.run(run_id))["lease_until_us"] == end_us


async def test_progress_is_kept_and_handed_to_the_next_attempt(room: Room) -> None:
    owner = await room.owner(**STEADY)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(2)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        assert given.progress == b""
        await worker.heartbeat(given.ref, progress=b"a third")
        await worker.heartbeat(given.ref, progress=b"half" * 10_000)
        await worker.heartbeat(given.ref)
        await eventually(lambda: _progress(room, run_id))
        await worker.fail(given.ref)
        again = await worker.assignment(attempt=2)
        assert again.progress == (b"half" * 10_000)[:16_384]
        await worker.succeed(again.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        await room.check(worker)


async def test_b93_a_heartbeat_behind_its_result_changes_nothing_and_is_no_error(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        with caplog.at_level(logging.WARNING, "dispatcher"):
            await worker.succeed(given.ref)
            await worker.verdict(given.ref)
            worker.acknowledgements.clear()
            await worker.heartbeat(given.ref, progress=b"late")
            assert await worker.verdict(given.ref) == pb.VERDICT_STALE
        run = await room.run(run_id)
        assert (run["state"], run["progress"]) == (RunState.SUCCEEDED, None)
        assert [record for record in caplog.records if record.name.startswith("dispatcher")] == []


async def test_a_worker_that_went_silent_gets_nothing_until_it_speaks(room: Room) -> None:
    owner = await room.owner(**SHORT)
    async with ScriptedWorker(owner.address, slots=5) as worker:
        await worker.grant(5)
        job_id = await room.job()
        run_id = await room.trigger(job_id)
        await worker.assignment()
        owner.lease_for(60.0)
        await eventually(lambda: _outcomes(room, run_id), 30)
        await eventually(lambda: owner.parts.memory.routes.holds(run_id))
        await asyncio.sleep(0.5)
        assert len(worker.starts) == 1
        await worker.heartbeat()
        again = await worker.assignment(attempt=2)
        await worker.succeed(again.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
        await room.check(worker)


async def test_a_lease_whose_renewal_was_written_without_an_answer_still_ends(room: Room) -> None:
    """What memory believes of SQL's lease is then too early, and the reaper's compare-and-set is refused at first."""
    owner = await room.owner(**SHORT, **STEADY)
    _lose_answers_of_renewals(owner)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        first_end_us = (await room.run(run_id))["lease_until_us"]
        # What it reports is written at once, and the lease with it.
        await worker.heartbeat(given.ref, progress=b"half")
        await eventually(lambda: _renewed(room, run_id, first_end_us))
        owner.lease_for(60.0)
    async with ScriptedWorker(owner.address, "worker-2", work=success) as heir:
        await heir.grant(1)
        await room.becomes(run_id, RunState.SUCCEEDED, 30)
        assert await _outcomes(room, run_id) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
        await room.check(worker, heir)


async def test_progress_that_was_not_written_is_written_later(room: Room) -> None:
    owner = await room.owner(**STEADY)
    failures = _fail_renewals(owner, 1)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await worker.heartbeat(given.ref, progress=b"half")
        await eventually(lambda: not failures)
        await eventually(lambda: _progress(room, run_id))
        await worker.succeed(given.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)


@pytest.mark.parametrize("how", ["never sent", "under way", "without an answer"])
async def test_progress_that_an_end_overtakes_is_the_next_attempts_all_the_same(room: Room, how: str) -> None:
    """A worker reports for the last time right before it says that its handler failed."""
    owner = await room.owner(**STEADY)
    release = asyncio.Event()
    if how == "without an answer":
        _lose_answers_of_renewals(owner)
    elif how == "under way":
        _hold_renewals(owner, release)
    else:
        _fail_renewals(owner, 1_000)
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(2)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await worker.heartbeat(given.ref, progress=b"a third")
        await worker.heartbeat(given.ref, progress=b"half")
        await worker.fail(given.ref)
        again = await worker.assignment(attempt=2)
        assert (again.progress, await _progress(room, run_id)) == (b"half", b"half")
        release.set()
        await worker.succeed(again.ref)
        assert (await room.becomes(run_id, RunState.SUCCEEDED))["progress"] == b"half"


async def test_heartbeats_are_not_acknowledged_while_the_term_has_not_been_proven_lately(room: Room) -> None:
    """A successor adds the margin to every lease that it adopts; past it, nothing may be promised (rule 14)."""
    owner = await room.owner()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        await room.trigger(await room.job())
        given = await worker.assignment()
        owner.parts.memory.holdings.note = lambda views, seen_s: []  # type: ignore[method-assign]
        await owner.sees_terms_no_more()
        for held in owner.parts.memory.holdings:
            held.proven_s = owner.clock.monotonic_s() - 60
        await worker.heartbeat(given.ref)
        await eventually(lambda: worker.heartbeat_exceptions)
        assert worker.heartbeat_exceptions[0].verdict == pb.VERDICT_RETRY


def _lose_answers_of_renewals(owner: RunningDispatcher) -> None:
    leases = owner.parts.loops.renewals._leases
    renew = leases.renew

    async def without_answer(renewals: list[Renewal]) -> Renewed:
        await renew(renewals)
        raise OutcomeUnknown("the answer was lost")

    leases.renew = without_answer  # type: ignore[method-assign,assignment]


def _hold_renewals(owner: RunningDispatcher, release: asyncio.Event) -> None:
    leases = owner.parts.loops.renewals._leases
    renew = leases.renew

    async def held(renewals: list[Renewal]) -> Renewed:
        await release.wait()
        return await renew(renewals)

    leases.renew = held  # type: ignore[method-assign,assignment]


def _fail_renewals(owner: RunningDispatcher, times: int) -> list[None]:
    """Returns what is left to fail."""
    leases, left = owner.parts.loops.renewals._leases, [None] * times
    renew = leases.renew

    async def failing(renewals: list[Renewal]) -> Renewed:
        if left:
            left.pop()
            raise Unavailable("not now")
        return await renew(renewals)

    leases.renew = failing  # type: ignore[method-assign,assignment]
    return left


async def _progress(room: Room, run_id: Any) -> bytes | None:
    progress: bytes | None = (await room.run(run_id))["progress"]
    return progress


async def _renewed(room: Room, run_id: Any, first_end_us: int) -> bool:
    return bool((await room.run(run_id))["lease_until_us"] > first_end_us)


async def _outcomes(room: Room, run_id: Any) -> list[AttemptOutcome]:
    return [AttemptOutcome(row["outcome"]) for row in await room.attempts(run_id)]
