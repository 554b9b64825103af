"""The `tidewheel` command: puts the groups together, and turns whatever happens into an exit code and one line.

Nothing but the command line's own modules is loaded here; each command loads what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from tools.cli import (
    backfills,
    calendars,
    cluster,
    crontabs,
    dev,
    job_accounts,
    job_pauses,
    job_versions,
    jobs,
    operations,
    reconcile,
    roles,
    runs,
    schedules,
    shards,
)
from tools.cli.commands import group
from tools.cli.exits import ExitCode, Failure, described
from tools.cli.plain_text import one_line

EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 not found, 4 no server answered."


def _show_version(wanted: bool) -> None:
    if wanted:
        from tools.cli.version import version

        print(f"tidewheel {version()}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]


def build() -> typer.Typer:
    """The whole command."""
    looked_at = sys.stdout.isatty()
    app = typer.Typer(
        name="tidewheel",
        help="Tidewheel, a reliable job scheduler: start its parts, and speak with them.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if looked_at else None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    @app.callback()
    def options(version: VersionOption = False) -> None:
        """Tidewheel, a reliable job scheduler: start its parts, and speak with them."""

    job = group("Register, read, steer and trigger jobs.")
    worker = group("Run workers that come with the server.")
    importer = group("Bring in schedules from elsewhere.")
    dispatcher = typer.Typer(help="Start a dispatcher, or list those that run.", invoke_without_command=True)
    dev.register(app)
    roles.register(app, dispatcher, worker)
    cluster.register(app, dispatcher)
    reconcile.register(app)
    jobs.register(job)
    job_pauses.register(job)
    job_versions.register(job)
    job_accounts.register(job)
    backfills.register(job)
    crontabs.register(importer)
    app.add_typer(dispatcher, name="dispatcher")
    app.add_typer(worker, name="worker")
    app.add_typer(job, name="job")
    app.add_typer(runs.app, name="run")
    app.add_typer(calendars.app, name="calendar")
    app.add_typer(operations.app, name="operation")
    app.add_typer(schedules.app, name="schedule")
    app.add_typer(shards.app, name="shard")
    app.add_typer(importer, name="import")
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. Errors are one line on standard error, with a trace only on demand."""
    try:
        code = build()(args=list(arguments), prog_name="tidewheel", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.OK
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group alone: its help says what may follow
            print(error.format_message(), file=sys.stderr)
            return ExitCode.USAGE
        return _complain(_of_typer(error))
    except typer.Abort:
        return ExitCode.FAILED
    except BrokenPipeError:
        # Whoever read our output has gone, and that is their right. Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in arguments:
            traceback.print_exc()
        return _complain(described(error))


def _of_typer(error: typer.TyperException) -> Failure:
    """A mistake in the command line itself."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidewheel"
    text = one_line(error.format_message()).rstrip(".")
    code = ExitCode.USAGE if error.exit_code == ExitCode.USAGE else ExitCode.FAILED
    return Failure(code, text, f"see `{path} --help`")


def _complain(failure: Failure) -> int:
    print(f"tidewheel: {failure.line()}", file=sys.stderr)
    return failure.code


def main() -> NoReturn:
    """Entry point of the installed command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
