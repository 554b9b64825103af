"""A worker whose handler does nothing but note when its first line ran: `python -m tools.bench.noop_worker LOG SLOTS`.

The log is written at the end, or at SIGUSR1: one line a start, "run_id attempt due_at_us started_us", by the machine's
clock, which on one machine is the database's too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from tidewheel import RunContext, Worker


async def main(log: Path, slots: int) -> None:
    """Run until SIGTERM."""
    starts: list[tuple[str, int, float, int]] = []
    worker = Worker(os.environ["TIDEWHEEL_ADDRESS"], slots=slots)

    @worker.handler("noop")
    async def noop(context: RunContext) -> None:
        starts.append((context.run_id, context.attempt, context.due_at.timestamp(), time.time_ns() // 1000))

    def write() -> None:
        lines = [f"{run} {attempt} {round(due * 1e6)} {started}\n" for run, attempt, due, started in starts]
        partial = log.with_suffix(".part")
        partial.write_text("".join(lines))
        partial.rename(log)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    await worker.run()
    write()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
