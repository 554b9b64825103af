"""Logs: one line a record, nothing that a user wrote can forge a line or command a terminal (threat T12)."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import TelemetrySettings
from core.errors import Conflict, Invalid, InvariantBroken, Unavailable
from core.telemetry.logs import MESSAGE_LIMIT_BYTES, TRACEBACK_LIMIT_BYTES, printable, setup_logging

log = logging.getLogger("dispatcher.firing")
RUN = UUID("0e2a019b-7c3f-8c00-4f3d-6a1e9b2c7d58")
FORGERY = "nightly\n2026-01-01T00:00:00.000Z error dispatcher: all is lost"
HOSTILE = [
    FORGERY,
    "carriage\rreturn",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\x9b31m a one-byte escape",
    "back\b\b\b\bspace, del \x7f, nul \x00",
    "\u202egnp.exe and \u2066isolated\u2069",
    "line\u2028and paragraph\u2029separators, next line \x85",
    "zero\u200bwidth, byte order mark \ufeff, tag \U000e0041",
    "a lone surrogate \udcff",
]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def text_lines(level: str = "info") -> Callable[[], list[str]]:
    stream = io.StringIO()
    setup_logging(TelemetrySettings(log_level=level), "dispatcher", stream)
    return lambda: stream.getvalue().splitlines()


def json_lines(level: str = "info") -> Callable[[], list[dict[str, Any]]]:
    stream = io.StringIO()
    setup_logging(TelemetrySettings(log_level=level, log_format="json"), "dispatcher", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_a_record_for_people_is_one_line_with_its_fields() -> None:
    lines = text_lines()
    log.warning("lease of %s ended", "worker-a", extra={"run": RUN, "attempt": 2, "shard": 12, "term": 7})
    [line] = lines()
    assert line.endswith(f"Z warning dispatcher: lease of worker-a ended run={RUN} attempt=2 shard=12 term=7")


def test_a_record_for_machines_is_one_object_with_its_fields() -> None:
    records = json_lines()
    log.warning("lease of %s ended", "wörker", extra={"run": RUN, "attempt": 2, "shard": 12, "term": 7})
    [record] = records()
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "warning",
        "role": "dispatcher",
        "logger": "dispatcher.firing",
        "message": "lease of wörker ended",
        "run": str(RUN),
        "attempt": 2,
        "shard": 12,
        "term": 7,
    }


@pytest.mark.parametrize("hostile", HOSTILE)
def test_t12_what_users_wrote_is_escaped_wherever_it_stands(hostile: str) -> None:
    for make in (text_lines, json_lines):
        stream = io.StringIO()
        form = "json" if make is json_lines else "text"
        setup_logging(TelemetrySettings(log_format=form), "dispatcher", stream)
        log.error("job %s", hostile, extra={"run": hostile, "worker": hostile})
        try:
            raise Unavailable(hostile)
        except Unavailable:
            log.exception("failed")
        written = stream.getvalue()
        assert written.count("\n") == 2
        assert written.replace("\n", "").isprintable()
        written.encode()


def test_t12_a_long_message_is_cut_at_4_kib() -> None:
    records = json_lines()
    log.info("x" * 100_000)
    log.info("ä" * 100_000)
    log.info("\x1b" * 100_000)
    for record in records():
        assert len(record["message"].encode()) <= MESSAGE_LIMIT_BYTES
        assert record["message"].endswith("…[cut]")


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(16, 300))
def test_t12_any_text_becomes_one_printable_line_within_its_limit(text: str, limit: int) -> None:
    line = printable(text, limit)
    assert line.isprintable()
    assert len(line.encode()) <= limit
    if text.isprintable() and len(text.encode()) <= limit:
        assert line == text


@pytest.mark.parametrize("error", [Unavailable("no answer"), Invalid("name", "is too long"), Conflict("is paused")])
def test_an_error_raised_on_purpose_has_no_traceback(error: Exception) -> None:
    lines = text_lines()
    try:
        raise error
    except Exception:
        log.exception("the call failed")
    [line] = lines()
    assert line.endswith(f"the call failed [{type(error).__name__}: {error}]")


def test_an_error_that_the_message_tells_already_is_not_told_twice() -> None:
    lines = text_lines()
    error = Unavailable("no answer")
    log.error("task %s failed: %s", "due", error, exc_info=error)
    [line] = lines()
    assert line.endswith("dispatcher: task due failed: no answer")


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InvariantBroken("two owners")])
def test_an_unexpected_error_has_its_traceback_marked_as_such(error: Exception) -> None:
    lines = text_lines()
    try:
        raise error
    except Exception:
        log.exception("task due failed")
    first, *rest = lines()
    assert "task due failed" in first
    assert rest
    assert all(line.startswith("    | ") for line in rest)
    assert rest[0] == "    | Traceback (most recent call last):"
    assert rest[-1].endswith(f"{type(error).__name__}: {error}")


def test_a_traceback_cannot_forge_a_record() -> None:
    lines = text_lines()
    try:
        raise ValueError(FORGERY)
    except ValueError:
        log.exception("failed")
    assert [line for line in lines() if line.startswith("2026-01-01T00:00:00.000Z")] == []


def test_for_machines_a_traceback_stays_within_its_object_and_its_limit() -> None:
    records = json_lines()

    def deeper(depth: int) -> None:
        if depth == 0:
            raise ValueError("at the bottom " + "x" * 5_000)
        deeper(depth - 1)

    try:
        try:
            deeper(300)
        except ValueError as error:
            raise ExceptionGroup("many", [error] * 50) from error
    except ExceptionGroup:
        log.exception("failed")
    [record] = records()
    assert sum(len(line.encode()) + 1 for line in record["traceback"]) <= TRACEBACK_LIMIT_BYTES + 100
    assert record["traceback"][0] == "…[cut]"
    assert record["error"].startswith("ExceptionGroup: many")


def test_at_level_debug_every_error_has_its_traceback() -> None:
    lines = text_lines("debug")
    try:
        raise Unavailable("no answer")
    except Unavailable:
        log.exception("failed")
    assert len(lines()) > 1


def test_a_level_hides_what_lies_below_it() -> None:
    lines = text_lines("warning")
    log.info("hidden")
    log.warning("shown")
    assert len(lines()) == 1


def test_libraries_are_heard_from_warning_on() -> None:
    lines = text_lines()
    logging.getLogger("sqlalchemy.engine").info("BEGIN (implicit)")
    logging.getLogger("asyncio").error("a task was lost")
    [line] = lines()
    assert line.endswith("a task was lost")


def test_a_password_in_a_url_is_not_written() -> None:
    lines = text_lines()
    try:
        raise OSError("cannot reach postgresql://tide:s3cret@db/tidewheel")
    except OSError:
        log.exception("connecting to postgresql+asyncpg://tide:s3cret@db:5432/tidewheel")
    written = "\n".join(lines())
    assert "s3cret" not in written
    assert "tide:***@db:5432" in written


def test_warnings_of_python_are_records_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        lines = text_lines()
        warnings.warn("old habits", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    [line] = lines()
    assert "old habits" in line
