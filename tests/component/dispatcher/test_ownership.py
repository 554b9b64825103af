"""Shards change hands: open runs come home, workers go on, and an owner that does not know yet writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

from tidewheel.v1 import worker_service_pb2 as pb

from core.policy import Retry
from core.states import AttemptOutcome, RunState, TermState
from dispatcher.process import run as run_dispatcher
from tests.support.dispatcher_room import SHARDS, STEADY, UNHURRIED, Room
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, failure, success

DONE = RunState.SUCCEEDED
EVERY = set(range(SHARDS))


async def terms(room: Room, state: TermState) -> list[str]:
    """The owners of the terms in that state, by shard."""
    rows = await room.eye.fetch("SELECT owner FROM shard_terms WHERE state = $1 ORDER BY shard, term", int(state))
    return [row["owner"] for row in rows]


async def published(room: Room, owner: RunningDispatcher) -> None:
    """Wait until etcd names it as the owner of every shard."""
    await eventually(lambda: {o.dispatcher_id for o in room.leader.owners().values()} == {owner.name})


async def test_a_first_claim_opens_the_first_term_and_is_published_after_it_committed(room: Room) -> None:
    owner = await room.owner("first")
    assert await terms(room, TermState.OPEN) == ["first"] * SHARDS
    await published(room, owner)
    assert {o.term for o in room.leader.owners().values()} == {1}
    assert owner.metric("tidewheel_owned_shards") == SHARDS
    await room.check()


async def test_row_1_a_successor_adopts_open_runs_and_they_go_on(room: Room) -> None:
    first = await room.owner("first")
    second = await room.dispatcher("second")
    retry = Retry(max_attempts=3, first_delay_us=2_500_000, max_delay_us=2_500_000, jitter=0.0)
    async with (
        ScriptedWorker(first.address, "worker-1", ["long"]) as on_first,
        ScriptedWorker(first.address, "worker-2", ["flaky"], work=failure) as flaky,
    ):
        await on_first.grant(1)
        await flaky.grant(1)
        running = await room.trigger(await room.job(handler="long"))
        given = await on_first.assignment()
        retried = await room.trigger(await room.job(handler="flaky", retry=retry))
        await eventually(lambda: _outcomes(room, retried))
        waiting = await room.trigger(await room.job(handler="none"))
        await eventually(lambda: first.parts.memory.routes.holds(waiting))
        lease_before_us = (await room.run(running))["lease_until_us"]
        await first.kill()
    await room.give(second)
    assert (await room.run(running))["lease_until_us"] > lease_before_us, "a full lease again, and the margin"
    async with ScriptedWorker(
        second.address, "worker-1", ["long", "flaky", "none"], 3, work=success, holding=[given.ref]
    ) as heir:
        await heir.grant(3)
        await heir.succeed(given.ref)
        for run_id in (running, waiting, retried):
            await room.becomes(run_id, DONE)
        assert await _outcomes(room, retried) == [AttemptOutcome.FAILED, AttemptOutcome.SUCCEEDED]
        assert (await room.run(running))["attempt"] == 1
        assert {run["home_term"] for run in await room.runs()} == {2}
        assert second.metric("tidewheel_takeovers_total") == SHARDS
        await room.check(flaky, heir)


async def test_an_order_that_names_another_term_than_the_present_one_changes_nothing(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    third = await room.dispatcher("third")
    await room.order(dict.fromkeys(EVERY, second), seize=True)
    await second.holds(EVERY)
    rows = await room.eye.fetch("SELECT shard, term FROM shard_terms WHERE owner = 'first'")
    await room.order_replacing({row["shard"]: (third, row["term"], "first") for row in rows}, seize=True)
    await asyncio.sleep(0.5)
    assert third.shards == set()
    assert await terms(room, TermState.OPEN) == ["second"] * SHARDS
    await eventually(lambda: first.shards == set(), what="the first one drops what it lost")


@asynccontextmanager
async def paused_owner(
    room: Room, worker_on: list[ScriptedWorker]
) -> AsyncIterator[tuple[RunningDispatcher, RunningDispatcher]]:
    """An owner that has not seen that all its shards went to another one; a worker hangs on each."""
    old, new = await room.owner("old"), await room.dispatcher("new")
    async with ScriptedWorker(old.address, slots=50) as at_old, ScriptedWorker(new.address, slots=50) as at_new:
        worker_on += [at_old, at_new]
        await old.sees_terms_no_more()
        yield old, new


async def test_rows_3_and_b70_every_write_of_an_owner_that_was_passed_over_is_refused_and_counted(room: Room) -> None:
    workers: list[ScriptedWorker] = []
    async with paused_owner(room, workers) as (old, new):
        at_old, at_new = workers
        await at_old.grant(1)
        held = await room.trigger(await room.job())
        given = await at_old.assignment()
        waiting = await room.trigger(await room.job())
        await eventually(lambda: old.parts.memory.routes.holds(waiting))
        with old.firing_nothing():  # or it might fire before it is passed over, and rightly so
            occurring = await room.once(after_s=1.5)
            await eventually(lambda: len(old.parts.memory.agenda) >= 1, what="the old owner has the due row in memory")
            new.parts.loops.due.step = _never  # type: ignore[method-assign]
            await room.give(new, seize=True)
        await at_old.grant(9)  # it leases what waits, fires what is due, ends what it is told, raises its marks
        await eventually(lambda: old.metric("tidewheel_refused_writes_total", statement="lease") >= 1)
        await at_old.succeed(given.ref, b"to the old owner")
        redirected = await at_old.acknowledgement(given.ref)
        assert (redirected.verdict, redirected.owner_address) == (pb.VERDICT_REDIRECT, new.address)
        await eventually(lambda: old.refused_writes >= 2)
        assert await room.state(held) is RunState.LEASED
        assert await room.state(waiting) is RunState.PENDING
        await asyncio.sleep(1.0)
        assert await room.runs(occurring) == [], "the old owner fired nothing"
        del new.parts.loops.due.step
        await at_new.grant(9)
        await at_new.succeed(given.ref, b"to the new owner")
        await room.becomes(held, DONE)
        for one in (await at_new.assigned(2))[:2]:
            await at_new.succeed(one.ref)
        await room.becomes(waiting, DONE)
        await room.all_become(occurring, [DONE])
        assert (await room.run(held))["result"] == b"to the new owner"
        old.let_see_terms()
        await eventually(lambda: old.shards == set(), what="the old owner drops what it lost")
        await room.check(at_old, at_new)


async def test_row_13_a_heartbeat_at_the_old_owner_is_redirected_to_the_new_one(room: Room) -> None:
    first = await room.owner("first")
    second = await room.dispatcher("second", **STEADY)
    async with ScriptedWorker(first.address) as worker, ScriptedWorker(second.address) as beside:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        await room.give(second, seize=True)
        await published(room, second)
        await eventually(lambda: first.shards == set())
        await worker.heartbeat(given.ref)
        redirected = await worker.acknowledgement(given.ref)
        assert (redirected.verdict, redirected.owner_address) == (pb.VERDICT_REDIRECT, second.address)
        await beside.heartbeat(given.ref, progress=b"here now")
        await eventually(lambda: _progress(room, run_id))
        await beside.succeed(given.ref)
        await room.becomes(run_id, DONE)
        await room.check(worker, beside)


async def test_row_2_a_move_from_an_owner_that_is_well_refuses_it_nothing_and_loses_nothing(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second", **UNHURRIED)
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=50) as at_first,
        ScriptedWorker(second.address, "worker-1", work=success, slots=50) as at_second,
    ):
        await at_first.grant(50)
        await at_second.grant(50)
        jobs = [await room.every_second(6, first_after_s=0.5 + n / 20) for n in range(10)]
        await eventually(lambda: len(at_first.starts) >= 10)
        await room.give(second)
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 6)
        await eventually(lambda: first.shards == set(), what="the first one has left every shard")
        assert len(at_second.starts) > 0
        assert second.metric("tidewheel_moves_total") == SHARDS
        assert first.refused_writes == 0
        await room.check(at_first, at_second)


async def test_a_shard_moves_alone_and_the_others_stay(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    await room.order({**dict.fromkeys(EVERY, first), 1: second})
    await second.holds({1})
    await first.holds(EVERY - {1})
    async with (
        ScriptedWorker(first.address, work=success, slots=9) as at_first,
        ScriptedWorker(second.address, work=success, slots=9) as at_second,
    ):
        await at_first.grant(9)
        await at_second.grant(9)
        for shard in EVERY:
            await room.becomes(await room.trigger(await room.job(shard=shard)), DONE)
        assert (len(at_first.starts), len(at_second.starts)) == (SHARDS - 1, 1)
        await room.check(at_first, at_second)


async def test_row_2_an_owner_that_drains_gives_all_up_and_its_worker_keeps_its_results(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with ScriptedWorker(first.address) as at_first, ScriptedWorker(second.address) as at_second:
        await at_first.grant(1)
        run_id = await room.trigger(await room.job())
        given = await at_first.assignment()
        await first.stop()
        assert first.shards == set()
        await eventually(lambda: "first" not in room.leader.members())
        await asyncio.wait_for(at_first.ended.wait(), 15)
        await room.give(second)
        await at_second.succeed(given.ref)
        assert await at_second.verdict(given.ref) == pb.VERDICT_ACCEPTED
        assert (await room.becomes(run_id, DONE))["attempt"] == 1
        await room.check(at_first, at_second)


async def test_row_2_a_process_that_is_told_to_end_gives_its_shards_up_and_ends(room: Room) -> None:
    stop = asyncio.Event()
    process = asyncio.create_task(run_dispatcher(room.settings(), stop))
    name = next(iter(await eventually(room.leader.members)))
    await room.order_replacing({shard: (SimpleNamespace(name=name), 0, "") for shard in EVERY})
    await eventually(lambda: set(room.leader.owners()) == EVERY)
    page = await scrape(room.leader.members()[name].metrics_address)
    assert page.total("tidewheel_owned_shards") == SHARDS
    successor = await room.dispatcher(**UNHURRIED)
    await room.order(dict.fromkeys(EVERY, successor))
    stop.set()
    await asyncio.wait_for(process, 60)
    await successor.holds(EVERY)
    assert successor.metric("tidewheel_takeovers_total") == 0, "given up, not taken"
    assert set(room.leader.members()) == {successor.name}
    await room.check()


async def test_b79_an_idle_owner_notices_that_a_shard_is_no_longer_its_own(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    await room.order({**dict.fromkeys(EVERY, first), 2: second}, seize=True)
    await second.holds({2})
    await first.holds(EVERY - {2})
    async with ScriptedWorker(second.address, work=success) as worker:
        await worker.grant(1)
        await room.becomes(await room.trigger(await room.job(shard=2)), DONE)


async def test_rule_19_a_process_that_starts_again_never_resumes_its_terms(room: Room) -> None:
    first = await room.owner("the-same-host-1")
    await first.kill()
    again = await room.dispatcher("the-same-host-2")
    await asyncio.sleep(0.5)
    assert again.shards == set()
    await room.give(again)
    assert {held.term for held in again.parts.memory.holdings} == {2}
    await room.check()


async def _never() -> bool:
    return False


async def _progress(room: Room, run_id: object) -> bytes | None:
    progress: bytes | None = (await room.run(str(run_id)))["progress"]
    return progress


async def _outcomes(room: Room, run_id: object) -> list[AttemptOutcome]:
    return [AttemptOutcome(row["outcome"]) for row in await room.attempts(str(run_id))]
