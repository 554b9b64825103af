"""The command itself: quick to start, and what it says when it is used wrongly. No server is needed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tidewheel.errors import NotFound
from tidewheel.v1 import job_pb2, job_service_pb2

from tests.support.command import environment, tidewheel
from tools.cli.api import all_pages
from tools.cli.exits import described
from tools.servers.free_port import free_port

HEAVY = ("grpc", "google.protobuf", "sqlalchemy", "asyncpg", "opentelemetry", "croniter", "rich.console", "uvloop")


def test_help_loads_nothing_that_only_commands_need() -> None:
    script = f"import sys, tools.cli.main as main; main.build(); print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.strip() == "[]"


def test_help_is_there_for_every_command() -> None:
    jobs = [
        ["job", word] for word in ("create", "pause", "versions", "diff", "restore", "ledger", "explain", "backfill")
    ]
    times = [["schedule", "preview"], ["schedule", "compare"], ["calendar", "import"], ["operation", "wait"]]
    for words in ([], ["dev"], ["worker", "exec"], *jobs, *times, ["run", "list"], ["import", "crontab"]):
        done = tidewheel(*words, "--help")
        assert done.code == 0
        assert done.out.startswith("Usage: tidewheel")


def test_the_version_is_one_line() -> None:
    done = tidewheel("--version")
    assert (done.code, done.out.split()[0], len(done.out.splitlines())) == (0, "tidewheel", 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jop"], "No such command 'jop'. Did you mean 'job'? (see `tidewheel --help`)"),
        (["job", "create", "x", "--hanlder", "y"], "--hanlder"),
        (["job", "create"], "the job needs a name"),
        (["job", "create", "x", "--every", "10"], "--every: '10' is not a length of time"),
        (["job", "create", "x", "--every", "2d"], "--every: '2d': a day is not always 24 hours"),
        (["job", "create", "x", "--every-days", "two"], "--every-days"),
        (["job", "create", "x", "--jitter", "5m"], "the schedule needs a time"),
        (["job", "create", "x", "--overlap", "queue"], "--overlap: must be one of skip, allow, buffer-one"),
        (["job", "versions"], "give either a name or --id"),
        (["job", "diff", "x"], "FROM"),
        (["job", "restore", "x", "0"], "VERSION"),
        (["job", "create", "x", "--at", "2030-01-01T00:00:00"], "has no offset from UTC"),
        (["job", "get"], "give either a name or --id"),
        (["job", "list", "--output", "yaml"], "--output"),
        (["run", "list"], "give either the job's name or --id"),
        (["run", "list", "x", "--state", "sleeping"], "--state: must be one of pending, leased"),
        (["shard", "show", "x"], "'shard'"),
        (["status", "--address", "nowhere"], "not an address of the form host:port"),
        (["controlplane"], "database.url is not set (--database-url, TIDEWHEEL_DATABASE_URL or url under [database])"),
        (["dispatcher", "--database-url", "postgresql://x/y"], "etcd.endpoints is not set"),
        (["migrate"], "database.url is not set"),
        (["migrate", "--set", "database.ulr=x"], "did you mean database.url?"),
        (["worker", "exec"], "worker.exec_enabled: running commands is off"),
        (["worker", "exec", "--config", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (["import", "crontab", "/no/such/crontab"], "/no/such/crontab: cannot be read"),
        (["import", "crontab", "-", "--zone", "Mars/Olympus"], "--zone: must be an IANA time zone name"),
    ],
)
def test_wrong_usage_is_one_line_with_a_hint_and_exit_code_2(words: list[str], says: str) -> None:
    done = tidewheel(*words)
    assert done.code == 2
    assert done.complaint.startswith("tidewheel: ")
    assert says in done.complaint
    assert done.out == ""


def test_a_group_alone_shows_what_may_follow() -> None:
    done = tidewheel("job")
    assert done.code == 2
    assert "create" in done.err


def test_a_server_that_is_not_there_is_exit_code_4() -> None:
    done = tidewheel("job", "list", "--address", f"127.0.0.1:{free_port()}", "--timeout", "0.5")
    assert done.code == 4
    assert "no answer from 127.0.0.1" in done.complaint
    assert "TIDEWHEEL_ADDRESS" in done.complaint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("job 'x' not found", "tidewheel job list"),
        ("calendar 'x' not found", "tidewheel calendar list"),
        ("operation 'x' not found", "tidewheel operation list"),
        ("run 'x' not found", "tidewheel run list NAME"),
        ("dispatcher 'x' not found", "tidewheel dispatcher list"),
        ("shard '64' not found", "tidewheel shard list"),
        ("move 'x' not found", "tidewheel shard moves"),
        ("drain of dispatcher 'x' not found", "tidewheel shard rules"),
        ("freeze of shard '3' not found", "tidewheel shard rules"),
        ("version '7' not found", "tidewheel job versions NAME"),
        ("version of a calendar '7' not found", "tidewheel calendar versions NAME"),
    ],
)
def test_what_is_not_there_is_exit_code_3_with_the_command_that_lists_what_is(text: str, hint: str) -> None:
    failure = described(NotFound(text))
    assert failure.code == 3
    assert failure.line() == f"{text} (see `{hint}`)"


def test_a_change_that_got_no_answer_says_how_to_repeat_it_safely() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = tidewheel("job", "pause", "x", "--request-id", "id-7", "--address", address, "--timeout", "0.3")
    assert "--request-id id-7" in done.complaint


def test_the_trace_is_shown_only_on_demand() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = tidewheel("status", "--address", address, "--timeout", "0.3", "--debug")
    assert done.code == 4
    assert "Traceback" in done.err


def test_a_reader_that_leaves_early_is_no_error() -> None:
    line = f"{sys.executable} -m tools.cli.main job create --help | head -n 1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment(), check=True)
    assert done.stderr == ""


def test_an_import_says_what_each_line_would_become_without_any_server(tmp_path: Path) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("MAILTO=me@x.example\n*/5 * * * * backup --all\n@reboot start\n61 * * * * x\n", encoding="utf-8")
    done = tidewheel("import", "crontab", str(crontab), "--dry-run", "--zone", "Europe/Berlin")
    assert done.code == 1
    shown = done.out.splitlines()
    assert shown[0] == "line 2: would create backup: */5 * * * * in Europe/Berlin"
    assert shown[1].startswith("line 3: failed: schedule: @reboot cannot be kept")
    assert shown[2].startswith("line 4: failed: schedule.minute") or shown[2].startswith("line 4: failed: minute")
    assert shown[3] == "not kept: output is not mailed to me@x.example: its tail is kept with the run (line 2)"
    assert done.complaint == "tidewheel: 2 of 3 lines could not be kept"


async def test_pages_are_read_until_the_limit_and_shown_as_one_answer() -> None:
    names = [f"job-{number:04d}" for number in range(2500)]
    asked: list[int] = []

    async def serve(method: str, request: job_service_pb2.ListJobsRequest) -> job_service_pb2.ListJobsResponse:
        begin = int(request.page_token or 0)
        end = begin + request.page_size
        asked.append(request.page_size)
        page = [job_pb2.Job(name=name) for name in names[begin:end]]
        return job_service_pb2.ListJobsResponse(jobs=page, next_page_token=str(end) if end < len(names) else "")

    whole = await all_pages(serve, "ListJobs", job_service_pb2.ListJobsRequest(), "jobs", 0)
    assert [job.name for job in whole.jobs] == names
    assert whole.next_page_token == ""
    some = await all_pages(serve, "ListJobs", job_service_pb2.ListJobsRequest(), "jobs", 1100)
    assert (len(some.jobs), some.next_page_token) == (1100, "1100")
    assert asked[-2:] == [1000, 100]
