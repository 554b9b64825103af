"""Structured logs: one line a record, for people ("text") or for machines ("json"), on standard error.

A message can hold what users chose (names, errors of handlers): everything that is not printable is escaped, so that no
line can be forged and no terminal commanded, and a message is cut at 4 KiB. A traceback is shown only for an error that
nobody raised on purpose, or at level debug. Fields of a record come by `extra`: log.info("…", extra={"run": run_id}).
Set up once by each role's main function.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from core.config import TelemetrySettings
from core.errors import InvariantBroken, TidewheelError

FIELDS = ("run", "attempt", "shard", "term", "worker")
MESSAGE_LIMIT_BYTES = 4_096
TRACEBACK_LIMIT_BYTES = 16_384
# Libraries whose info lines say nothing to an operator.
_CHATTY = ("asyncio", "grpc", "opentelemetry", "sqlalchemy")
_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s@/]+@")
_CUT = "…[cut]"


def setup_logging(settings: TelemetrySettings, role: str, stream: TextIO | None = None) -> None:
    """Send every record of the process to `stream` (standard error if none is given) in the form of the settings."""
    level = settings.log_level.upper()
    tracebacks = settings.log_level == "debug"
    shape = JsonLines(role, tracebacks) if settings.log_format == "json" else TextLines(role, tracebacks)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(shape)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel("NOTSET" if tracebacks else "WARNING")


def printable(text: str, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> str:
    """`text` in one line without a control, bidi or other invisible character, at most `limit_bytes` long in UTF-8."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else _escaped(one) for one in text[: limit_bytes + 1])
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: limit_bytes - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class _Lines(logging.Formatter):
    """What both forms share: the parts of a record, made harmless."""

    def __init__(self, role: str, tracebacks: bool) -> None:
        super().__init__()
        self._role = role
        self._tracebacks = tracebacks

    def _instant(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _message(self, record: logging.LogRecord) -> str:
        return printable(_PASSWORD.sub(r"\1***@", record.getMessage()))

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, object]]:
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                yield name, value if isinstance(value, int) else printable(str(value), 256)

    def _error(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return printable(_PASSWORD.sub(r"\1***@", f"{type(error).__name__}: {error}")) if error else ""

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        """Its lines, the last ones where it is long: none for what was raised on purpose, unless level debug is set."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not (self._tracebacks or _is_unexpected(error)):
            return []
        text = _PASSWORD.sub(r"\1***@", "".join(traceback.format_exception(error)))
        kept: list[str] = []
        size = 0
        for line in reversed([printable(line, 1_024) for line in text.splitlines()]):
            size += len(line.encode()) + 1
            if size > TRACEBACK_LIMIT_BYTES:
                return [_CUT, *reversed(kept)]
            kept.append(line)
        return kept[::-1]


def _is_unexpected(error: BaseException) -> bool:
    return isinstance(error, InvariantBroken) or not isinstance(error, TidewheelError)


class TextLines(_Lines):
    """For people: instant, level, role, message, fields. Lines of a traceback follow, each marked as such."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{self._instant(record)} {record.levelname.lower():<7} {self._role}: {self._message(record)}"
        parts = [head, *(f"{name}={value}" for name, value in self._fields(record))]
        error = self._error(record)
        if error and error.partition(": ")[2] not in head:
            parts.append(f"[{error}]")
        return "\n".join([" ".join(parts), *(f"    | {line}" for line in self._traceback(record))])


class JsonLines(_Lines):
    """For machines: one object a line: time, level, role, logger, message, the fields; error and traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": self._instant(record),
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": printable(record.name, 256),
            "message": self._message(record),
            **dict(self._fields(record)),
        }
        if error := self._error(record):
            said["error"] = error
        if lines := self._traceback(record):
            said["traceback"] = lines
        return json.dumps(said, ensure_ascii=False)
