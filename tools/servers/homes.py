"""Temporary directories in which servers live, gone when they are left."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A new directory under the system's temporary one, removed at the end with all that is in it.

    Others may pass through it but not list it: a server that has to run under another account must reach its own
    directory inside, which is what keeps the secrets.
    """
    home = Path(tempfile.mkdtemp(prefix="tidewheel-"))
    try:
        home.chmod(0o711)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
