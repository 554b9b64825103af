"""The checker finds defects planted into dispatchers that run in the test's own event loop, over real servers.

Each episode runs twice: with the defect the history must break the named invariant, without it none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import SystemClock
from core.errors import Unavailable
from core.ids import job_hash, shard_of
from core.rand import SystemRand
from core.states import JobState, RunState
from core.store.database import Database, DatabaseConfig, Transaction
from core.store.run_changes import Trigger
from tests.support.dispatcher_room import SHARDS, Room, now_us
from tests.support.history import Life
from tests.support.history_room import RoomSink, judged
from tests.support.moves import ordered
from tests.support.planted_trials import Trial, trials_of
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker

QUICK_LEASE = {"attempt_lease_s": 1.6, "heartbeat_interval_s": 0.5, "adoption_margin_s": 0.3}


@dataclass
class Episode:
    """A room, its sink, and who worked in it."""

    room: Room
    sink: RoomSink
    planted: bool
    workers: list[ScriptedWorker] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    @asynccontextmanager
    async def worker(
        self, owner: RunningDispatcher, name: str = "worker-1", **how: Any
    ) -> AsyncIterator[ScriptedWorker]:
        """A worker that does its work at once and writes it to the sink, unless it is told otherwise."""
        how = {"work": self.sink.by(name), "slots": 20, **how}
        async with ScriptedWorker(owner.address, name, **how) as worker:
            self.workers.append(worker)
            await worker.grant(how["slots"])
            yield worker


Play = Callable[[Episode], Awaitable[None]]


async def a_passed_over_owner_goes_on(episode: Episode) -> None:
    room = episode.room
    old, new = await room.owner("old"), await room.dispatcher("new")
    async with episode.worker(old) as holding, episode.worker(new):
        holding._work = None
        await room.trigger(await room.job())
        given = await holding.assignment()
        await old.sees_terms_no_more()
        new.parts.loops.ownership._adoption.adopt = _nothing  # type: ignore[method-assign]
        await room.order(dict.fromkeys(range(SHARDS), new), seize=True)
        await eventually(lambda: new.shards == set(range(SHARDS)), what="all is taken over")
        episode.sink.by("worker-1")(given)
        await holding.succeed(given.ref, b"2")
        await eventually(lambda: holding.acknowledgements, what="an answer")
        del new.parts.loops.ownership._adoption.adopt
        old.let_see_terms()
        if not episode.planted:
            async with episode.worker(new, holding=[given.ref]) as heir:
                await heir.succeed(given.ref, b"2")
                await room.becomes(given.ref.run_id, RunState.SUCCEEDED)


async def buckets_pass(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with episode.worker(owner):
        await room.all_become(await room.every_second(2, first_after_s=2.0), [RunState.SUCCEEDED] * 2)


async def a_row_is_left_when_its_bucket_ends(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with episode.worker(owner):
        owner.parts.loops.due.step = _never  # type: ignore[method-assign]
        job = await room.once(0.5)
        if episode.planted:
            await eventually(lambda: _passed_over(room, job), 30, what="the watermark passes its row")
        else:
            await asyncio.sleep(2.5)
        del owner.parts.loops.due.step
        if not episode.planted:  # nobody looks below the watermark
            await room.all_become(job, [RunState.SUCCEEDED])


async def a_trigger_commits_late(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with episode.worker(owner):
        job = await room.job()
        # Its sessions may wait between a statement and the commit for as long as this one does.
        patient = DatabaseConfig(room.url, room.isolation, idle_in_transaction_timeout_s=60.0)
        database = Database(patient, SystemClock(), SystemRand())
        room.stack.push_async_callback(database.close)
        shard = shard_of(job_hash(job), SHARDS)

        async def while_in_flight() -> None:
            landed_us = now_us()
            if episode.planted:
                await eventually(lambda: _floor_is_past(room, shard, landed_us), 30, what="the floor passes it")
            else:
                await asyncio.sleep(0.9)

        api = room.run_changes
        api._database = _SlowToCommit(database, while_in_flight)  # type: ignore[assignment]
        name = await room.eye.fetchval("SELECT name FROM jobs WHERE job_id = $1", job)
        await api.trigger(room.call(), Trigger(name, None, 0, True), lambda run: b"")
        if not episode.planted:
            await room.all_become(job, [RunState.SUCCEEDED])


async def a_stream_breaks_while_a_run_is_under_way(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    job = await room.job()
    async with episode.worker(owner, "worker-1", work=None) as broken:
        await room.trigger(job)
        given = await broken.assignment()
        episode.sink.note("start", given, "worker-1")
    async with episode.worker(owner, "worker-2"):
        if episode.planted:
            await room.all_become(job, [RunState.SUCCEEDED])
            return
        async with episode.worker(owner, "worker-1", work=None, holding=[given.ref]) as back:
            seq = episode.sink.note("effect", given, "worker-1")
            await back.succeed(given.ref, str(seq).encode())
            await room.all_become(job, [RunState.SUCCEEDED])


async def the_database_is_away_as_a_result_comes_and_its_owner_dies(episode: Episode) -> None:
    room = episode.room
    first, second = await room.owner("first", **QUICK_LEASE), await room.dispatcher("second", **QUICK_LEASE)
    first.parts.loops.completion._store.end = _away  # type: ignore[method-assign]
    job = await room.job()
    async with episode.worker(first) as worker:
        await room.trigger(job)
        await eventually(lambda: worker.acknowledgements, what="an answer, whatever it says")
        await first.kill()
    await room.give(second)
    async with episode.worker(second, "worker-2"):
        await room.all_become(job, [RunState.SUCCEEDED], within_s=30)


async def a_dispatcher_dies_and_starts_again(episode: Episode) -> None:
    room = episode.room
    name = "the-host" if episode.planted else "the-host-1"
    began_us = now_us()
    first = await room.owner(name)
    await first.kill()
    ended_us = now_us()
    # A dead process's statements may go on for a while: here none does.
    episode.lives.append(Life(name, began_us, ended_us, lingers_us=0))
    again_name = name if episode.planted else "the-host-2"
    episode.lives.append(Life(again_name, ended_us))
    again = await room.dispatcher(again_name)
    if not episode.planted:
        await room.give(again)
    async with episode.worker(again):
        await room.all_become(await room.once(0.5), [RunState.SUCCEEDED])


async def somebody_sends_a_result_for_another(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with (
        episode.worker(owner, work=None) as worker,
        episode.worker(owner, "worker-2", work=None, slots=1) as thief,
    ):
        job = await room.job()
        await room.trigger(job)
        holder = await eventually(lambda: next((w for w in (worker, thief) if w.assignments), None))
        given, other = holder.assignments[0], thief if holder is worker else worker
        episode.sink.note("start", given, holder.worker_id)
        seq = episode.sink.note("effect", given, holder.worker_id)
        forged = pb.AttemptRef(run_id=given.ref.run_id, attempt=given.ref.attempt, token=b"0" * 32)
        await other.succeed(forged, b"stolen")
        await other.acknowledgement(forged)
        if not episode.planted:
            await holder.succeed(given.ref, str(seq).encode())
        await room.all_become(job, [RunState.SUCCEEDED])


async def a_job_is_paused(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with episode.worker(owner):
        job = await room.every_second(60, first_after_s=1.5)
        await eventually(lambda: _made(room, job), what="a first run")
        cut_over_us = await room.change(job, state=JobState.PAUSED)
        room.expected[job] = [at_us for at_us in room.expected[job] if at_us <= cut_over_us]
        if episode.planted:
            due = len(room.expected[job])
            await eventually(lambda: _ran_more(room, job, due), 30, what="it goes on all the same")
        else:
            await asyncio.sleep(2.2)


async def occurrences_come(episode: Episode) -> None:
    room = episode.room
    owner = await room.owner()
    async with episode.worker(owner):
        await room.all_become(await room.once(1.0), [RunState.SUCCEEDED])


async def a_shard_is_handed_off_with_a_run_in_progress(episode: Episode) -> None:
    room = episode.room
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with (
        episode.worker(first, "worker-1", work=None) as at_first,
        episode.worker(second, "worker-1", work=None) as at_second,
    ):
        run_id = await room.trigger(await room.job())
        given = await at_first.assignment()
        episode.sink.note("start", given, "worker-1")
        await ordered(room, second)
        await eventually(lambda: _alone(room, second), 20, what="every shard is the second one's alone")
        if not episode.planted:
            seq = episode.sink.note("effect", given, "worker-1")
            await at_second.succeed(given.ref, str(seq).encode())
            await room.becomes(run_id, RunState.SUCCEEDED)


async def a_shard_is_handed_off_while_it_fires(episode: Episode) -> None:
    room = episode.room
    first, second = await room.owner("first"), await room.dispatcher("second")
    async with episode.worker(first), episode.worker(second):
        jobs = [await room.once(0.3 + n / 10, shard=n % SHARDS) for n in range(40)]
        await ordered(room, second)
        await eventually(lambda: _alone(room, second), 20, what="every shard is the second one's alone")
        if not episode.planted:
            for job in jobs:
                await room.all_become(job, [RunState.SUCCEEDED])


EPISODES: list[tuple[str, Play, str]] = [
    ("no_term_check", a_passed_over_owner_goes_on, "VALID_TERM"),
    ("floor_one_too_far", buckets_pass, "ABOVE_FLOOR"),
    ("watermark_unseen", a_row_is_left_when_its_bucket_ends, "BELOW_WATERMARK"),
    ("landing_unlocked", a_trigger_commits_late, "ABOVE_FLOOR"),
    ("requeue_on_broken_stream", a_stream_breaks_while_a_run_is_under_way, "ONE_LEASE"),
    (
        "acknowledged_before_commit",
        the_database_is_away_as_a_result_comes_and_its_owner_dies,
        "ACKNOWLEDGED_STAYS",
    ),
    ("named_like_its_host", a_dispatcher_dies_and_starts_again, "ONE_LIFE"),
    ("completed_without_token", somebody_sends_a_result_for_another, "RESULT_OF_WORKER"),
    ("edit_overlooked", a_job_is_paused, "NONE_INVENTED"),
    ("early", occurrences_come, "NEVER_EARLY"),
    ("closed_with_runs_at_home", a_shard_is_handed_off_with_a_run_in_progress, "VALID_TERM"),
    ("tail_dropped", a_shard_is_handed_off_while_it_fires, "BELOW_WATERMARK"),
]


@trials_of(EPISODES)
async def test_it_is_found_where_it_was_planted_and_there_alone(
    room: Room, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trial: Trial[Play]
) -> None:
    trial.plant(monkeypatch)
    episode = Episode(room, RoomSink(tmp_path / "sink.jsonl"), trial.planted)
    await trial.play(episode)
    trial.check(await judged(observer, room, episode.sink, episode.workers, episode.lives))


class _SlowToCommit:
    """A database whose transactions wait for something between their last statement and their commit."""

    def __init__(self, database: Database, in_flight: Callable[[], Awaitable[None]]) -> None:
        self._database = database
        self._in_flight = in_flight

    async def transaction(self, body: Callable[[Transaction], Awaitable[Any]], **how: Any) -> Any:
        async def slow(tx: Transaction) -> Any:
            made = await body(tx)
            await self._in_flight()
            return made

        return await self._database.transaction(slow, **how)


async def _passed_over(room: Room, job_id: Any) -> bool:
    """Whether the watermark is above the job's due row."""
    query = "SELECT d.bucket < m.watermark FROM due d JOIN shard_marks m ON m.shard = d.shard WHERE d.job_id = $1"
    return bool(await room.eye.fetchval(query, job_id))


async def _floor_is_past(room: Room, shard: int, at_us: int) -> bool:
    floor = await room.eye.fetchval("SELECT floor FROM shard_floors WHERE shard = $1", shard)
    return bool(floor > room.scale.bucket_of(at_us))


async def _ran_more(room: Room, job_id: Any, count: int) -> bool:
    return len(await room.runs(job_id)) > count


async def _made(room: Room, job_id: Any) -> bool:
    return bool(await room.runs(job_id))


async def _alone(room: Room, owner: RunningDispatcher) -> bool:
    rows = await room.eye.fetch("SELECT owner FROM shard_terms WHERE state = 1")
    return [row["owner"] for row in rows] == [owner.name] * SHARDS


async def _never() -> bool:
    await asyncio.sleep(0.05)
    return False


async def _nothing(*_: object, **__: object) -> int:
    return 0


async def _away(*_: object, **__: object) -> None:
    raise Unavailable("the database is away")
