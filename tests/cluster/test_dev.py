"""`tidewheel dev`: starts everything, keeps what it is told to keep, and leaves no process behind however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command import environment, tidewheel
from tools.servers.process import descendants

READY_WITHIN_S, GONE_WITHIN_S = 90.0, 30.0


@dataclass
class Started:
    """A `tidewheel dev` that serves, and every process that belongs to it."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    family: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        found = re.search(r"control plane at (\S+);", self.lines[-1])
        assert found, self.lines
        return found[1]

    @property
    def data(self) -> Path:
        line = next(line for line in self.lines if line.startswith("data: "))
        return Path(line.removeprefix("data: ").rpartition(" (")[0])

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("ready: "):
                self.family = [self.process.pid, *descendants(self.process.pid)]
                return
        raise AssertionError(f"it ended before it was ready: {self.lines}")


@contextmanager
def dev(*arguments: str) -> Iterator[Started]:
    """One that is ready; whatever the test does, none of its processes outlives it."""
    command = [sys.executable, "-m", "tools.cli.main", "dev", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd="/"
    )
    started = Started(process)
    try:
        started.wait_ready()
        yield started
    finally:
        for pid in [process.pid, *descendants(process.pid)]:
            if _lives(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def gone(pids: list[int]) -> bool:
    """Whether all of them end within the bound."""
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while any(_lives(pid) for pid in pids):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_it_serves_and_when_told_to_end_leaves_neither_process_nor_file(how: signal.Signals) -> None:
    with dev("--port", "0", "--workers", "1") as started:
        assert len(started.family) > 5  # a database, an etcd, three roles and us
        assert tidewheel("status", "--address", started.address).code == 0
        started.process.send_signal(how)
        assert started.process.wait(GONE_WITHIN_S) == 0
        assert gone(started.family)
        assert not started.data.exists()


def test_killed_it_takes_everything_with_it() -> None:
    with dev("--port", "0", "--workers", "1") as started:
        started.process.kill()
        assert gone(started.family)
        shutil.rmtree(started.data)  # nobody is left who would


def test_with_a_directory_it_keeps_the_jobs_and_a_second_one_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tmp_path.chmod(0o755)  # as root the database runs under another account, which has to get there
    with dev("--port", "0", "--data", str(data)) as started:
        made = tidewheel("job", "create", "kept", "--handler", "h", "--address", started.address)
        assert made.code == 0, made.err
        second = tidewheel("dev", "--port", "0", "--data", str(data))
        assert second.code == 1
        assert f"is in use by another `tidewheel dev` (process {started.process.pid})" in second.complaint
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(GONE_WITHIN_S) == 0
    with dev("--port", "0", "--data", str(data)) as started:
        assert tidewheel("job", "get", "kept", "--address", started.address).code == 0


def test_a_port_that_is_taken_is_said_at_once() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tidewheel("dev", "--port", str(port))
    assert done.code == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.complaint


def test_without_its_servers_it_says_so_in_one_line() -> None:
    done = tidewheel("dev", "--port", "0", environ={"ETCD_BIN": "/no/such/etcd"})
    assert done.code == 1
    assert done.complaint == "tidewheel: etcd: /no/such/etcd is not an executable"
