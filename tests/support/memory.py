"""Puts what tests write into memory where there is room: each test has a fresh database, which is hundreds of files.

On an ordinary disk, making and dropping one takes five times as long, and servers of several test streams wait for
each other's syncs. Called once a process by tests/conftest.py.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

_IN_MEMORY = Path("/dev/shm")
_WANTED_BYTES = 4 << 30


def use_memory_for_temporary_files(directory: Path = _IN_MEMORY, wanted_bytes: int = _WANTED_BYTES) -> None:
    """Make `directory`, the system's memory file system, the place of temporary files, for child processes too.

    A TMPDIR of the caller's is left alone, and nothing changes where memory is short or programs may not run there.
    """
    if "TMPDIR" not in os.environ and _has_room(directory, wanted_bytes):
        os.environ["TMPDIR"] = str(directory)
        tempfile.tempdir = None  # forget the place that was chosen before


def _has_room(directory: Path, wanted_bytes: int) -> bool:
    if not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
        return False
    there = os.statvfs(directory)
    runs_programs = not there.f_flag & os.ST_NOEXEC
    free = min(there.f_bavail * there.f_frsize, psutil.virtual_memory().available)
    return runs_programs and free >= wanted_bytes
