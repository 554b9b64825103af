"""The fence: no write of a term that has been taken over is ever accepted, and FOR SHARE is what sees to it.

Each dispatcher's write meets a takeover in both orders. The sessions are the test's own: one is seen to wait for a lock
before the other goes on. A copy of each statement without its FOR SHARE must let a stale write through; if that test
fails, the others prove nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from core.clock import US_PER_S
from core.fence import TermRow
from core.states import AttemptOutcome, RunState
from core.store.completion import Ending
from core.store.database import DatabaseConfig
from core.store.gates import WaitingKey
from core.store.job_lookup import JobLookup
from core.store.leases import LeaseOrder, Renewal
from core.store.marks import Raise
from core.store.statement import STATEMENTS, Kind
from tests.support.raw_statements import Call, captured, connect, fetch, until_waiting
from tests.support.store_world import (
    LEASE_US,
    NOW_US,
    OTHER,
    OWNER,
    StoreWorld,
    fire_chain,
    fire_run,
    grant,
)

pytestmark = pytest.mark.usefixtures("on_postgresql")

Act = Callable[[], Awaitable[object]]
# What changes, beside the column that says so: a table, and the SQL that takes a lock the write will have to wait for.
Scene = tuple[Act, str, str]
NEXT_US = NOW_US + 60 * US_PER_S
LOCK_DUE = "SELECT 1 FROM due FOR UPDATE"
LOCK_RUNS = "SELECT 1 FROM runs FOR UPDATE"


async def fire_moving(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant(), next_us=NEXT_US)
    return lambda: world.firing().fire_chains([item], now_us=NOW_US), "runs", LOCK_DUE


async def fire_ending(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant())
    return lambda: world.firing().fire_chains([item], now_us=NOW_US), "runs", LOCK_DUE


async def fire_attempt(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US)
    item = fire_run(await world.plant_retry(job, run_id), term, grant())
    return lambda: world.firing().fire_runs([item], now_us=NOW_US), "due", LOCK_DUE


def _ending(run_id: UUID, **changes: Any) -> Ending:
    return Ending(0, 1, run_id, 1, token_hash=b"token", outcome=AttemptOutcome.FAILED, **changes)


async def end(world: StoreWorld, term: TermRow) -> Scene:
    item = _ending(await world.plant_run(await world.plant_job()), state=RunState.FAILED)
    return lambda: world.completion().end([item], now_us=NOW_US), "attempts", LOCK_RUNS


async def end_and_retry(world: StoreWorld, term: TermRow) -> Scene:
    run_id = await world.plant_run(await world.plant_job())
    item = _ending(run_id, state=RunState.PENDING, retry_at_us=NEXT_US, retry_bucket=world.scale.bucket_of(NEXT_US))
    return lambda: world.completion().end([item], now_us=NOW_US), "due", LOCK_RUNS


async def lease(world: StoreWorld, term: TermRow) -> Scene:
    run_id = await world.plant_run(await world.plant_job(), state=RunState.PENDING, attempt=0)
    item = LeaseOrder(0, 1, run_id, 1, grant())
    return lambda: world.leases().lease([item], now_us=NOW_US), "runs", LOCK_RUNS


async def make_way(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    await world.plant_run(job)
    waiting = await world.plant_run(
        job, state=RunState.PENDING, attempt=0, scheduled_for_us=NOW_US + US_PER_S, gated=True
    )
    key = WaitingKey(0, 1, waiting)
    return lambda: world.gates().make_way([key], now_us=NOW_US + US_PER_S), "runs", LOCK_RUNS


async def renew(world: StoreWorld, term: TermRow) -> Scene:
    run_id = await world.plant_run(await world.plant_job())
    item = Renewal(0, 1, run_id, 1, NOW_US + 2 * LEASE_US, b"half")
    return lambda: world.leases().renew([item]), "runs", LOCK_RUNS


async def adopt(world: StoreWorld, term: TermRow) -> Scene:
    await world.plant_run(await world.plant_job(), home_term=0)
    runs = await world.open_runs().find(0, [(UUID(int=0), UUID(int=2**128 - 1))])
    until_us = NOW_US + 2 * LEASE_US
    return lambda: world.open_runs().adopt(runs, shard=0, term=1, lease_until_us=until_us), "runs", LOCK_RUNS


async def stand(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    run_id = await world.plant_run(job)
    blocker = f"INSERT INTO open_runs VALUES (0, '{job.job_id}', '{run_id}')"
    return lambda: world.open_runs().stand([(0, 1, job.job_id, run_id)]), "open_runs", blocker


async def clear_ended(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    run_id = await world.plant_run(job, state=RunState.SUCCEEDED)
    await world.eye.execute("INSERT INTO open_runs VALUES (0, $1, $2)", job.job_id, run_id)
    return (
        lambda: world.open_runs().clear([(0, 1, job.job_id, run_id)]),
        "open_runs",
        "SELECT 1 FROM open_runs FOR UPDATE",
    )


async def raise_floor(world: StoreWorld, term: TermRow) -> Scene:
    item = Raise(0, 1, world.bucket, world.bucket + 1)
    return lambda: world.marks().raise_floors([item]), "shard_floors", "SELECT 1 FROM shard_floors FOR UPDATE"


async def raise_watermark(world: StoreWorld, term: TermRow) -> Scene:
    await world.eye.execute("UPDATE shard_floors SET floor = floor + 1")
    item = Raise(0, 1, world.bucket, world.bucket + 1)
    return lambda: world.marks().raise_watermarks([item]), "shard_marks", "SELECT 1 FROM shard_marks FOR UPDATE"


async def raise_open_from(world: StoreWorld, term: TermRow) -> Scene:
    item = Raise(0, 1, NOW_US, NOW_US + 1)
    return lambda: world.marks().raise_open_from([item]), "shard_marks", "SELECT 1 FROM shard_marks FOR UPDATE"


async def set_job_error(world: StoreWorld, term: TermRow) -> Scene:
    job = await world.plant_job()
    marks = [(0, 1, job.job_id, "unreadable")]
    return lambda: JobLookup(world.database, OWNER).set_error(marks), "jobs", "SELECT 1 FROM jobs FOR UPDATE"


SCENES: dict[str, Callable[[StoreWorld, TermRow], Awaitable[Scene]]] = {
    "fire_and_move_chains": fire_moving,
    "fire_and_end_chains": fire_ending,
    "fire_due_runs": fire_attempt,
    "end_attempts": end,
    "end_attempts_and_land_retries": end_and_retry,
    "lease_waiting_runs": lease,
    "make_way_for_runs": make_way,
    "renew_leases": renew,
    "adopt_open_runs": adopt,
    "stand_open_runs": stand,
    "clear_ended_runs": clear_ended,
    "raise_floors": raise_floor,
    "raise_watermarks": raise_watermark,
    "raise_open_from_marks": raise_open_from,
    "set_job_error": set_job_error,
}


def test_every_dispatchers_write_has_its_scene() -> None:
    assert set(SCENES) == {name for name, statement in STATEMENTS.items() if statement.kind is Kind.ACT}


class Stage:
    """One write of an owner, and a takeover of its shard, on sessions that the test holds apart."""

    def __init__(self, world: StoreWorld, config: DatabaseConfig, term: TermRow, stack: AsyncExitStack) -> None:
        self.world = world
        self._config = config
        self._term = term
        self._stack = stack

    async def session(self, name: str) -> asyncpg.Connection:
        opened = await connect(self._config, name)
        self._stack.push_async_callback(opened.close)
        return opened

    async def seen(self, table: str) -> list[dict[str, Any]]:
        return await self.world.rows(table)

    def take_over(self) -> asyncio.Task[TermRow]:
        """The successor's claim, through the product's own code."""
        return asyncio.create_task(self.world.take_over(self._term))

    async def close_uncommitted(self) -> tuple[asyncpg.Connection, Any]:
        """A takeover that has closed the term but not committed yet."""
        successor = await self.session("successor")
        begun = successor.transaction()
        await begun.start()
        params = {
            "shards": [0],
            "terms": [self._term.term],
            "owners": [OWNER],
            "from_buckets": [self._term.from_bucket],
            "to_buckets": [self._term.to_bucket],
            "op_id": self.world.rand.uuid(),
            "reason": "takeover",
            "now_us": NOW_US,
        }
        assert len(await fetch(successor, Call("close_replaced_terms", params))) == 1
        return successor, begun


@pytest.fixture
async def stage(world: StoreWorld, store_config: DatabaseConfig) -> Any:
    async with AsyncExitStack() as stack:
        yield Stage(world, store_config, await world.own(0), stack)


async def _scene(stage: Stage, name: str) -> tuple[Call, str, str]:
    act, table, lock = await SCENES[name](stage.world, (await stage.world.terms.history(0))[0])
    call = await captured(stage.world.database, act)
    assert call.name == name
    return call, table, lock


@pytest.mark.parametrize("name", SCENES)
async def test_without_a_takeover_the_write_is_accepted(stage: Stage, name: str) -> None:
    """So that the refusals below refuse something."""
    call, table, _ = await _scene(stage, name)
    before = await stage.seen(table)
    await fetch(await stage.session("owner"), call)
    assert await stage.seen(table) != before


@pytest.mark.parametrize("name", SCENES)
async def test_after_a_takeover_the_old_owner_changes_nothing(stage: Stage, name: str) -> None:
    call, table, _ = await _scene(stage, name)
    before = await stage.seen(table)
    await stage.take_over()
    assert await fetch(await stage.session("owner"), call) == []
    assert await stage.seen(table) == before


@pytest.mark.parametrize("name", SCENES)
async def test_a_write_that_meets_a_takeover_waits_for_it_and_is_refused(
    stage: Stage, name: str, isolation: str
) -> None:
    call, table, _ = await _scene(stage, name)
    before = await stage.seen(table)
    _, begun = await stage.close_uncommitted()
    write = asyncio.create_task(fetch(await stage.session("owner"), call))
    await until_waiting(stage.world.eye, "owner")
    await begun.commit()
    if isolation == "SERIALIZABLE":
        with pytest.raises(asyncpg.SerializationError):
            await write
    else:
        assert await write == []
    assert await stage.seen(table) == before


@pytest.mark.parametrize("name", SCENES)
async def test_a_write_that_meets_a_takeover_goes_on_when_that_is_taken_back(stage: Stage, name: str) -> None:
    call, table, _ = await _scene(stage, name)
    before = await stage.seen(table)
    _, begun = await stage.close_uncommitted()
    write = asyncio.create_task(fetch(await stage.session("owner"), call))
    await until_waiting(stage.world.eye, "owner")
    await begun.rollback()
    assert len(await write) >= 1
    assert await stage.seen(table) != before


@pytest.mark.parametrize("name", SCENES)
async def test_a_takeover_waits_for_a_write_in_flight(stage: Stage, name: str) -> None:
    call, table, lock = await _scene(stage, name)
    before = await stage.seen(table)
    write, blocker = await _start_and_block(stage, call, lock)
    takeover = stage.take_over()
    await until_waiting(stage.world.eye, "tidewheel")
    assert not takeover.done()
    await blocker.rollback()
    assert len(await write) >= 1
    assert (await takeover).owner == OTHER
    assert await stage.seen(table) != before


# What a claim reads: here alone PostgreSQL's own check at SERIALIZABLE sees that the two went past each other.
READ_BY_A_CLAIM = frozenset({"raise_watermarks", "raise_open_from_marks"})


@pytest.mark.parametrize("name", SCENES)
async def test_without_for_share_a_stale_write_gets_through(stage: Stage, name: str, isolation: str) -> None:
    """Also at SERIALIZABLE. The lock is not for show."""
    call, table, lock = await _scene(stage, name)
    before = await stage.seen(table)
    unlocked = STATEMENTS[name].sql.replace("FOR SHARE OF t", "")
    assert unlocked != STATEMENTS[name].sql
    write, blocker = await _start_and_block(stage, Call(name, call.params, unlocked), lock)
    successor = await stage.take_over()
    assert successor.owner == OTHER
    assert not write.done()
    await blocker.rollback()
    if isolation == "SERIALIZABLE" and name in READ_BY_A_CLAIM:
        with pytest.raises(asyncpg.SerializationError):
            await write
        return
    await write
    assert await stage.seen(table) != before


async def _start_and_block(
    stage: Stage, call: Call, lock: str
) -> tuple[asyncio.Task[Any], asyncpg.transaction.Transaction]:
    """Start the write, and hold it where it has read its fence but not yet changed anything."""
    blocker = await stage.session("blocker")
    # No part of any serializable conflict: it only holds a lock.
    begun = blocker.transaction(isolation="read_committed")
    await begun.start()
    await blocker.execute(lock)
    write = asyncio.create_task(fetch(await stage.session("owner"), call))
    await until_waiting(stage.world.eye, "owner")
    return write, begun


async def test_an_owner_that_lost_one_term_goes_on_under_another(stage: Stage) -> None:
    world = stage.world
    kept = await world.own(1)
    runs = [await world.plant_run(await world.plant_job(shard)) for shard in (0, 1)]
    await stage.take_over()
    items = [Renewal(shard, 1, run_id, 1, NEXT_US, None) for shard, run_id in enumerate(runs)]
    renewed = await world.leases().renew(items)
    assert (set(renewed.fences), set(renewed.leases)) == ({kept.key}, {1})
