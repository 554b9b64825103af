"""Moves at random moments, back to back, under load; then the same while processes die, freeze and are told to end."""

from __future__ import annotations

from pathlib import Path

import asyncpg
from tidewheel.v1 import worker_service_pb2 as pb

from core.states import RunState
from tests.support.chaos_episode import Episode, run_episode
from tests.support.chaos_faults import FAULTS
from tests.support.dispatcher_room import SHARDS, Room
from tests.support.history import report as shown
from tests.support.history_room import RoomSink, judged
from tests.support.moves import belongs_to, history, ordered
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker
from tools.servers.homes import temporary_home


async def test_row_39_200_moves_under_300_runs_a_second_lose_and_double_nothing() -> None:
    with temporary_home() as home:
        report = await run_episode(home, Episode(seed=39, seconds=60, runs_per_s=300, moves=200, moves_at_once=8))
    assert not report.violations, report
    assert sum(report.moves.values()) == 200, report
    # On a machine that stands still for seconds a target may count as gone, and its move as rolled back.
    assert report.moves["COMPLETED"] >= 180, report


async def test_rows_40_and_41_moves_while_processes_are_killed_frozen_and_ended() -> None:
    with temporary_home() as home:
        episode = Episode(seed=41, seconds=45, runs_per_s=150, moves=80, moves_at_once=8, faults=FAULTS)
        report = await run_episode(home, episode)
    assert not report.violations, report
    assert report.faults
    assert report.moves["COMPLETED"] > 0, report


async def test_b69_fifty_moves_there_and_back_with_a_run_in_progress_and_a_one_off_pending(
    room: Room, observer: asyncpg.Connection, tmp_path: Path
) -> None:
    sink = RoomSink(tmp_path / "sink.jsonl")
    here, there = await room.owner("here"), await room.dispatcher("there")
    handlers = ("work", "long")
    answer = sink.by("worker-1")

    def work(given: pb.Assignment) -> pb.Result | None:
        return answer(given) if given.handler == "work" else None

    async with (
        ScriptedWorker(here.address, "worker-1", handlers, 200, work=work) as at_here,
        ScriptedWorker(there.address, "worker-1", handlers, 200, work=work) as at_there,
    ):
        await at_here.grant(200)
        await at_there.grant(200)
        for _ in range(-(-50 // SHARDS)):
            await _there_and_back(room, here, there, at_here, sink)
        found = await judged(observer, room, sink, [at_here, at_there])
    assert not found, shown(found)


async def _there_and_back(
    room: Room, here: RunningDispatcher, there: RunningDispatcher, at_here: ScriptedWorker, sink: RoomSink
) -> None:
    """Each shard once: a run is in progress, and a one-off is due a moment after the move begins."""
    jobs = [await room.job(handler="long", shard=shard) for shard in range(SHARDS)]
    long = {str(await room.trigger(job)) for job in jobs}
    given = await eventually(lambda: _of(long, at_here), what="a run of each shard is in progress")
    for one in given:
        sink.note("start", one, "worker-1")
    once = [await room.once(0.2 + shard / 10, shard=shard) for shard in range(SHARDS)]
    await ordered(room, there)
    await eventually(lambda: _split_for(room, there), what="every shard has a boundary")
    await ordered(room, here)  # at once: it waits until the first move is over
    await belongs_to(room, here, within_s=30)
    for one in given:
        seq = sink.note("effect", one, "worker-1")
        await at_here.succeed(one.ref, str(seq).encode())
        await room.becomes(one.ref.run_id, RunState.SUCCEEDED)
    for job in once:
        await room.all_become(job, [RunState.SUCCEEDED])


async def _split_for(room: Room, target: RunningDispatcher) -> bool:
    """Whether the newest term of every shard is the target's."""
    return {terms[-1].owner for terms in (await history(room)).values()} == {target.name}


def _of(runs: set[str], worker: ScriptedWorker) -> list[pb.Assignment] | None:
    """The assignments of these runs, once they have all come."""
    found = [one for one in worker.assignments if one.ref.run_id in runs]
    return found if len(found) == len(runs) else None
