"""Runs the `tidewheel` command as a user does: as a process, with nothing of our own environment but what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed, as JSON; it must have ended well."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """Its one line of complaint, without a trace."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


Run = Callable[..., Done]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a command of ours is started with."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEWHEEL_", "OTEL_"))}
    paths = [str(REPOSITORY), str(REPOSITORY / "worker_sdk" / "python")]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), **(extra or {})}


def tidewheel(*arguments: str, environ: Mapping[str, str] | None = None, stdin: str = "") -> Done:
    """Run one command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(environ),
        cwd="/",
        timeout=WITHIN_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def until(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    """What `look` returns once it is true."""
    deadline_s = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s"
        time.sleep(0.1)
    return seen
