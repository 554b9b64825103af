"""The payload of the handler `exec`: one command, read strictly. Pure. Called by exec_worker.py and the crontab import.

    {"argv": ["pg_dump", "shop"]}            a program with its arguments; no shell sees them
    {"shell": "pg_dump shop | gzip"}         a text for /bin/sh; only where the worker allows it

and beside either: "stdin" (text), "env" (names to texts), "cwd" (a directory), "timeout_s" (a number).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import Invalid

HANDLER = "exec"
_KEYS = ("argv", "shell", "stdin", "env", "cwd", "timeout_s")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. Exactly one of `argv` and `shell` is given; times are in seconds."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    timeout_s: float | None = None


def read_command(payload: bytes) -> Command:
    """The command of a payload. Raises Invalid, which names the field and the rule; nothing is guessed."""
    try:
        document = json.loads(payload, object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError):
        raise Invalid("payload", 'must be a JSON object such as {"argv": ["ls", "-l"]}') from None
    if not isinstance(document, dict):
        raise Invalid("payload", 'must be a JSON object such as {"argv": ["ls", "-l"]}')
    for key in document:
        if key not in _KEYS:
            raise Invalid(f"payload.{key[:40]}", f"is not a known key; known are {', '.join(_KEYS)}")
    if ("argv" in document) == ("shell" in document):
        raise Invalid("payload", "must have exactly one of argv and shell")
    return Command(**{key: _READERS[key](f"payload.{key}", value) for key, value in document.items()})


def write_payload(command: Command) -> bytes:
    """The JSON that `read_command` reads back; equal commands give equal bytes."""
    document: dict[str, Any] = {"argv": list(command.argv)} if command.argv else {"shell": command.shell}
    document |= {"stdin": command.stdin} if command.stdin else {}
    document |= {"env": dict(sorted(command.env.items()))} if command.env else {}
    document |= {"cwd": command.cwd} if command.cwd else {}
    document |= {"timeout_s": command.timeout_s} if command.timeout_s is not None else {}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Invalid("payload", "must not have the same key twice")
    return document


def _text(path: str, value: Any) -> str:
    # What is handed to another program ends at its first NUL: such a text would not mean what it says.
    if not isinstance(value, str) or "\x00" in value:
        raise Invalid(path, "must be text without NUL")
    return value


def _input(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Invalid(path, "must be text")
    return value


def _filled(path: str, value: Any) -> str:
    if not _text(path, value).strip():
        raise Invalid(path, "must not be empty")
    return str(value)


def _argv(path: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Invalid(path, "must be a list of texts, the program first")
    words = tuple(_text(f"{path}[{index}]", word) for index, word in enumerate(value))
    _filled(f"{path}[0]", words[0])
    return words


def _env(path: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Invalid(path, "must be an object of names and texts")
    for name in value:
        if not _VARIABLE.fullmatch(name):
            raise Invalid(f"{path}.{name[:40]}", "is no name of a variable: letters, digits and _, no digit first")
    return {name: _text(f"{path}.{name}", text) for name, text in value.items()}


def _timeout(path: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise Invalid(path, "must be a number of seconds above 0")
    return float(value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "argv": _argv,
    "shell": _filled,
    "stdin": _input,
    "env": _env,
    "cwd": _filled,
    "timeout_s": _timeout,
}
