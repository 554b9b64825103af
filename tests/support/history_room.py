"""Histories of dispatchers that run in the test's own event loop, and of single writers to the store.

The database keeps a record of its commits from its first row on; a `Sink` takes what scripted workers do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from tidewheel.v1 import worker_service_pb2 as pb

from tests.support.databases import Databases
from tests.support.dispatcher_room import Room, now_us
from tests.support.history import History, Life, Noted, Violation
from tests.support.history_check import judge, recorded
from tests.support.history_commits import begin_record, end_record
from tests.support.history_sink import Sink
from tests.support.scripted_worker import ScriptedWorker
from tests.support.store_world import asyncpg_url


@asynccontextmanager
async def recorded_database(databases: Databases) -> AsyncIterator[str]:
    """The URL of a fresh database whose commits are kept."""
    url = await databases.create()
    connection = await asyncpg.connect(asyncpg_url(url))
    try:
        await begin_record(connection)
        yield url
        await end_record(connection)
    finally:
        await connection.close()
        await databases.drop(url)


class RoomSink:
    """Handlers of scripted workers: `work` starts, takes effect and succeeds with the number of its line."""

    def __init__(self, path: Path) -> None:
        self._sink = Sink(path)
        self._lines: list[Noted] = []

    def by(self, worker_id: str) -> Any:
        """The `work` of that worker."""

        def work(given: pb.Assignment) -> pb.Result:
            self.note("start", given, worker_id)
            seq = self.note("effect", given, worker_id)
            return pb.Result(ref=given.ref, success=pb.Success(result=str(seq).encode(), result_type="text/plain"))

        return work

    def note(self, phase: str, given: pb.Assignment, worker_id: str) -> int:
        """Write a line; returns its number."""
        said = {
            "phase": phase,
            "run": given.ref.run_id,
            "attempt": given.ref.attempt,
            "fencing": given.fencing_token,
            "due_us": given.due_at.ToMicroseconds(),
            "worker": worker_id,
        }
        line = Noted(**json.loads(self._sink.append(said)))
        self._lines.append(line)
        return line.seq

    def lines(self, workers: Sequence[ScriptedWorker]) -> list[Noted]:
        """Everything noted, with the successes that these workers were told to be durable."""
        effects = {(line.run, line.attempt) for line in self._lines if line.phase == "effect"}
        told = [
            Noted(0, "acknowledged", one.run_id, one.attempt, 0, 0, worker.worker_id, now_us())
            for worker in workers
            for one in worker.acknowledgements
            if one.verdict == pb.VERDICT_ACCEPTED and (one.run_id, one.attempt) in effects
        ]
        return [*self._lines, *told]


async def history_of(
    connection: asyncpg.Connection,
    room: Room | None = None,
    sink: RoomSink | None = None,
    workers: Sequence[ScriptedWorker] = (),
    lives: Sequence[Life] = (),
) -> History:
    """What is known of a room's episode; it need not have come to rest."""
    owed = {} if room is None else {str(job_id): instants for job_id, instants in room.expected.items()}
    noted = [] if sink is None else sink.lines(workers)
    return await recorded(connection, owed=owed, noted=noted, lives=lives, settled=room is not None)


async def judged(*args: Any, **known: Any) -> list[Violation]:
    """The violations in a room's history, or in that of writers to a store."""
    return judge(await history_of(*args, **known))
