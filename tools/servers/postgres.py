"""A PostgreSQL server of our own in one directory: made at first start, kept over restarts, stopped by pid.

C collation, UTF8, loopback TCP only, a random password kept beside the data (other users of the machine can reach the
port), durable unless told otherwise. Used by `tidewheel dev`, the demo, the benches and the tests.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.servers.free_port import free_port
from tools.servers.postgres_binaries import Runner, find_bin_dir, runner_for, version_of
from tools.servers.process import SAME_ACCOUNT, Child, ServerFailed, last_lines, start_child
from tools.servers.server import LocalServer

USER = "tidewheel"
DATABASE = "tidewheel"
INITDB_WITHIN_S = 120.0
FIRST_MAJOR_WITH_INITDB_SETTINGS = 16
# For quick tests. synchronous_commit stays on: the product refuses a server where it is off.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(LocalServer):
    """One server; its home holds the password too."""

    name = "PostgreSQL"
    ready_within_s = 120.0  # a crash recovery on a busy disk takes its time
    stop_within_s = 20.0
    stop_signal = signal.SIGINT  # clients are disconnected

    def __init__(
        self,
        home: Path,
        *,
        bin_dir: Path | None = None,
        durable: bool = True,
        logical: bool = False,
        max_connections: int = 300,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home)
        # What the server's environment has beside ours.
        self._environ = dict(environ or {})
        self.bin_dir = find_bin_dir(bin_dir)
        self.version = version_of(self.bin_dir)
        self._durable = durable
        self._major = int(self.version.split(".")[0])
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": str(max_connections),
            "shared_buffers": "256MB",
            "wal_level": "logical" if logical else "replica",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            **({} if durable else NOT_DURABLE),
        }
        self._runner: Runner | None = None

    @property
    def description(self) -> str:
        """Version and path, for people."""
        return f"PostgreSQL {self.version} ({self.bin_dir / 'postgres'})"

    def url(self, database: str = DATABASE) -> str:
        """`postgresql://` address of a database, with user and password; valid over restarts of this object."""
        return f"postgresql://{USER}:{self._password()}@127.0.0.1:{self._port()}/{database}"

    def _launched(self) -> Child:
        runner = self._prepare()
        self.port = self.port or free_port()
        settings = [f"--{name}={value}" for name, value in {**self._settings, "port": str(self.port)}.items()]
        return start_child(
            "PostgreSQL",
            runner.command("postgres", "-D", self._data, *settings),
            log=self.log,
            # Ends every backend too, also one that is busy and would not look at its parent for a while.
            death_signal=signal.SIGQUIT,
            account=runner.account,
            env={**os.environ, **self._environ},
        )

    @property
    def _password_file(self) -> Path:
        return self.home / "password"

    def _password(self) -> str:
        return self._password_file.read_text().strip()

    def _prepare(self) -> Runner:
        """Find out how to run it here, and make the data directory unless there is one."""
        if self._runner is None:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._runner = runner_for(self.bin_dir, self.home)
        recorded = self._data / "PG_VERSION"
        if not recorded.exists():
            self._initialise(self._runner)
        elif recorded.read_text().strip() != str(self._major):
            was = recorded.read_text().strip()
            raise ServerFailed(
                f"{self._data} was made by PostgreSQL {was}, this is {self.version}: set PG_BIN, or move it away"
            )
        return self._runner

    def _initialise(self, runner: Runner) -> None:
        """Make the data directory and our database beside its final place, then move it there whole."""
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24) + "\n")
        if runner.account != SAME_ACCOUNT:
            os.chown(self._password_file, runner.account.user_id, runner.account.group_id)
        unfinished = self.home / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        arguments = ["--locale=C", "--encoding=UTF8", "--auth=scram-sha-256", f"--username={USER}", "--no-instructions"]
        arguments += [f"--pwfile={self._password_file}"] + ([] if self._durable else ["--no-sync"])
        if self._major >= FIRST_MAJOR_WITH_INITDB_SETTINGS:
            # The password is random and long: many rounds of hashing would only slow each connection down.
            arguments += ["--set", "scram_iterations=1"]
        self._run(runner, "initdb", "-D", unfinished, *arguments)
        self._run(runner, "postgres", "--single", "-D", unfinished, "postgres", stdin=f"CREATE DATABASE {DATABASE}\n")
        unfinished.rename(self._data)

    def _run(self, runner: Runner, program: str, *arguments: str | Path, stdin: str = "") -> None:
        """Run one of PostgreSQL's programs to its end; what it prints goes to the log."""
        own_account = runner.account == SAME_ACCOUNT
        with self.log.open("ab") as log:
            done = subprocess.run(
                runner.command(program, *arguments),
                input=stdin.encode(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                user=None if own_account else runner.account.user_id,
                group=None if own_account else runner.account.group_id,
                extra_groups=None if own_account else [],
                timeout=INITDB_WITHIN_S,
                check=False,
            )
        if done.returncode != 0:
            raise ServerFailed(f"PostgreSQL: {program} failed: {last_lines(self.log)} (log: {self.log})")

    def _answers(self) -> bool:
        """The postmaster writes its state into the eighth line of its pid file; a stale file has another pid."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
