"""What a command's end means to a script, and the one line that says so. Called by every command through main.py.

No message of this module is more than one line: what a server or a file said is cleaned before it is shown.
"""

from __future__ import annotations

from enum import IntEnum

from tools.cli.plain_text import one_line


class ExitCode(IntEnum):
    """Exit codes of the command; they are API."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130


class Failure(Exception):
    """Ends a command with `code`. `hint` says what to try next, in words that could be typed or done."""

    def __init__(self, code: ExitCode, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def line(self) -> str:
        """The message, and the hint if there is one, on one line."""
        return one_line(f"{self.message} ({self.hint})" if self.hint else self.message)


def usage(message: str, hint: str = "") -> Failure:
    """What the caller wrote breaks a rule; nothing was done."""
    return Failure(ExitCode.USAGE, message, hint)


def described(error: BaseException) -> Failure:
    """The failure that an exception stands for: those of the SDK and of the core by what the caller should do."""
    if isinstance(error, Failure):
        return error
    return _of_client(error) or _of_core(error) or _of_system(error)


def _of_client(error: BaseException) -> Failure | None:
    from tidewheel import errors

    text = str(error)
    if isinstance(error, errors.InvalidArgument):
        return usage(text, "nothing was changed")
    if isinstance(error, errors.NotFound):
        return Failure(ExitCode.NOT_FOUND, text, _where_to_look(text))
    if isinstance(error, errors.Unavailable):
        again = f"; if this was a change, repeat it with --request-id {error.request_id}" if error.request_id else ""
        return Failure(ExitCode.UNAVAILABLE, text, f"is the address right? --address or TIDEWHEEL_ADDRESS{again}")
    if isinstance(error, errors.StaleEtag):
        return Failure(ExitCode.FAILED, text, "read the job again, then decide")
    if isinstance(error, errors.CallFailed) and error.code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"):
        return Failure(ExitCode.UNAVAILABLE, text, "try again later")
    if isinstance(error, errors.TidewheelError):
        return Failure(ExitCode.FAILED, text)
    return None


def _where_to_look(not_found: str) -> str:
    """The command that lists what there is; servers name first what is missing."""
    listed = {
        "version of a calendar": "calendar versions NAME",
        "version": "job versions NAME",
        "run": "run list NAME",
        "calendar": "calendar list",
        "operation": "operation list",
        "dispatcher": "dispatcher list",
        "shard": "shard list",
        "move": "shard moves",
        "drain": "shard rules",
        "freeze": "shard rules",
    }
    command = next((command for what, command in listed.items() if not_found.startswith(f"{what} ")), "job list")
    return f"see `tidewheel {command}`"


def _of_core(error: BaseException) -> Failure | None:
    from core import errors

    text = str(error)
    if isinstance(error, errors.Invalid):
        return usage(text)
    if isinstance(error, errors.NotFound):
        return Failure(ExitCode.NOT_FOUND, text)
    if isinstance(error, errors.Unavailable | errors.OutcomeUnknown):
        return Failure(ExitCode.UNAVAILABLE, text, "try again later")
    if isinstance(error, errors.TidewheelError):
        return Failure(ExitCode.FAILED, text)
    return None


def _of_system(error: BaseException) -> Failure:
    if isinstance(error, KeyboardInterrupt):
        return Failure(ExitCode.INTERRUPTED, "interrupted")
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return Failure(ExitCode.FAILED, f"{where}{error.strerror}")
    if type(error).__name__ == "ServerFailed":
        return Failure(ExitCode.FAILED, str(error))
    return Failure(ExitCode.FAILED, f"{type(error).__name__}: {error}", "--debug shows where")
