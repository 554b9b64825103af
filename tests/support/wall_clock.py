"""A wall clock that a test lets jump in processes of its choice, by libfaketime; their monotonic clocks stay real.

with wall_clock() as faked:
    start_a_process(env=faked.environ)
    faked.shift(3600)  # its wall clock is an hour ahead from its next look on
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_FINDER = Path(__file__).parents[2] / "tools" / "faketime_for_tests.sh"


@dataclass(frozen=True)
class FakedWallClock:
    """One shift for every process that was given `environ`."""

    library: Path
    file: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs in its environment."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",  # each look reads the file: a jump is seen at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # the same, by the name that older releases know
            "NO_FAKE_STAT": "1",
        }

    def shift(self, seconds: int) -> None:
        """From now on the wall clock differs by so much from the machine's."""
        written = self.file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.chmod(0o644)
        written.replace(self.file)  # nobody reads half a number


@contextmanager
def wall_clock() -> Iterator[FakedWallClock]:
    """A wall clock that shows the machine's time at first.

    Skips the test only where the library cannot be had: no Debian, or not root and not installed.
    """
    library = _library()
    # Servers may run as another user: they must be able to enter the directory.
    home = Path(tempfile.mkdtemp(prefix="wall-clock-"))
    home.chmod(0o755)
    try:
        faked = FakedWallClock(library, home / "shift")
        faked.shift(0)
        yield faked
    finally:
        shutil.rmtree(home)


def _library() -> Path:
    found = subprocess.run([_FINDER], capture_output=True, text=True, check=True).stdout.strip()
    if not found:
        can_fetch = os.geteuid() == 0 and shutil.which("apt-get") is not None
        assert not can_fetch, "libfaketime could not be fetched"
        pytest.skip("no libfaketime here: install it, or name the library in FAKETIME_LIB")
    return Path(found)
