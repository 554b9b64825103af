"""`tidewheel calendar`, `operation`, `job backfill` and the bulk forms of `job pause`, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tidewheel.v1 import job_pb2

from tests.support.control_plane import ControlPlane
from tests.support.polling import eventually
from tools.cli.main import run

Command = Callable[..., Awaitable[tuple[int, str, str]]]
HOURLY = job_pb2.Schedule(cron=["0 * * * *"])
HOLIDAYS = """BEGIN:VCALENDAR
X-WR-CALNAME:Office
BEGIN:VEVENT
DTSTART;VALUE=DATE:20201225
RRULE:FREQ=YEARLY
SUMMARY:Christmas
END:VEVENT
BEGIN:VEVENT
DTSTART:20260701T220000Z
DURATION:PT1H
SUMMARY:Upgrade
END:VEVENT
END:VCALENDAR
"""


@pytest.fixture
def isolation() -> str:
    """What a command prints is the same at every level."""
    return "READ COMMITTED"


@pytest.fixture
def command(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command against the plane: exit code, output, errors."""

    async def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(run, [*arguments, "--address", plane.address])
        said = capsys.readouterr()
        return int(code), said.out, said.err

    return call


async def shown(command: Command, *arguments: str) -> Any:
    code, out, err = await command(*arguments, "--output", "json")
    assert code == 0, err
    return json.loads(out)


class TestCalendars:
    async def test_are_made_of_options_and_shown(self, command: Command) -> None:
        code, out, _ = await command(
            "calendar", "create", "off", "--weekday", "sat", "--weekday", "0", "--day-off", "*-12-25=Christmas",
            "--working", "2026-12-26",
        )  # fmt: skip
        assert (code, out.splitlines()[0]) == (0, "created  off, version 1")
        document = await shown(command, "calendar", "get", "off")
        assert document["daysOff"] == {
            "weekdays": [6, 0],
            "days": [{"date": "*-12-25", "name": "Christmas"}],
            "working": ["2026-12-26"],
        }
        _, out, _ = await command("calendar", "get", "off")
        assert "off       *-12-25  Christmas" in out
        assert "working   2026-12-26" in out

    async def test_what_was_printed_makes_the_same_one_again(self, command: Command, tmp_path: Path) -> None:
        await command(
            "calendar", "create", "w", "--action", "defer", "--window", "2026-01-01T00:00:00Z/2026-01-01T02:00:00Z"
        )
        first = await shown(command, "calendar", "get", "w")
        file = tmp_path / "w.json"
        file.write_text(json.dumps(first))
        again = await shown(command, "calendar", "create", "again", "--file", str(file))
        assert again["windows"] == first["windows"]
        toml = tmp_path / "t.toml"
        toml.write_text('[windows]\naction = "skip"\n[[windows.windows]]\ncron = "0 2 * * 0"\nduration = "2h"\n')
        third = await shown(command, "calendar", "create", "third", "--file", str(toml))
        assert third["windows"] == {
            "action": "WINDOW_ACTION_SKIP",
            "windows": [{"cron": "0 2 * * 0", "duration": "7200s", "zone": "UTC"}],
        }

    async def test_options_of_an_update_add_and_remove(self, command: Command) -> None:
        await command("calendar", "create", "off", "--day-off", "2026-01-01", "--day-off", "2026-01-06")
        code, _, _ = await command("calendar", "update", "off", "--day-off", "2026-05-01=May", "--remove", "2026-01-06")
        assert code == 0
        days = (await shown(command, "calendar", "get", "off"))["daysOff"]["days"]
        assert days == [{"date": "2026-01-01"}, {"date": "2026-05-01", "name": "May"}]
        code, _, err = await command("calendar", "update", "off", "--remove", "2026-01-06")
        assert (code, "no day off" in err) == (2, True)
        code, _, err = await command("calendar", "update", "off")
        assert (code, "nothing to change" in err) == (2, True)

    async def test_an_update_says_how_many_jobs_it_reached(self, command: Command, plane: ControlPlane) -> None:
        await command("calendar", "create", "off", "--day-off", "2026-01-01")
        schedule = job_pb2.Schedule(cron=["0 3 * * *"], exclude=job_pb2.Exclusions(calendars=["off"]))
        await plane.create("nightly", schedule=schedule)
        code, out, _ = await command("calendar", "update", "off", "--day-off", "2026-01-02", "--wait")
        assert (code, "1 of 1 reached" in out, "(succeeded)" in out) == (0, True, True)
        code, _, err = await command("calendar", "delete", "off")
        assert (code, "used by job 'nightly'" in err) == (1, True)

    async def test_are_listed_with_their_versions_and_deleted(self, command: Command) -> None:
        await command("calendar", "create", "off", "--day-off", "2026-01-01", "--note", "first")
        await command("calendar", "update", "off", "--day-off", "2026-01-02", "--note", "second")
        _, out, _ = await command("calendar", "list")
        assert out.splitlines()[1].split()[:3] == ["off", "2", "0"]
        _, out, _ = await command("calendar", "versions", "off")
        assert [line.split()[0] for line in out.splitlines()[1:]] == ["2", "1"]
        assert out.splitlines()[2].endswith("first")
        assert (await command("calendar", "delete", "off"))[0] == 0
        assert (await command("calendar", "get", "off"))[0] == 3

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--weekday", "someday"), "no day of the week"),
            (("--day-off", "2026-01-01", "--window", "now/in 1h"), "either days off or windows"),
            (("--window", "now"), "not FROM/TO"),
            (("--window", "now/in 1h", "--action", "run"), "skip or defer"),
            (("--day-off", "2026-13-01"), "days_off.days[0].date"),
            ((), "must have exactly one of days_off and windows"),
        ],
    )
    async def test_a_mistake_is_named_and_makes_nothing(
        self, command: Command, eye: asyncpg.Connection, options: tuple[str, ...], words: str
    ) -> None:
        code, _, err = await command("calendar", "create", "x", *options)
        assert (code, words in err, len(err.splitlines())) == (2, True, 1), err
        assert await eye.fetchval("SELECT count(*) FROM calendars") == 0


