"""A worker process whose handlers write to the sink, and which notes there what it is told to be durable.

    python -m tests.support.history_worker SOCKET WORKER_NAME SLOTS

Handlers: `quick` starts and takes effect at once; `slow` works for as many seconds as its payload says, with
heartbeats; `flaky` breaks in its first attempt, before its effect. Each returns the number of its effect's line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any

from tidewheel import RunContext, Worker
from tidewheel.delivery import Delivery
from tidewheel.v1.worker_service_pb2 import VERDICT_ACCEPTED


class SinkLine:
    """A connection to the sink: lines are answered in the order in which they were written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, worker: str) -> None:
        self._reader, self._writer, self._worker = reader, writer, worker
        self._waiting: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._listening = asyncio.create_task(self._listen())

    def say(self, phase: str, run: str, attempt: int, fencing: int = 0, due_us: int = 0) -> asyncio.Future[Any]:
        """Write a line; the future has it as the sink kept it."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        line = {
            "phase": phase,
            "run": run,
            "attempt": attempt,
            "fencing": fencing,
            "due_us": due_us,
            "worker": self._worker,
        }
        self._writer.write((json.dumps(line) + "\n").encode())
        return answer

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(json.loads(line))


def note_acknowledgements(sink: SinkLine) -> None:
    """From here on the sink learns of each success that a dispatcher says is durable, before the SDK forgets it."""
    original = Delivery.acknowledged

    def acknowledged(self: Delivery, items: Any, now_s: float) -> None:
        for item in items:
            attempt = self._attempts.get((item.run_id, item.attempt))
            result = None if attempt is None else attempt.result
            if item.verdict == VERDICT_ACCEPTED and result is not None and result.HasField("success"):
                sink.say("acknowledged", item.run_id, item.attempt)
        original(self, items, now_s)

    Delivery.acknowledged = acknowledged  # type: ignore[method-assign]


async def main(socket: Path, name: str, slots: int) -> None:
    """Serve until SIGTERM."""
    sink = SinkLine(*await asyncio.open_unix_connection(socket), name)
    note_acknowledgements(sink)
    worker = Worker(os.environ["TIDEWHEEL_ADDRESS"], slots=slots, worker_id=name)

    def note(phase: str, context: RunContext) -> asyncio.Future[Any]:
        due_us = round(context.due_at.timestamp() * 1e6)
        return sink.say(phase, context.run_id, context.attempt, context.fencing_token, due_us)

    async def effect(context: RunContext) -> str:
        kept = await note("effect", context)
        return str(kept["seq"])

    @worker.handler("quick")
    async def quick(context: RunContext) -> str:
        note("start", context)
        return await effect(context)

    @worker.handler("slow")
    async def slow(context: RunContext) -> str:
        note("start", context)
        try:
            await asyncio.sleep(float(context.text()))
        except asyncio.CancelledError:
            note("stop", context)
            raise
        return await effect(context)

    @worker.handler("flaky")
    async def flaky(context: RunContext) -> str:
        note("start", context)
        if context.attempt == 1:
            raise RuntimeError("the first attempt breaks")
        return await effect(context)

    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
