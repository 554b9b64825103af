"""The worker that comes with the server: the handler `exec` runs commands, on the SDK's Worker like any other handler.

It is off unless the configuration switches it on: whoever may create jobs may then run programs as the user of this
process. A command gets no environment but a small one, no open file, and its own process group. Called by
`tidewheel worker exec`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from tidewheel import NotRetryable, RunContext, Worker

from core.config import Settings, WorkerSettings
from core.errors import Invalid
from tools.exec_payload import HANDLER, Command, read_command
from tools.exec_process import Ending, run_command
from tools.exec_tracing import handler_traces

SHELL = "/bin/sh"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What fits into a failure's message beside its first words.
MESSAGE_TAIL_CHARACTERS = 3_000
# JSON writes a control character as six; a result has room for 262,144 bytes.
LARGEST_TAIL_BYTES = 40_000


class CommandFailed(Exception):
    """A command ended otherwise than with exit code 0; its attempt failed, and is retried like any other."""


def exec_worker(addresses: str | Sequence[str], settings: WorkerSettings, *, namespace: str = "default") -> Worker:
    """The worker, not running yet. Raises Invalid unless exec is switched on."""
    if not settings.exec_enabled:
        raise Invalid(
            "worker.exec_enabled",
            "running commands is off; whoever may create jobs could run programs as this user. "
            "To switch it on: exec_enabled = true under [worker], or --set worker.exec_enabled=true",
        )
    worker = Worker(
        addresses,
        queues=settings.queues,
        slots=settings.slots,
        namespace=namespace,
        drain_limit_s=settings.drain_limit_s,
    )
    runner = CommandRunner(settings, worker.worker_id)
    worker.handler(HANDLER)(runner.run)
    return worker


class CommandRunner:
    """The handler."""

    def __init__(self, settings: WorkerSettings, worker_id: str) -> None:
        self._shell_allowed = settings.exec_shell_enabled
        self._tail_bytes = min(settings.exec_output_tail_bytes, LARGEST_TAIL_BYTES)
        self._base = {**minimal_environment(os.environ), "TIDEWHEEL_WORKER": worker_id}

    async def run(self, context: RunContext) -> dict[str, Any]:
        """Run the payload's command; its exit code and the tail of its output are the result.

        Raises CommandFailed for any other end than exit code 0, NotRetryable for a payload that can never be run.
        """
        command = self._command(context)
        try:
            ending = await run_command(
                command.argv or (SHELL, "-c", command.shell),
                env={**self._base, **command.env, **run_environment(context)},
                cwd=command.cwd or self._base["HOME"],
                stdin=command.stdin.encode(errors="surrogatepass"),
                timeout_s=command.timeout_s,
                tail_bytes=self._tail_bytes,
            )
        except OSError as error:
            raise CommandFailed(f"cannot be started: {error.filename or command.cwd}: {error.strerror}") from None
        if ending.timed_out or ending.exit_code != 0:
            raise CommandFailed(failure_text(command, ending))
        return result_of(ending)

    def _command(self, context: RunContext) -> Command:
        try:
            command = read_command(context.payload)
        except Invalid as error:
            raise NotRetryable(str(error)) from None
        if command.shell and not self._shell_allowed:
            raise NotRetryable(
                "payload.shell: the worker runs argument lists only; worker.exec_shell_enabled would allow a shell"
            )
        return command


def minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every command gets of the worker's own environment: PATH, HOME and LANG, each with a sound default."""
    home = environ.get("HOME") or _home_of_user()
    return {
        "PATH": environ.get("PATH") or DEFAULT_PATH,
        "HOME": home if os.path.isdir(home) else "/",  # noqa: PTH112 - a text for other programs
        "LANG": environ.get("LANG") or "C.UTF-8",
    }


def run_environment(context: RunContext) -> dict[str, str]:
    """What a command can know of its run. The run id is the idempotency key, the fencing token orders its attempts."""
    return {
        "TIDEWHEEL_JOB": context.job,
        "TIDEWHEEL_RUN_ID": context.run_id,
        "TIDEWHEEL_ATTEMPT": str(context.attempt),
        "TIDEWHEEL_FENCING_TOKEN": str(context.fencing_token),
        "TIDEWHEEL_SCHEDULED_FOR": context.scheduled_for.isoformat().replace("+00:00", "Z"),
    }


def result_of(ending: Ending) -> dict[str, Any]:
    """The run's result, as JSON will show it."""
    return {
        "exit_code": ending.exit_code,
        "output_tail": ending.tail.decode("utf-8", "replace"),
        "output_bytes": ending.output_bytes,
        "took_s": round(ending.took_s, 3),
    }


def failure_text(command: Command, ending: Ending) -> str:
    """How it ended, and the last of what it printed."""
    if ending.timed_out:
        how = f"stopped at its time limit of {command.timeout_s:g} s"
    elif ending.exit_code < 0:
        how = f"ended by {ending.signal_name}"
    else:
        how = f"exit code {ending.exit_code}"
    tail = ending.tail.decode("utf-8", "replace").strip()[-MESSAGE_TAIL_CHARACTERS:]
    return f"{how}; last output: {tail}" if tail else f"{how}; no output"


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def serve(addresses: str | Sequence[str], settings: Settings, *, namespace: str = "default") -> None:
    """Run the worker until SIGTERM or SIGINT, then let what runs finish. Raises Invalid unless exec is on."""
    worker = exec_worker(addresses, settings.worker, namespace=namespace)
    with handler_traces(settings.telemetry, worker.worker_id):
        worker.main()
