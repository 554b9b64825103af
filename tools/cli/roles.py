"""`tidewheel controlplane|dispatcher|worker exec|migrate`: starts the roles, each from one set of settings.

A role runs until SIGTERM or SIGINT asks it to end, then gives up what it holds and exits 0. The roles are built in
their own rooms; this module only loads the settings and waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import TidewheelError
from tools.cli.commands import DebugOption
from tools.cli.exits import ExitCode, Failure, usage

if TYPE_CHECKING:
    from core.config import Settings

Role = Callable[["Settings", asyncio.Event], Awaitable[None]]

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; deploy/tidewheel.toml shows every key. Else TIDEWHEEL_CONFIG."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Sets any key; may be repeated.")
]
DatabaseOption = Annotated[str | None, typer.Option(help="postgresql:// or cockroachdb:// address.")]
EtcdOption = Annotated[str | None, typer.Option(help="host:port of etcd, or several with commas.")]
ListenOption = Annotated[str | None, typer.Option(help="host:port to serve on; port 0 takes a free one.")]


def register(app: typer.Typer, dispatcher_group: typer.Typer, worker_group: typer.Typer) -> None:
    """Put the roles into the command, the dispatcher into its group as what it does without a further word."""
    app.command("controlplane")(controlplane)
    dispatcher_group.callback()(dispatcher)
    worker_group.command("exec")(worker_exec)
    app.command("migrate")(migrate)


def controlplane(
    config: ConfigOption = None,
    listen: ListenOption = None,
    database_url: DatabaseOption = None,
    etcd_endpoints: EtcdOption = None,
    set_: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Start a control plane: the API, and a candidate for leader."""
    settings = _settings(config, set_, {**_backing(database_url, etcd_endpoints), "controlplane.listen": listen})
    _require_backing(settings)
    from controlplane.process import run

    _serve(run, settings, "controlplane")


def dispatcher(
    context: typer.Context,
    config: ConfigOption = None,
    listen: ListenOption = None,
    database_url: DatabaseOption = None,
    etcd_endpoints: EtcdOption = None,
    set_: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Start a dispatcher, which fires due jobs and hands their runs to workers; `list` shows those that run."""
    if context.invoked_subcommand is not None:
        return
    settings = _settings(config, set_, {**_backing(database_url, etcd_endpoints), "dispatcher.listen": listen})
    _require_backing(settings)
    from dispatcher.process import run

    _serve(run, settings, "dispatcher")


def worker_exec(
    address: Annotated[
        str | None, typer.Option(help="host:port of a control plane, or several with commas. Else TIDEWHEEL_ADDRESS.")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", envvar="TIDEWHEEL_NAMESPACE", help="Whose runs.")
    ] = "default",
    queue: Annotated[list[str] | None, typer.Option(help="Queue to serve; may be repeated.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="How many commands run at once.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Run shell commands as jobs (handler `exec`). Off unless worker.exec_enabled is set."""
    from core.telemetry.handler_spans import export_handler_spans
    from tools.cli.settings import control_plane_address
    from tools.exec_worker import serve

    settings = _settings(config, set_, {"worker.queues": tuple(queue) if queue else None, "worker.slots": slots})
    if settings.worker.exec_enabled and os.geteuid() == 0:
        print("tidewheel: commands of jobs run as root; use a user of their own where that matters", file=sys.stderr)
    _set_up_logging(settings, "worker")
    spans = export_handler_spans(settings.telemetry, role="worker", instance=f"exec-{os.getpid()}")
    try:
        serve(control_plane_address(address), settings, namespace=namespace)
    finally:
        spans.close(settings.telemetry.flush_limit_s)


def migrate(
    config: ConfigOption = None,
    database_url: DatabaseOption = None,
    set_: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Bring the database to this release's schema. Safe to repeat."""
    settings = _settings(config, set_, {"database.url": database_url})
    _require_database(settings)
    from core.store.migrations import migrate as apply

    steps = asyncio.run(apply(settings.database.url))
    for step in steps:
        print(f"applied {step.number} {step.name}")
    if not steps:
        print("the schema is up to date")


def _backing(database_url: str | None, etcd_endpoints: str | None) -> dict[str, Any]:
    endpoints = tuple(part.strip() for part in (etcd_endpoints or "").split(",") if part.strip())
    return {"database.url": database_url, "etcd.endpoints": endpoints or None}


def _settings(config: Path | None, pairs: list[str] | None, flags: dict[str, Any]) -> Settings:
    from tools.cli.settings import assignments, load

    given = {path: value for path, value in flags.items() if value is not None}
    return load(file=config, flags={**assignments(pairs or []), **given})


def _require_database(settings: Settings) -> None:
    if not settings.database.url:
        raise usage("database.url is not set", "--database-url, TIDEWHEEL_DATABASE_URL or url under [database]")


def _require_backing(settings: Settings) -> None:
    _require_database(settings)
    if not settings.etcd.endpoints:
        raise usage("etcd.endpoints is not set", "--etcd-endpoints, TIDEWHEEL_ETCD_ENDPOINTS or endpoints under [etcd]")


def _set_up_logging(settings: Settings, role: str) -> None:
    from core.telemetry.logs import setup_logging

    setup_logging(settings.telemetry, role)


def _serve(role: Role, settings: Settings, name: str) -> None:
    """Run a role in an event loop of its own until it is told to stop. A second signal ends the process at once."""
    import uvloop

    from core.collector import settle_collector

    _set_up_logging(settings, name)
    settle_collector()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(role, settings))
    except TidewheelError:
        raise
    except Exception as error:
        # Nobody raised this on purpose: whoever repairs it needs the trace, and the log is where they look.
        logging.getLogger(name).critical("ended by an error: %s", error, exc_info=error)
        raise Failure(ExitCode.FAILED, f"the {name} ended by an error", "its trace is in the log above") from error


async def _until_told(role: Role, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask(signal_number: int) -> None:
        if stop.is_set():
            os._exit(128 + signal_number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    await role(settings, stop)
