"""A single CockroachDB node of our own in one directory, where a `cockroach` program is at hand.

$COCKROACH_BIN, else `cockroach` on PATH; no package brings it. Loopback only and without certificates: for `tidewheel
dev`, the demo and the tests, never for data that matters.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.servers.free_port import free_port
from tools.servers.http_probe import body_of
from tools.servers.process import Child, ServerFailed, start_child
from tools.servers.server import LocalServer

DATABASE = "tidewheel"
STATEMENT_WITHIN_S = 60.0


def find_cockroach() -> Path | None:
    """The program, or None where there is none."""
    found = os.environ.get("COCKROACH_BIN") or shutil.which("cockroach")
    return Path(found) if found else None


class CockroachServer(LocalServer):
    """One node."""

    name = "CockroachDB"
    ready_within_s = 60.0
    stop_within_s = 30.0

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        program = find_cockroach()
        if program is None:
            raise ServerFailed("CockroachDB: no cockroach on PATH; install it or set COCKROACH_BIN")
        self.program = program
        self.version = self._version()
        self._http_port: int | None = None

    @property
    def description(self) -> str:
        """Version and path, for people."""
        return f"CockroachDB {self.version} ({self.program})"

    def url(self, database: str = DATABASE) -> str:
        """`cockroachdb://` address of a database; valid over restarts of this object."""
        return f"cockroachdb://root@127.0.0.1:{self._port()}/{database}"

    def start(self) -> None:
        """Start, wait until it serves SQL, and make our database if it is not there."""
        super().start()
        self.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")

    def _launched(self) -> Child:
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.port is None:
            self.port, self._http_port = free_port(), free_port()
        command = [str(self.program), "start-single-node", "--insecure", f"--store={self.home / 'data'}"]
        command += [f"--listen-addr=127.0.0.1:{self.port}", f"--http-addr=127.0.0.1:{self._http_port}"]
        return start_child("CockroachDB", command, log=self.log)

    def execute(self, sql: str) -> None:
        """Run statements outside of the product: making and dropping databases."""
        command = [str(self.program), "sql", "--insecure", f"--host=127.0.0.1:{self.port}", f"--execute={sql}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STATEMENT_WITHIN_S, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"CockroachDB: {done.stderr.strip()}")

    def _version(self) -> str:
        shown = subprocess.run([self.program, "version", "--build-tag"], capture_output=True, text=True, check=False)
        if shown.returncode != 0:
            raise ServerFailed(f"CockroachDB: {self.program} version failed: {shown.stderr.strip()}")
        return shown.stdout.strip().removeprefix("v")

    def _answers(self) -> bool:
        return body_of(self._http_port, "/health?ready=1") is not None