class TestImports:
    async def test_keep_what_can_be_kept_and_say_the_rest(self, command: Command, tmp_path: Path) -> None:
        file = tmp_path / "holidays.ics"
        file.write_text(HOLIDAYS)
        code, out, err = await command("calendar", "import", str(file), "--name", "holidays")
        assert code == 1
        assert out.splitlines() == [
            "line 3: kept Christmas: *-12-25",
            "line 3: not kept: holds for every year, also before 2020",
            "line 8: failed Upgrade: has a time of day: --windows skip or --windows defer would keep it as a "
            "maintenance window",
            "created: 1 of 2 events kept",
        ]
        assert "1 of 2 events could not be kept" in err
        document = await shown(command, "calendar", "get", "holidays")
        assert document["description"] == "Office"
        assert document["daysOff"] == {"days": [{"date": "*-12-25", "name": "Christmas"}]}

    async def test_a_second_one_changes_nothing(self, command: Command, tmp_path: Path) -> None:
        file = tmp_path / "holidays.ics"
        file.write_text(HOLIDAYS)
        arguments = ("calendar", "import", str(file), "--name", "w", "--windows", "defer", "--update")
        assert (await command(*arguments))[1].splitlines()[-1] == "created: 1 of 2 events kept"
        assert (await command(*arguments))[1].splitlines()[-1] == "unchanged: 1 of 2 events kept"
        file.write_text(HOLIDAYS.replace("20260701", "20260702"))
        assert (await command(*arguments))[1].splitlines()[-1] == "updated: 1 of 2 events kept"
        assert (await shown(command, "calendar", "get", "w"))["version"] == "2"

    async def test_a_dry_run_asks_no_server(self, command: Command, tmp_path: Path, eye: asyncpg.Connection) -> None:
        file = tmp_path / "holidays.ics"
        file.write_text(HOLIDAYS)
        _, out, _ = await command("calendar", "import", str(file), "--name", "holidays", "--dry-run")
        assert out.splitlines()[-1] == "would create: 1 of 2 events kept"
        assert await eye.fetchval("SELECT count(*) FROM calendars") == 0

    async def test_of_something_else_are_refused(self, command: Command, tmp_path: Path) -> None:
        file = tmp_path / "x.ics"
        file.write_text("hello")
        assert (await command("calendar", "import", str(file), "--name", "x"))[0] == 2
        assert (await command("calendar", "import", str(tmp_path / "none.ics"), "--name", "x"))[0] == 2


