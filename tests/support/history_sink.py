"""The sink: a process of its own that handlers write to. Append-only; it fences by token and takes each effect once.

    python -m tests.support.history_sink SOCKET FILE

A request is one line of JSON, {"phase", "run", "attempt", "fencing", "due_us", "worker"}; the answer is the line that
was appended for it (history.Noted): its number, the instant by this machine's clock, and for an effect whether it was
`applied` (the first of its run) or `refused` (a newer attempt of the run had been here before).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


class Sink:
    """What was written so far; one line a call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lines = 0
        self._newest: dict[str, int] = {}
        self._applied: set[str] = set()

    def append(self, said: dict[str, Any]) -> str:
        """Take one line; returns it as it was kept."""
        self._lines += 1
        kept = {"seq": self._lines, **said, "at_us": time.time_ns() // 1000}
        if said["phase"] in ("start", "effect"):
            newest = self._newest.get(said["run"], 0)
            kept["refused"] = said["fencing"] < newest
            self._newest[said["run"]] = max(newest, said["fencing"])
            if said["phase"] == "effect":
                kept["applied"] = not kept["refused"] and said["run"] not in self._applied
                if kept["applied"]:
                    self._applied.add(said["run"])
        line = json.dumps(kept) + "\n"
        os.write(self._file, line.encode())
        return line


async def main(socket: Path, path: Path) -> None:
    """Serve until SIGTERM."""
    sink, told = Sink(path), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(sink.append(json.loads(line)).encode())
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, socket)
    async with server:
        await told.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
