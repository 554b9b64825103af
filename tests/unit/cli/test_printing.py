"""What comes out: tables that fit, columns for pipes, JSON, and nothing that commands a terminal."""

from __future__ import annotations

import io
import json

import pytest
from tidewheel.v1 import job_pb2, job_service_pb2

from tools.cli.exits import ExitCode, described
from tools.cli.plain_text import lines, one_line
from tools.cli.printing import Column, Printer

COLUMNS = [Column("NAME", least=8), Column("STATE", 1), Column("SCHEDULE", 2, least=10), Column("RUNS", right=True)]
ROWS = [("back-up-database-of-the-shop", "active", "15 2 * * * in Europe/Berlin", 7), ("b", "paused", "", 12)]


def printed(*, terminal: bool, width: int = 80, rows: list[tuple[object, ...]] | None = None) -> list[str]:
    stream = io.StringIO()
    Printer(stream, terminal=terminal, width=width).table(COLUMNS, ROWS if rows is None else rows, empty="nothing")
    return stream.getvalue().splitlines()


def test_in_a_pipe_nothing_is_cut_and_every_line_has_the_same_columns() -> None:
    shown = printed(terminal=False, width=20)
    assert shown[0].split() == ["NAME", "STATE", "SCHEDULE", "RUNS"]
    assert "back-up-database-of-the-shop" in shown[1]
    assert "15 2 * * * in Europe/Berlin" in shown[1]
    assert shown[2].split() == ["b", "paused", "-", "12"]
    assert "\x1b" not in "".join(shown)


@pytest.mark.parametrize("width", [200, 80, 60, 40, 24])
def test_on_a_terminal_no_line_is_wider_than_it_and_the_first_column_stays(width: int) -> None:
    shown = printed(terminal=True, width=width)
    assert len(shown) == 3
    assert all(len(line.rstrip()) <= width for line in shown)
    assert "NAME" in shown[0]
    assert "RUNS" in shown[0]
    assert ("SCHEDULE" in shown[0]) == (width > 24)


def test_without_rows_people_read_a_word_and_scripts_the_titles() -> None:
    assert printed(terminal=True, rows=[]) == ["nothing"]
    assert len(printed(terminal=False, rows=[])) == 1


HOSTILE = [
    ("\x1b[2J\x1b[31mred", "red"),
    ("\x1b]0;a title\x07name", "name"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x9b31mred", "red"),
    ("a\rb\nc\td", "a b c d"),
    ("nul\x00bell\x07del\x7f", "nulbelldel"),
    ("right\u202eleft\u2066x\u2069", "rightleftx"),
    ("[bold]kept[/bold]", "[bold]kept[/bold]"),
    ("\x1bPq\x1b\\sixel", "sixel"),
    ("lone \x1b", "lone"),
    ("\u2028line\u2029", "line"),
]


@pytest.mark.parametrize(("text", "harmless"), HOSTILE)
def test_t12_whatever_a_server_says_commands_no_terminal(text: str, harmless: str) -> None:
    assert one_line(text) == harmless
    for terminal in (True, False):
        shown = printed(terminal=terminal, rows=[(text, "active", "", 1)])
        assert len(shown) == 2
        assert harmless in shown[1]
        body = shown[1].replace("\x1b[0m", "")
        assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in body)


def test_t12_facts_json_and_errors_are_harmless_too() -> None:
    stream = io.StringIO()
    printer = Printer(stream, terminal=True)
    printer.facts([("description", "\x1b[2Jgone\nnext"), ("empty", "")])
    printer.message(job_pb2.Job(name="x", description="\x1b[2J\x9b\u202e"))
    assert "\x1b" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()
    assert stream.getvalue().splitlines()[0] == "description  gone next"
    assert described(RuntimeError("\x1b[2Jno\nmore")).line() == "RuntimeError: no more (--debug shows where)"
    assert lines("a\x1b[1mb\n\x07c\n\n") == ["ab", "c"]


def test_a_list_is_one_json_document_with_the_answer() -> None:
    stream = io.StringIO()
    answer = job_service_pb2.ListJobsResponse(jobs=[job_pb2.Job(name="a"), job_pb2.Job(name="b")])
    Printer(stream, terminal=False).message(answer)
    assert [job["name"] for job in json.loads(stream.getvalue())["jobs"]] == ["a", "b"]


def test_every_error_has_its_exit_code() -> None:
    from tidewheel import errors as sdk

    from core import errors as core

    codes = {
        sdk.InvalidArgument("job.name: no"): ExitCode.USAGE,
        sdk.NotFound("job 'x' not found"): ExitCode.NOT_FOUND,
        sdk.AlreadyExists("taken"): ExitCode.FAILED,
        sdk.StaleEtag("stale"): ExitCode.FAILED,
        sdk.Conflict("open run"): ExitCode.FAILED,
        sdk.Unavailable("no answer", "id-1"): ExitCode.UNAVAILABLE,
        sdk.CallFailed("RESOURCE_EXHAUSTED", "busy"): ExitCode.UNAVAILABLE,
        sdk.CallFailed("INTERNAL", "?"): ExitCode.FAILED,
        core.Invalid("zone", "no"): ExitCode.USAGE,
        core.NotFound("shard", "9"): ExitCode.NOT_FOUND,
        core.Unavailable("away"): ExitCode.UNAVAILABLE,
        core.Conflict("no"): ExitCode.FAILED,
        KeyboardInterrupt(): ExitCode.INTERRUPTED,
        OSError(2, "No such file", "x"): ExitCode.FAILED,
    }
    for error, code in codes.items():
        assert described(error).code == code, error
    assert "--request-id id-1" in described(sdk.Unavailable("no answer", "id-1")).line()
