"""One child process of ours: started in a session of its own, bound to our life, logged to a file, ended by pid.

Linux tells a child of its parent's death when the *thread* that started it ends: call `start_child` from a thread that
lives as long as the server should, in practice the main one, never from a pool's thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
POLL_S = 0.01
LOG_TAIL_LINES = 5


class ServerFailed(Exception):
    """A server did not start or did not stop; the text is one line, fit for a terminal."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group ids under which a child runs."""

    user_id: int
    group_id: int


SAME_ACCOUNT = Account(-1, -1)


@dataclass(slots=True)
class Child:
    """A started process. `name` is for messages, `log` holds what it printed."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet (a frozen process runs)."""
        return self.process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within_s: float = 10.0) -> None:
        """Ask it to end; if it has not within the bound, kill it and all its children."""
        if self.running:
            self.thaw()
            self._signal(self.pid, how)
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it and every descendant with SIGKILL, at once."""
        self.signal_all(signal.SIGKILL)
        self.process.wait(60.0)  # a process in the middle of its writes may have to end them first

    def freeze(self) -> None:
        """Stop it and every descendant in its tracks with SIGSTOP."""
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self.signal_all(signal.SIGCONT)

    def signal_all(self, what: signal.Signals) -> None:
        """Send a signal to the process first, then to every descendant it had."""
        if not self.running:
            return
        for pid in [self.pid, *descendants(self.pid)]:
            self._signal(pid, what)

    def wait_until(self, ready: Callable[[], bool], *, within_s: float) -> None:
        """Poll `ready` until it holds. Raises ServerFailed when the process ends first or the time is up."""
        deadline_s = time.monotonic() + within_s
        while not ready():
            if not self.running:
                code = self.process.returncode
                raise ServerFailed(f"{self.name} ended with code {code}: {last_lines(self.log)} (log: {self.log})")
            if time.monotonic() > deadline_s:
                raise ServerFailed(
                    f"{self.name} was not ready within {within_s:g} s: {last_lines(self.log)} (log: {self.log})"
                )
            time.sleep(POLL_S)

    @staticmethod
    def _signal(pid: int, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended on its own in between
            os.kill(pid, what)


def start_child(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    account: Account = SAME_ACCOUNT,
) -> Child:
    """Start `command` (its first word a path or a name on PATH) through the guard; its output is appended to `log`."""
    program = shutil.which(str(command[0]))
    if program is None:
        raise ServerFailed(f"{name}: {command[0]} is not an executable")
    guarded = [sys.executable, "-I", "-S", str(GUARD), str(int(death_signal)), str(os.getpid())]
    guarded += [str(account.user_id), str(account.group_id), program, *(str(word) for word in command[1:])]
    with log.open("ab") as output:
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd="/",
            start_new_session=True,
        )
    return Child(name, log, process)


def descendants(pid: int) -> list[int]:
    """Every living descendant of `pid`, parents before children; empty where /proc does not tell."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue  # the thread ended while we looked
        for child in children:
            found += [child, *descendants(child)]
    return found


def last_lines(log: Path) -> str:
    """The last lines of a log, on one line."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    return " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:] if line.strip()) or "its log is empty"