class TestBackfillsAndOperations:
    RANGE = ("--from", "2020-01-01T00:00:00Z", "--to", "2020-01-01T05:00:00Z")

    async def test_a_dry_run_says_how_many(self, command: Command, plane: ControlPlane) -> None:
        await plane.create("hourly", schedule=HOURLY)
        code, out, _ = await command("job", "backfill", "hourly", *self.RANGE, "--dry-run")
        assert (code, out.startswith("would make 5 runs: run job 'hourly'")) == (0, True)

    async def test_is_an_operation_that_can_be_seen_waited_for_and_canceled(
        self, command: Command, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("hourly", schedule=HOURLY)
        made = await shown(command, "job", "backfill", "hourly", *self.RANGE, "--note", "lost day")
        operation_id = made["operationId"]
        _, out, _ = await command("operation", "get", operation_id)
        facts = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert (facts["state"], facts["done"], facts["note"]) == ("running", "0 of 5", "lost day")
        _, out, _ = await command("operation", "list")
        assert out.splitlines()[1].split()[:3] == [operation_id, "backfill", "running"]
        code, _, err = await command("operation", "wait", operation_id, "--for", "100ms")
        assert (code, "goes on: 0 of 5" in err) == (1, True)
        await eye.execute(
            "UPDATE runs SET state = 3, attempt = 1, ended_us = 5 WHERE scheduled_for_us % 7200000000 = 0"
        )
        assert (await command("operation", "cancel", operation_id))[0] == 0
        code, out, err = await command("operation", "wait", operation_id)
        assert (code, "is canceled" in err, "2 of them taken back" in out) == (1, True, True)

    async def test_waiting_ends_with_the_operation(
        self, command: Command, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        await plane.create("hourly", schedule=HOURLY)
        waiting = asyncio.ensure_future(command("job", "backfill", "hourly", *self.RANGE, "--wait"))

        async def made() -> bool:
            return bool(await eye.fetchval("SELECT count(*) = 5 FROM runs"))

        await eventually(made)
        assert not waiting.done()
        await eye.execute("UPDATE runs SET state = 3, attempt = 1, ended_us = 5, not_before_us = 0")
        code, out, _ = await waiting
        assert (code, "succeeded" in out, "5 of 5" in out) == (0, True, True)

    async def test_what_is_missing_or_wrong_is_said(self, command: Command, plane: ControlPlane) -> None:
        await plane.create("hourly", schedule=HOURLY)
        assert (await command("job", "backfill", "hourly"))[0] == 2
        assert (await command("job", "backfill", "none", *self.RANGE))[0] == 3
        assert (await command("job", "backfill", "hourly", *self.RANGE, "--max-runs", "2"))[0] == 1
        assert (await command("operation", "get", "x"))[0] == 2
        assert (await command("operation", "get", "11111111-1111-1111-1111-111111111111"))[0] == 3


class TestManyJobs:
    async def test_are_paused_and_resumed_by_label_when_that_was_agreed_to(
        self, command: Command, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        for number in range(3):
            await plane.create(f"job-{number}", schedule=HOURLY, labels={"team": "a"})
        await plane.create("other", schedule=HOURLY)
        wish = ("job", "pause", "--label", "team=a", "--note", "storm")
        code, _, err = await command(*wish)
        assert (code, "pause 3 jobs (job-0, job-1, job-2)?" in err, "--yes" in err) == (2, True, True)
        assert await eye.fetchval("SELECT count(*) FROM jobs WHERE state = 2") == 0
        code, out, _ = await command(*wish, "--yes")
        assert (code, "3 of 3" in out, "succeeded" in out) == (0, True, True)
        assert await eye.fetchval("SELECT count(*) FROM jobs WHERE state = 2") == 3
        code, out, _ = await command(*wish, "--yes")
        assert (code, out) == (0, "no job to pause\n")
        code, _, _ = await command("job", "resume", "--all", "--note", "calm", "--yes")
        assert code == 0
        assert await eye.fetchval("SELECT count(*) FROM jobs WHERE state = 1") == 4
