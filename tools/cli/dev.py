"""`tidewheel dev`: a whole system on this machine in one command, for trying out and for developing against.

It starts a database and an etcd (or takes those that the configuration names), one control plane, one dispatcher and,
if asked, workers for shell commands. It ends with Ctrl-C and leaves no process behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from tools.cli.commands import DebugOption
from tools.cli.exits import ExitCode, Failure, usage
from tools.ending import Told, ending_by_signals

if TYPE_CHECKING:
    from tools.fleet import Fleet
    from tools.servers.embedded import Backing

DEFAULT_PORT = 7233
LOOK_EVERY_S = 0.2


def register(app: typer.Typer) -> None:
    """Put `dev` into the command."""
    app.command("dev")(dev)


def dev(
    data: Annotated[
        Path | None, typer.Option(help="Directory that keeps the data. Without it, a temporary one that is removed.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the control plane; 0 takes a free one.")
    ] = DEFAULT_PORT,
    workers: Annotated[
        int, typer.Option(min=0, max=64, help="Workers for shell commands (handler `exec`) to start beside it.")
    ] = 0,
    debug: DebugOption = False,
) -> None:
    """Start a whole system on this machine: database, etcd, control plane and dispatcher. Ctrl-C stops all of it."""
    from tools.cli.settings import load
    from tools.servers.embedded import Backing
    from tools.servers.free_port import is_free

    if port and not is_free(port):
        raise Failure(ExitCode.FAILED, f"port {port} on 127.0.0.1 is taken", "--port 0 takes a free one")
    settings = load()
    with ending_by_signals():
        try:
            with _held(data):
                backing = Backing(data, database_url=settings.database.url, etcd_endpoints=settings.etcd.endpoints)
                with backing:
                    _serve(backing, port, workers)
        except Told:
            print("stopped")


def _serve(backing: Backing, port: int, workers: int) -> None:
    """Start the roles, say where they are, and wait for the end."""
    from core.store.migrations import migrate
    from tools.fleet import Fleet, until_served

    for line in backing.lines:
        print(line)
    asyncio.run(migrate(backing.database_url, connect_timeout_s=30.0))
    fleet = Fleet(backing, backing.home / "log", os.environ)
    try:
        fleet.start_control_plane(port=port)
        fleet.start_dispatcher()
        for number in range(1, workers + 1):
            fleet.start_worker(f"worker-{number}")
        asyncio.run(until_served(fleet, dispatchers=1))
        _announce(fleet, workers)
        while True:
            fleet.check()
            time.sleep(LOOK_EVERY_S)
    finally:
        fleet.stop()


def _announce(fleet: Fleet, workers: int) -> None:
    print(f"logs: {fleet.log_dir}")
    if not workers:
        print("no worker: start one of yours, or use --workers 1 for shell commands")
    if fleet.addresses != f"127.0.0.1:{DEFAULT_PORT}":
        print(f"export TIDEWHEEL_ADDRESS={fleet.addresses}")
    print(f"ready: control plane at {fleet.addresses}; Ctrl-C stops everything", flush=True)


@contextmanager
def _held(data: Path | None) -> Iterator[None]:
    """Hold the data directory against a second `dev`. The lock goes with the process, however it ends."""
    if data is None:
        yield
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "dev.lock").open("a+")
    except OSError as error:
        raise usage(f"--data {data}: {error.strerror}") from error
    with lock:
        _take(lock, data)
        yield


def _take(lock: IO[str], data: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        raise Failure(
            ExitCode.FAILED, f"{data} is in use by another `tidewheel dev` (process {holder})", "choose another --data"
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
