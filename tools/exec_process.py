"""Runs one command in a process group of its own, keeps the end of what it prints, and leaves nothing of it behind.

The group is ended (SIGTERM, after a grace SIGKILL) when its time is over or whoever waits is cancelled, and what is
left of it when the command itself has ended is killed: a run that is over holds no process. Called by exec_worker.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TERM_GRACE_S = 5.0
# How long output may still come after the command itself has ended: a child of its own may hold the pipe.
LAST_OUTPUT_S = 0.5
# How long the rest of it is read when the whole group is dead: who has left the group may hold the pipe for good.
AFTER_THE_END_S = 0.5
CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended. `exit_code` is below zero for a signal, as in Popen.returncode."""

    exit_code: int
    timed_out: bool
    tail: bytes
    output_bytes: int
    took_s: float

    @property
    def signal_name(self) -> str:
        """The signal that ended it; empty if it exited by itself."""
        if self.exit_code >= 0:
            return ""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class Tail:
    """The last `limit` bytes of a stream, and how many there were."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._limit = limit
        self._kept = 0
        self._chunks: deque[bytes] = deque()

    def add(self, chunk: bytes) -> None:
        """Take more of the stream; what is older than the limit is dropped."""
        self.total += len(chunk)
        self._chunks.append(chunk)
        self._kept += len(chunk)
        while self._chunks and self._kept - len(self._chunks[0]) >= self._limit:
            self._kept -= len(self._chunks.popleft())

    def read(self) -> bytes:
        """What is kept."""
        joined = b"".join(self._chunks)
        return joined[max(0, len(joined) - self._limit) :]


async def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdin: bytes,
    timeout_s: float | None,
    tail_bytes: int,
) -> Ending:
    """Run `argv` to its end. OSError if it cannot be started. Cancelled: the group is ended first.

    Must be called in the thread that lives as long as the worker: the kernel takes the end of the thread that started
    a process for the end of its parent.
    """
    began_s = time.monotonic()
    process = _start(_bound_to_us(argv, env, cwd), env, cwd, stdin)
    tail = Tail(tail_bytes)
    ended = _ended(process)
    reading = asyncio.ensure_future(_read(process, tail))
    timed_out = False
    try:
        await asyncio.wait([ended], timeout=timeout_s)
        if not ended.done():
            timed_out = True
            await _end(process, ended, reading)
        await asyncio.wait([reading], timeout=LAST_OUTPUT_S)
        if not reading.done():
            # Somebody holds the pipe; or we stood still, and what was printed is still in it, then the end.
            _signal(process, signal.SIGKILL)
            await asyncio.wait([reading], timeout=AFTER_THE_END_S)
    except asyncio.CancelledError:
        await _end(process, ended, reading)
        raise
    finally:
        _signal(process, signal.SIGKILL)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return Ending(ended.result(), timed_out, tail.read(), tail.total, time.monotonic() - began_s)


def _start(command: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes) -> subprocess.Popen[bytes]:
    # A file without a name as its input: nobody has to wait until it is read.
    with tempfile.TemporaryFile() if stdin else Path(os.devnull).open("rb") as source:
        if stdin:
            source.write(stdin)
            source.seek(0)
        # Popen rather than the loop's own way: uvloop lets every open file through that is not marked otherwise.
        return subprocess.Popen(
            command,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )


def _ended(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """Set to the exit code when the process ends. A thread waits for it: event loops differ in how they do."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def wait() -> None:
        code = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(tell, code)

    threading.Thread(target=wait, name=f"wait for {process.pid}", daemon=True).start()
    return ended


async def _read(process: subprocess.Popen[bytes], tail: Tail) -> None:
    """Read what it prints until every holder of the pipe has closed it, or we are cancelled."""
    assert process.stdout is not None
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), process.stdout)
    try:
        while chunk := await stream.read(CHUNK_BYTES):
            tail.add(chunk)
    finally:
        transport.close()


async def _end(process: subprocess.Popen[bytes], ended: asyncio.Future[int], reading: asyncio.Future[None]) -> None:
    """Ask the group to end, then make it. A second cancellation ends the grace.

    The group is taken for gone when the command has ended and nobody holds the pipe that it printed to.
    """
    _signal(process, signal.SIGTERM)
    both: list[asyncio.Future[Any]] = [ended, reading]
    try:
        await asyncio.wait(both, timeout=TERM_GRACE_S)
    finally:
        _signal(process, signal.SIGKILL)
        await asyncio.wait([ended], timeout=TERM_GRACE_S)


def _signal(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    # The command leads its group, and the group keeps its number while anybody is left in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)


def _bound_to_us(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> list[str]:
    """The command, found on the PATH that it will have, and killed by the kernel should this process die first.

    The second needs util-linux' setpriv; without it a command outlives a worker that was killed.
    """
    program = argv[0]
    if os.sep not in program:
        found = shutil.which(program, path=env.get("PATH", os.defpath))
        if found is None:
            raise FileNotFoundError(2, "No such program on PATH", program)
        program = found
    else:
        place = os.path.join(cwd, program)  # noqa: PTH118 - a text for another program, not a path of ours
        if not os.path.exists(place):  # noqa: PTH110
            raise FileNotFoundError(2, "No such file", program)
        if not os.access(place, os.X_OK):
            raise PermissionError(13, "Not executable", program)
    setpriv = _setpriv()
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), program, *argv[1:]]


@cache
def _setpriv() -> str | None:
    return shutil.which("setpriv")
