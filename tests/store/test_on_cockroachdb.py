"""The whole room of store tests once more, on a real CockroachDB where one is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import COCKROACH_URL
from tests.support.servers import started
from tools.servers.cockroach import CockroachServer, find_cockroach

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(bool(COCKROACH_URL), reason="this run is on CockroachDB itself")
@pytest.mark.skipif(find_cockroach() is None, reason="no CockroachDB: neither COCKROACH_BIN nor cockroach on PATH")
def test_the_store_keeps_its_promises_on_cockroachdb() -> None:
    with started(lambda home: CockroachServer(home / "cockroach")) as server:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/store"],
            cwd=REPOSITORY,
            env={**os.environ, "TIDEWHEEL_COCKROACH_URL": server.url()},
            check=False,
        )
    assert run.returncode == 0
