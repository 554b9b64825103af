"""Adoptions of one shard at the same time: passes and named ones, for one term and for two of one owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.policy import Retry
from core.states import RunState
from dispatcher.adoption import Adoption
from dispatcher.holdings import HeldTerm
from tests.support.dispatcher_room import Room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker

SLOW_RETRY = Retry(max_attempts=2, first_delay_us=600_000_000, max_delay_us=600_000_000, jitter=0.0)


class Stop:
    """Whoever calls a function stands still before it, or behind it, until let go."""

    def __init__(self, function: Callable[..., Awaitable[Any]], *, behind: bool = False) -> None:
        self._function, self._behind = function, behind
        self._reached, self._go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **named: Any) -> Any:
        answer = await self._function(*args, **named) if self._behind else None
        self._reached.set()
        await self._go_on.wait()
        return answer if self._behind else await self._function(*args, **named)

    async def reached(self, within_s: float = 10.0) -> bool:
        try:
            async with asyncio.timeout(within_s):
                return await self._reached.wait()
        except TimeoutError:
            return False

    def let_go(self) -> None:
        self._go_on.set()


def adoption_of(owner: RunningDispatcher) -> Adoption:
    return owner.parts.loops.ownership._adoption


def term_in_memory(owner: RunningDispatcher, run_id: UUID) -> int | None:
    live = owner.parts.memory.attempts.get(run_id)
    return None if live is None else live.term


def in_memory(owner: RunningDispatcher) -> list[UUID]:
    return [run.run_id for run in owner.parts.memory.open_runs()]


async def in_two_ranges(room: Room, owner: RunningDispatcher) -> tuple[HeldTerm, HeldTerm]:
    """Shard 0 in two terms of one owner, with the boundary far ahead; every open run of the first is in memory."""
    boundary = room.scale.bucket_of(room.clock.now_us()) + 1_000
    async with room.eye.transaction():
        await room.eye.execute("UPDATE shard_terms SET to_bucket = $1 WHERE shard = 0", boundary)
        await room.eye.execute(
            "INSERT INTO shard_terms SELECT 0, 2, $1, $2, owner, op_id, 1, opened_us, 'move' FROM shard_terms"
            " WHERE shard = 0",
            *(boundary, 2**62),
        )
    holdings = owner.parts.memory.holdings
    await eventually(lambda: holdings.get((0, 2)) is not None and holdings.get((0, 2)).whole)  # type: ignore[union-attr]
    before, after = holdings.get((0, 1)), holdings.get((0, 2))
    assert before is not None
    assert after is not None
    return before, after


@dataclass(frozen=True)
class UnderWay:
    """A run of shard 0 that a worker works on; its owner reads its open runs anew for a reason only."""

    owner: RunningDispatcher
    worker: ScriptedWorker
    run_id: UUID
    given: pb.Assignment

    @property
    def adoption(self) -> Adoption:
        return adoption_of(self.owner)

    async def was_left_at(self, room: Room, home: int) -> None:
        """As after the death of an owner before this one: by its row the run is at home under that term."""
        await room.eye.execute("UPDATE runs SET home_term = $2 WHERE run_id = $1", self.run_id, home)

    async def lost_from_memory(self, room: Room, home: int) -> None:
        """As `was_left_at`; and the owner knows nothing of it."""
        await self.was_left_at(room, home)
        self.owner.parts.memory.forget_runs(0, 1)

    async def homes(self, room: Room) -> tuple[int, int | None]:
        """The term under which it is at home: by its row, and in memory."""
        return (await room.run(self.run_id))["home_term"], term_in_memory(self.owner, self.run_id)


@asynccontextmanager
async def run_under_way(room: Room) -> AsyncIterator[UnderWay]:
    owner = await room.owner("owner")
    owner.adopt_for_a_reason_only()
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        yield UnderWay(owner, worker, run_id, await worker.assignment())


def leave(held: HeldTerm) -> None:
    """Its runs are on their way to the next term, as at the end of a hand-off to ourselves."""
    held.acting, held.leaving = False, True


async def test_no_run_comes_home_to_a_term_that_is_being_left(room: Room) -> None:
    async with run_under_way(room) as run:
        before, after = await in_two_ranges(room, run.owner)
        await run.was_left_at(room, 0)
        for_after = asyncio.create_task(_stopped(run.adoption, "_rehome", stop := Stop(run.adoption._rehome), after))
        assert await stop.reached()
        leave(before)
        for_before = asyncio.create_task(run.adoption.adopt(before))
        await asyncio.sleep(0.3)
        stop.let_go()
        assert [await for_after, await for_before] == [1, 0]
        assert (await room.run(run.run_id))["home_term"] == 2
        await run.worker.succeed(run.given.ref)
        await room.becomes(run.run_id, RunState.SUCCEEDED)


async def _stopped(adoption: Adoption, name: str, stop: Stop, held: HeldTerm) -> int:
    """A pass whose step of that name is stopped; other passes are not."""
    whole = getattr(adoption, name)

    async def step(chunk: Any, asked: HeldTerm) -> Any:
        return await (stop if asked is held else whole)(chunk, asked)

    setattr(adoption, name, step)
    return await adoption.adopt(held)


@pytest.mark.parametrize("home", [0, 1])
async def test_a_run_that_is_named_under_a_term_that_is_left_meanwhile_comes_home_to_the_next(
    room: Room, home: int
) -> None:
    """The pass for the next term waits for what is being taken to the first, or it would not find it there."""
    async with run_under_way(room) as run:
        before, after = await in_two_ranges(room, run.owner)
        await run.lost_from_memory(room, home)
        adoption = run.adoption
        read = Stop(adoption._open_runs.named, behind=True)
        adoption._open_runs.named = read  # type: ignore[method-assign]
        named = asyncio.create_task(adoption.adopt_named(before, [run.run_id]))
        assert await read.reached()
        leave(before)
        found = Stop(adoption._rehome)
        passing = asyncio.create_task(_stopped(adoption, "_rehome", found, after))
        await found.reached(0.3)
        read.let_go()
        await named
        found.let_go()
        assert await passing == 1
        assert await run.homes(room) == (2, 2)
        await run.worker.succeed(run.given.ref)
        assert await run.worker.verdict(run.given.ref) == pb.VERDICT_ACCEPTED


async def test_what_another_takes_to_its_own_term_under_a_pass_is_asked_for_again(room: Room) -> None:
    """As the owner before the boundary may, who is still adopting what was open before its own time."""
    async with run_under_way(room) as run:
        before, after = await in_two_ranges(room, run.owner)
        await run.lost_from_memory(room, 0)
        leave(before)
        found = Stop(run.adoption._rehome)
        passing = asyncio.create_task(_stopped(run.adoption, "_rehome", found, after))
        assert await found.reached()
        await run.was_left_at(room, 1)
        found.let_go()
        assert await passing == 1
        assert await run.homes(room) == (2, 2)


async def test_a_run_that_was_named_and_ended_is_not_taken_up_from_the_late_answer_of_a_pass(room: Room) -> None:
    """The pass took it home; before it heard so, a result came, the run was named and recorded."""
    async with run_under_way(room) as run:
        held = run.owner.parts.memory.holdings.get((0, 1))
        assert held is not None
        await run.lost_from_memory(room, 0)
        late = Stop(run.adoption._rehome, behind=True)
        passing = asyncio.create_task(_stopped(run.adoption, "_rehome", late, held))
        assert await late.reached()
        del run.adoption._rehome
        await run.worker.succeed(run.given.ref)
        assert await run.worker.verdict(run.given.ref) == pb.VERDICT_ACCEPTED
        late.let_go()
        assert await passing == 1
        assert in_memory(run.owner) == [], "nothing runs here, by the row nor in memory"
        assert [row["attempt"] for row in await room.attempts(run.run_id)] == [1]


async def _runs(room: Room, owner: RunningDispatcher, worker: ScriptedWorker) -> tuple[UUID, Callable[..., Any]]:
    await worker.grant(1)
    run_id = await room.trigger(await room.job(shard=0))
    given = await worker.assignment()
    return run_id, lambda: worker.succeed(given.ref)


async def _waits(room: Room, owner: RunningDispatcher, worker: ScriptedWorker) -> tuple[UUID, Callable[..., Any]]:
    run_id = await room.trigger(await room.job(shard=0))
    await eventually(lambda: owner.parts.memory.routes.holds(run_id))
    return run_id, lambda: _cancel(room, owner, run_id)


async def _rests(room: Room, owner: RunningDispatcher, worker: ScriptedWorker) -> tuple[UUID, Callable[..., Any]]:
    await worker.grant(1)
    run_id = await room.trigger(await room.job(shard=0, retry=SLOW_RETRY))
    await worker.fail((await worker.assignment()).ref)
    await eventually(lambda: run_id in owner.parts.memory.resting)
    return run_id, lambda: _cancel(room, owner, run_id)


async def _cancel(room: Room, owner: RunningDispatcher, run_id: UUID) -> None:
    await room.cancel(run_id)
    await owner.hint(canceled=(str(run_id),))


@pytest.mark.parametrize("begin", [_runs, _waits, _rests])
@pytest.mark.parametrize("named", [False, True])
async def test_what_ends_after_it_was_read_is_not_taken_up_from_that_read(
    room: Room, begin: Callable[..., Awaitable[tuple[UUID, Callable[..., Any]]]], *, named: bool
) -> None:
    owner = await room.owner("owner")
    owner.adopt_for_a_reason_only()
    async with ScriptedWorker(owner.address) as worker:
        run_id, end = await begin(room, owner, worker)
        held, adoption = owner.parts.memory.holdings.get((0, 1)), adoption_of(owner)
        assert held is not None
        reads, name = adoption._open_runs, "named" if named else "find"
        read = Stop(getattr(reads, name), behind=True)
        setattr(reads, name, read)
        taking = asyncio.create_task(adoption.adopt_named(held, [run_id]) if named else adoption.adopt(held))
        assert await read.reached()
        await end()
        await eventually(lambda: in_memory(owner) == [], what="memory knows that it ended")
        read.let_go()
        await taking
        assert in_memory(owner) == []
