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
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

TERM_GRACE_S = 5.0
# How long output may still come after the command itself has ended: a child of its own may hold the pipe.
LAST_OUTPUT_S = 0.5
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
    """Run `argv` to its end. OSError if it cannot be started. Cancelled: the group is ended first."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *_bound_to_us(argv, env, cwd),
        stdin=PIPE if stdin else DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )
    tail = Tail(tail_bytes)
    reading = asyncio.ensure_future(_read(process, tail))
    writing = asyncio.ensure_future(_write(process, stdin))
    timed_out = False
    try:
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            timed_out = True
            await _end(process)
        await asyncio.wait([reading], timeout=LAST_OUTPUT_S)
    except asyncio.CancelledError:
        await _end(process)
        raise
    finally:
        _signal(process, signal.SIGKILL)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)
        process._transport.close()  # type: ignore[attr-defined]  # else a pipe that a stranger holds stays open
    return Ending(process.returncode or 0, timed_out, tail.read(), tail.total, time.monotonic() - began_s)


async def _read(process: Process, tail: Tail) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(CHUNK_BYTES):
        tail.add(chunk)


async def _write(process: Process, data: bytes) -> None:
    if process.stdin is None:
        return
    # A command need not read what it is given.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()


async def _end(process: Process) -> None:
    """Ask the group to end, then make it. A second cancellation does not cut the grace short for long."""
    _signal(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), TERM_GRACE_S)
    except (TimeoutError, asyncio.CancelledError):
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: Process, what: signal.Signals) -> None:
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
