"""`schedule preview` without a server: what it prints, and how it refuses."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from tidewheel.v1 import schedule_service_pb2

from tests.support.command import tidewheel
from tools.cli import schedules
from tools.cli.commands import Call, Output
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Printer

NOW = datetime(2026, 3, 8, 6, 30, tzinfo=UTC)
NEW_YORK = ("--cron", "30 2 * * *", "--zone", "America/New_York", "--after", "2026-03-08T06:30:00Z", "--count", "3")
GAP_DAYS = ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]


class ScriptedServer:
    """Answers every preview with nothing, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[schedule_service_pb2.PreviewScheduleRequest] = []

    async def schedules(self, method: str, request: Any) -> Message:
        assert method == "PreviewSchedule"
        self.asked.append(request)
        return schedule_service_pb2.PreviewScheduleResponse()


async def previewed(given: dict[str, Any], *, terminal: bool = False, **more: Any) -> tuple[str, ScriptedServer]:
    """What is printed, and what a server was asked."""
    server, stream = ScriptedServer(), io.StringIO()
    printer = Printer(stream, terminal=terminal, width=160)
    call = Call(server, "shop", Output.TABLE, printer, NOW)  # type: ignore[arg-type]
    await schedules.preview(call, **{"count": 3, **more}, **given)
    return stream.getvalue(), server


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), GAP_DAYS),
        (("--gap", "end"), GAP_DAYS),
        (("--gap", "shift"), ["2026-03-08T07:30:00Z", *GAP_DAYS[1:]]),
        (("--gap", "skip"), [*GAP_DAYS[1:], "2026-03-11T06:30:00Z"]),
        (("--repeat", "both"), GAP_DAYS),
        (("--exclude-date", "2026-03-09"), [GAP_DAYS[0], GAP_DAYS[2], "2026-03-11T06:30:00Z"]),
        (("--max-runs", "1"), GAP_DAYS[:1]),
        (("--end", "2026-03-09T06:30:00Z"), GAP_DAYS[:1]),
    ],
)
def test_b01_a_preview_is_an_array_of_instants(options: tuple[str, ...], expected: list[str]) -> None:
    found = tidewheel("schedule", "preview", *NEW_YORK, *options, "--output", "json").document
    assert [one["at"] for one in found] == expected


def test_b01_after_is_exclusive() -> None:
    words = [*NEW_YORK[:4], "--after", GAP_DAYS[0], "--count", "2", "-o", "json"]
    assert [one["at"] for one in tidewheel("schedule", "preview", *words).document] == GAP_DAYS[1:]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cron", "*/90 * * * *"], "schedule.cron[0]"),
        (["--cron", "0 0 30 2 *"], "never fires"),
        (["--cron", "@daily", "--zone", "Mars/X"], "schedule.zone"),
        (["--cron", "@daily", "--gap", "jump"], "--gap"),
        (["--cron", "@daily", "--after", "2026-03-08T06:30:00"], "--after"),
        (["--cron", "@daily", "--count", "0"], "--count"),
        (["--cron", "@daily", "--from", "now", "--after", "now"], "after"),
        (["--cron", "@daily", "--from", "now", "--to", "1h ago"], "to"),
        (["--zone", "UTC"], "needs a time"),
        (["--cron", "@daily", "--job", "a"], "either --job or a draft"),
        (["--cron", "@daily", "--version", "2"], "--version needs --job"),
    ],
)
def test_a_wrong_one_is_refused_on_one_line(words: list[str], says: str) -> None:
    done = tidewheel("schedule", "preview", *words, "-o", "json")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert says in done.complaint


async def test_a_pipe_gets_columns_and_a_terminal_the_rules_too() -> None:
    given = {"cron": ["30 2 * * *"], "zone": "America/New_York"}
    piped, server = await previewed(given)
    first, *rows = piped.splitlines()
    assert first.split()[:2] == ["LOCAL", "AT"]
    assert rows[0].startswith("2026-03-08T03:00:00-04:00  2026-03-08T07:00:00Z  -          gap")
    assert len(rows) == 3
    shown, _ = await previewed(given, terminal=True)
    assert "When clocks in America/New_York are set" in shown
    assert not server.asked


async def test_an_end_is_told() -> None:
    shown, _ = await previewed({"at": ["2026-05-01T00:00:00Z"]}, terminal=True)
    assert "There is none after these." in shown
    shown, _ = await previewed({"at": ["2026-01-01T00:00:00Z"]}, terminal=True)
    assert shown.startswith("no occurrence")


@pytest.mark.parametrize(
    "given",
    [
        {"job": "report", "version": 2},
        {"cron": ["@daily"], "exclude_calendar": ["holidays"]},
        {"cron": ["@daily"], "window": ["nights"]},
    ],
)
async def test_only_a_server_knows_jobs_and_calendars(given: dict[str, Any]) -> None:
    _, server = await previewed(given, include_excluded=True)
    (request,) = server.asked
    assert (request.namespace, request.count, request.include_excluded) == ("shop", 3, True)
    assert (request.schedule.job, request.schedule.version) == (given.get("job", ""), given.get("version", 0))


async def test_a_draft_and_a_job_exclude_each_other() -> None:
    with pytest.raises(Failure, match="either --job or a draft"):
        await previewed({"cron": ["@daily"], "job": "report"})
