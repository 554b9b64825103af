"""Attempts in flight while their shard moves: who answers for them, what workers are told, and what nobody may lose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.errors import OutcomeUnknown
from core.policy import Retry
from core.states import AttemptOutcome, RunState
from core.store.completion import Ended, Ending
from tests.support.dispatcher_room import STEADY, Room, now_us
from tests.support.moves import EVERY, belongs_to, opened, ordered, split
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker

DONE, LEASED = RunState.SUCCEEDED, RunState.LEASED
REDIRECT, RETRY, ACCEPTED = pb.VERDICT_REDIRECT, pb.VERDICT_RETRY, pb.VERDICT_ACCEPTED


def without_handoffs(target: RunningDispatcher) -> None:
    """It splits, and brings nothing home and closes nothing: the shards stay in two hands."""

    async def step() -> None:
        return None

    target.parts.loops.handoffs.step = step  # type: ignore[method-assign]


async def in_two_hands(room: Room) -> tuple[RunningDispatcher, RunningDispatcher]:
    """The owner of the earlier ranges and the one of the later ranges, which stays so."""
    old, new = await room.owner("old", **STEADY), await room.dispatcher("new", **STEADY)
    without_handoffs(new)
    return old, new


async def move_on(room: Room, new: RunningDispatcher) -> None:
    await ordered(room, new)
    await split(room)
    await eventually(lambda: new.shards == EVERY, what="the new owner serves its ranges")


async def home_of(room: Room, run_id: UUID) -> int:
    return int((await room.run(run_id))["home_term"])


async def test_rule_13_the_owner_after_the_boundary_takes_a_run_home_before_it_acts_on_its_result(room: Room) -> None:
    old, new = await in_two_hands(room)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await move_on(room, new)
        assert await home_of(room, run_id) == 1
        await at_new.succeed(given.ref, b"said to the new owner")
        assert await at_new.verdict(given.ref) == ACCEPTED
        run = await room.run(run_id)
        assert (run["state"], run["result"], run["home_term"]) == (DONE, b"said to the new owner", 2)
        assert [row["term"] for row in await room.attempts(run_id)] == [2]
        await room.check(at_old)


async def test_rule_13_a_heartbeat_brings_its_run_home_and_the_next_one_holds_the_lease(room: Room) -> None:
    old, new = await in_two_hands(room)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await move_on(room, new)
        await at_new.heartbeat(given.ref)
        await eventually(lambda: new.parts.memory.attempts.get(run_id) is not None)
        exceptions = len(at_new.heartbeat_exceptions)
        replies = len(at_new.heartbeat_replies)
        await at_new.heartbeat(given.ref, progress=b"half")
        await eventually(lambda: len(at_new.heartbeat_replies) > replies)
        assert len(at_new.heartbeat_exceptions) == exceptions, "acknowledged"
        assert await home_of(room, run_id) == 2
        told = await at_old.acknowledgement(given.ref)
        assert (told.verdict, told.owner_address) == (REDIRECT, new.address), "the old owner sees it in the row"
        assert old.parts.memory.attempts.get(run_id) is None
        await at_new.succeed(given.ref)
        assert (await room.becomes(run_id, DONE))["progress"] == b"half"
        await room.check(at_old)


async def test_a_word_at_the_owner_before_the_boundary_for_a_run_that_went_home_is_redirected(room: Room) -> None:
    old, new = await in_two_hands(room)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await move_on(room, new)
        await at_new.heartbeat(given.ref)
        await eventually(lambda: new.parts.memory.attempts.get(run_id) is not None)
        await at_old.acknowledgement(given.ref)
        at_old.acknowledgements.clear()
        await at_old.succeed(given.ref, b"to the old one")
        told = await at_old.acknowledgement(given.ref)
        assert (told.verdict, told.owner_address) == (REDIRECT, new.address)
        assert await room.state(run_id) is LEASED
        await at_new.succeed(given.ref)
        await room.becomes(run_id, DONE)


async def test_the_owner_before_the_boundary_takes_nothing_from_the_one_after_it(room: Room) -> None:
    old, new = await in_two_hands(room)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_new.grant(1)
        await move_on(room, new)
        run_id = next(iter(await _fired_behind(room, new)))
        given = await at_new.assignment(run_id=str(run_id))
        await at_old.succeed(given.ref)
        told = await at_old.acknowledgement(given.ref)
        assert (told.verdict, told.owner_address, await home_of(room, run_id)) == (REDIRECT, new.address, 2)
        await at_new.succeed(given.ref)
        await room.becomes(run_id, DONE)


async def test_rule_14_heartbeats_under_a_term_with_an_end_need_a_look_at_the_run(room: Room) -> None:
    """The new owner may have taken the run home, and given its lease an end that must not be passed over."""
    old, new = await in_two_hands(room)
    async with ScriptedWorker(old.address) as at_old:
        await at_old.grant(1)
        await room.trigger(await room.job())
        given = await at_old.assignment()
        old.parts.loops.redirects.step = _never  # type: ignore[method-assign]
        await move_on(room, new)
        await eventually(lambda: all(held.to_bucket < 2**40 for held in old.parts.memory.holdings))
        looked = old.parts.memory.attempts.get(UUID(given.ref.run_id))
        assert looked is not None
        looked.home_proven_s = old.clock.monotonic_s() - 2 * old.settings.dispatcher.adoption_margin_s
        await at_old.heartbeat(given.ref)
        await eventually(lambda: [one.verdict for one in at_old.heartbeat_exceptions] == [RETRY])
        del old.parts.loops.redirects.step
        began_s = old.clock.monotonic_s()
        await eventually(lambda: looked.home_proven_s > began_s, what="it has looked at the run")
        replies = len(at_old.heartbeat_replies)
        await at_old.heartbeat(given.ref)
        await eventually(lambda: len(at_old.heartbeat_replies) > replies)
        assert len(at_old.heartbeat_exceptions) == 1, "still at home there: acknowledged"


async def test_a_worker_is_told_later_where_the_new_owner_is_not_known_yet(room: Room) -> None:
    old, new = await room.owner("old"), await room.dispatcher("new")
    redirects = old.parts.loops.redirects
    known, redirects._address_of = redirects._address_of, lambda name: ""
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await room.give(new, seize=True)
        await eventually(lambda: not old.shards, what="the old owner has dropped its terms")
        await at_old.succeed(given.ref)
        await eventually(lambda: [one.verdict for one in at_old.acknowledgements] == [RETRY], what="kept by the worker")
        redirects._address_of = known
        told = await at_old.acknowledgement(given.ref)
        assert (told.verdict, told.owner_address) == (REDIRECT, new.address)
        await at_new.succeed(given.ref)
        await room.becomes(run_id, DONE)
        await room.check(at_old)


@pytest.mark.parametrize("times", [1, 2])
async def test_results_whose_answers_were_lost_as_their_run_went_home_are_recorded_once(room: Room, times: int) -> None:
    """The old owner wrote the result and did not hear of it; the new one judges by the row what it is told again."""
    old, new = await in_two_hands(room)
    _look_at_no_row(old)
    lost = _lose_answers_of_endings(old, times)
    async with ScriptedWorker(old.address) as at_old, ScriptedWorker(new.address) as at_new:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await move_on(room, new)
        for told in range(1, times + 1):
            await at_old.succeed(given.ref, b"once")
            await _told(at_old, [RETRY] * told)
        assert len(lost) == 0, "each of them was written, and its answer lost"
        await room.becomes(run_id, DONE)
        await at_new.succeed(given.ref, b"once")
        assert await at_new.verdict(given.ref) == ACCEPTED, "durable, as the row says"
        assert [row["outcome"] for row in await room.attempts(run_id)] == [AttemptOutcome.SUCCEEDED]
        await room.check(at_old)


async def test_a_result_whose_answer_was_lost_is_accepted_by_the_old_owner_too_once_it_has_seen_the_row(
    room: Room,
) -> None:
    """It looks at the rows under a term with an end; what is said again is judged by the row, and not written again."""
    old, new = await in_two_hands(room)
    lost = _lose_answers_of_endings(old, 2)
    async with ScriptedWorker(old.address) as at_old:
        await at_old.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_old.assignment()
        await move_on(room, new)
        old.parts.loops.redirects._address_of = lambda name: ""
        await at_old.succeed(given.ref, b"once")
        await _told(at_old, [RETRY])
        await eventually(lambda: old.parts.memory.attempts.get(run_id) is None, what="it has seen the row")
        await at_old.succeed(given.ref, b"once")
        await _told(at_old, [RETRY, ACCEPTED])
        assert len(lost) == 1, "written once"
        assert [row["outcome"] for row in await room.attempts(run_id)] == [AttemptOutcome.SUCCEEDED]
        await room.check(at_old)


async def test_a_retry_that_the_owner_before_the_boundary_fires_is_answered_for_by_the_new_one_afterwards(
    room: Room,
) -> None:
    """The new owner knew the run as resting; at the end of the move it rests no more."""
    old, new = await room.owner("old"), await room.dispatcher("new", handoff_lead_s=6.0)
    retry = Retry(max_attempts=3, first_delay_us=2_500_000, factor=1.0, max_delay_us=2_500_000, jitter=0.0)
    async with ScriptedWorker(old.address, slots=9) as at_old, ScriptedWorker(new.address, slots=9) as at_new:
        await at_old.grant(9)
        run_id = await room.trigger(await room.job(retry=retry))
        given = await at_old.assignment()
        await ordered(room, new)
        await split(room)
        await eventually(lambda: new.shards == EVERY, what="the new owner knows of its terms")
        await at_old.fail(given.ref)
        assert await at_old.verdict(given.ref) == ACCEPTED
        _have_it_look(new)
        await eventually(lambda: run_id in new.parts.memory.resting, what="the new owner knows it as resting")
        again = await at_old.assignment(attempt=2)
        assert run_id in new.parts.memory.resting
        await belongs_to(room, new, 30)
        assert new.parts.memory.attempts.get(run_id) is not None, "held, and reaped if nobody speaks for it"
        assert run_id not in new.parts.memory.resting
        await at_new.succeed(again.ref)
        assert await at_new.verdict(again.ref) == ACCEPTED
        assert (await room.becomes(run_id, DONE))["attempt"] == 2


async def test_at_any_time_at_most_one_attempt_of_a_run_has_a_lease(room: Room) -> None:
    """Moves to and fro under workers that beat, fail or say nothing: each attempt ends before the next one begins."""
    settings: dict[str, Any] = {"attempt_lease_s": 2.0, "heartbeat_interval_s": 0.5}
    first, second = await room.owner("first", **settings), await room.dispatcher("second", **settings)
    jobs = [await room.job(shard=shard) for shard in EVERY]
    async with (
        ScriptedWorker(first.address, "worker-1", slots=40) as at_first,
        ScriptedWorker(second.address, "worker-1", slots=40) as at_second,
    ):
        await at_first.grant(40)
        await at_second.grant(40)
        runs = [await room.trigger(job_id) for job_id in jobs for _ in range(3)]
        for number in range(4):
            to = first if number % 2 else second
            await ordered(room, to)
            held = [*at_first.holding, *at_second.holding]
            for ref in held[::3]:
                await (at_first if number % 2 else at_second).heartbeat(ref)
            for ref in held[1::3]:
                await (at_second if number % 2 else at_first).fail(ref)
            await belongs_to(room, to)
        async with asyncio.timeout(90):
            while any([await room.state(run_id) not in _ENDED for run_id in runs]):
                for one in [*at_first.assignments, *at_second.assignments]:
                    await at_first.succeed(one.ref)
                    await at_second.succeed(one.ref)
                await asyncio.sleep(0.5)
        rows = await room.eye.fetch("SELECT run_id, attempt, started_us, ended_us FROM attempts ORDER BY 1, 2")
        for before, after in pairwise(rows):
            if before["run_id"] == after["run_id"]:
                assert before["ended_us"] <= after["started_us"], (before, after)


_ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.DEAD)


async def _never() -> None:
    return None


async def _fired_behind(room: Room, new: RunningDispatcher) -> list[UUID]:
    """Runs that the owner behind the boundary has made of occurrences there."""
    terms = await opened(room)
    after_s = max(1.0, (room.scale.start_us(terms[-1].from_bucket) - now_us()) / 1e6 + 1.0)
    job_id = await room.once(after_s=after_s)

    async def made() -> list[UUID]:
        return [run["run_id"] for run in await room.runs(job_id) if run["home_term"] == 2]

    return await eventually(made, 20, what="the new owner fires")


def _look_at_no_row(owner: RunningDispatcher) -> None:
    """Its memory follows no row, and it knows no other owner: what it says of a result comes from its own writing."""
    redirects = owner.parts.loops.redirects
    redirects._address_of = lambda name: ""
    redirects.step = _never  # type: ignore[method-assign]


def _have_it_look(owner: RunningDispatcher) -> None:
    """It reads once what is open in its shards, as it does for a doubt and now and then."""
    settled_s = 60.0  # no write of that age is under way: one pass settles the doubt
    keys = [held.key for held in owner.parts.memory.holdings]
    owner.parts.memory.doubt(keys, owner.clock.monotonic_s() - settled_s)


async def _told(worker: ScriptedWorker, verdicts: list[pb.Verdict]) -> None:
    await eventually(lambda: [one.verdict for one in worker.acknowledgements] == verdicts, 30, what=f"told {verdicts}")


def _lose_answers_of_endings(owner: RunningDispatcher, times: int) -> list[None]:
    """Returns what is left to lose."""
    store, left = owner.parts.loops.completion._store, [None] * times
    end = store.end

    async def without_answer(items: Sequence[Ending], *, now_us: int) -> Ended:
        done = await end(items, now_us=now_us)
        if left:
            left.pop()
            raise OutcomeUnknown("the answer was lost")
        return done

    store.end = without_answer  # type: ignore[method-assign]
    return left
