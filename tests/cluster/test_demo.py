"""`make demo`, unattended and interrupted: it judges itself, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.command import environment
from tools.servers.process import descendants

UNATTENDED_WITHIN_S = 180.0


def demo(seconds: str) -> subprocess.Popen[str]:
    """A demo that writes lines, started as make does."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment({"DEMO_SECONDS": seconds} if seconds else {}),
        cwd="/",
    )


def test_unattended_it_ends_by_itself_with_a_verdict_after_a_crash_on_purpose() -> None:
    process = demo("15")
    shown, _ = process.communicate(timeout=UNATTENDED_WITHIN_S)
    lines = shown.splitlines()
    assert process.returncode == 0, shown
    assert any("kill -9 of dispatcher-" in line and "on purpose" in line for line in lines)
    assert any("were taken over within" in line for line in lines)
    assert any(line.startswith("lateness of the commands' own starts: p50 ") for line in lines)
    assert sum(line.startswith(("dispatcher-1: ", "dispatcher-2: ")) for line in lines) == 2
    assert lines[-1].endswith("0 lost, 0 doubled, 0 early - all is well")


def test_interrupted_it_stops_everything_and_still_says_how_it_went() -> None:
    process = demo("")
    assert process.stdout is not None
    family: list[int] = []
    for line in process.stdout:
        if " late (shard" in line:
            family = descendants(process.pid)
            process.send_signal(signal.SIGINT)
            break
    rest = process.stdout.read()
    assert process.wait(60) == 0, rest
    assert "all is well" in rest
    assert len(family) > 8
    deadline_s = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in family):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.stdout.close()


def test_a_length_that_makes_no_sense_is_refused_in_one_line() -> None:
    process = demo("soon")
    shown, _ = process.communicate(timeout=60)
    assert (process.returncode, shown) == (2, "demo: DEMO_SECONDS: must be a number of seconds, not 'soon'\n")
