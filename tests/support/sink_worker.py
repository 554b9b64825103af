"""A worker process that trusts nobody: each start and each end of a handler is one appended, synced line of a file.

    python -m tests.support.sink_worker SINK WORKER_NAME SLOTS

Handlers: `record` does nothing else; `slow` works for as many seconds as its payload says ("20,0.5": the first attempt
for 20, the others for half a second), with heartbeats. A line is JSON: {"phase": "start" | "end" | "stop" (it was told
to), "run", "attempt", "fencing", "job", "scheduled_us", "due_us", "at_us", "worker"}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from tidewheel import RunContext, Worker


class Sink:
    """An append-only file; one write a line, so that several processes may share it."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._worker = worker

    def note(self, phase: str, context: RunContext) -> None:
        at_us = time.time_ns() // 1000
        line = {
            "phase": phase,
            "run": context.run_id,
            "attempt": context.attempt,
            "fencing": context.fencing_token,
            "job": context.job,
            "scheduled_us": round(context.scheduled_for.timestamp() * 1e6),
            "due_us": round(context.due_at.timestamp() * 1e6),
            "at_us": at_us,
            "worker": self._worker,
        }
        os.write(self._file, (json.dumps(line) + "\n").encode())
        os.fdatasync(self._file)


async def main(path: Path, name: str, slots: int) -> None:
    """Serve until SIGTERM."""
    sink = Sink(path, name)
    worker = Worker(os.environ["TIDEWHEEL_ADDRESS"], slots=slots, worker_id=name)

    @worker.handler("record")
    async def record(context: RunContext) -> None:
        sink.note("start", context)

    @worker.handler("slow")
    async def slow(context: RunContext) -> str:
        sink.note("start", context)
        times_s = context.text().split(",")
        try:
            await asyncio.sleep(float(times_s[min(context.attempt, len(times_s)) - 1]))
        except asyncio.CancelledError:
            sink.note("stop", context)
            raise
        sink.note("end", context)
        return f"done by {name}"

    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
