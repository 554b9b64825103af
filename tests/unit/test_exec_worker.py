"""The handler `exec`: what a payload may say, what a command gets and gives, and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tidewheel.testing import HandlerOutcome, run_handler

from core.config import WorkerSettings
from core.errors import Invalid
from tests.support.command import environment
from tests.support.polling import eventually
from tools import exec_process
from tools.exec_payload import Command, read_command, write_payload
from tools.exec_process import Tail, run_command
from tools.exec_worker import CommandRunner, exec_worker, minimal_environment

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}


async def executed(
    payload: object, *, shell_allowed: bool = False, tail_bytes: int = 16_384, **given: Any
) -> HandlerOutcome:
    settings = WorkerSettings(exec_enabled=True, exec_shell_enabled=shell_allowed, exec_output_tail_bytes=tail_bytes)
    return await run_handler(CommandRunner(settings, "worker-1").run, payload=payload, **given)


async def stopped_in_time(argv: list[str], pids: Path, count: int) -> HandlerOutcome:
    """What a time limit does to a command that has noted so many processes by then."""
    for timeout_s in (0.5, 5.0, 30.0):  # a slow machine may not have started them all when the first is over
        pids.unlink(missing_ok=True)
        outcome = await executed({"argv": argv, "timeout_s": timeout_s})
        assert f"stopped at its time limit of {timeout_s:g} s" in outcome.error
        if pids.exists() and len(pids.read_text().split()) == count:
            return outcome
    raise AssertionError(f"no {count} processes were started in half a minute")


def test_a_payload_is_read_back_as_it_was_written() -> None:
    full = {"stdin": "a\nb", "env": {"A": "b c", "_X1": ""}, "cwd": "/tmp", "timeout_s": 1.5}
    for command in (Command(argv=("ls", "-l")), Command(**{"shell": "ls | wc -l", **full})):
        assert read_command(write_payload(command)) == command


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b"", "payload"),
        (b"ls -l", "payload"),
        (b"[]", "payload"),
        (b"[" * 100_000, "payload"),
        (b"{}", "payload"),
        (b'{"argv": ["ls"], "shell": "ls"}', "payload"),
        (b'{"argv": ["ls"], "argv": ["rm"]}', "payload"),
        (b'{"argvv": ["ls"]}', "payload.argvv"),
        (b'{"argv": "ls"}', "payload.argv"),
        (b'{"argv": []}', "payload.argv"),
        (b'{"argv": [""]}', "payload.argv[0]"),
        (b'{"argv": ["ls", 5]}', "payload.argv[1]"),
        (b'{"argv": ["ls", "a\\u0000b"]}', "payload.argv[1]"),
        (b'{"shell": " "}', "payload.shell"),
        (b'{"argv": ["ls"], "stdin": 5}', "payload.stdin"),
        (b'{"argv": ["ls"], "env": []}', "payload.env"),
        (b'{"argv": ["ls"], "env": {"A=B": "x"}}', "payload.env.A=B"),
        (b'{"argv": ["ls"], "env": {"A": 5}}', "payload.env.A"),
        (b'{"argv": ["ls"], "cwd": ""}', "payload.cwd"),
        (b'{"argv": ["ls"], "timeout_s": 0}', "payload.timeout_s"),
        (b'{"argv": ["ls"], "timeout_s": -1}', "payload.timeout_s"),
        (b'{"argv": ["ls"], "timeout_s": true}', "payload.timeout_s"),
        (b'{"argv": ["ls"], "timeout_s": NaN}', "payload.timeout_s"),
    ],
)
async def test_a_payload_that_can_never_run_is_refused_by_its_field_and_not_retried(payload: bytes, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_command(payload)
    assert caught.value.field == field
    outcome = await executed(payload)
    assert outcome.not_retryable
    assert f"{field}: " in outcome.error


def test_t23_exec_is_off_unless_it_is_switched_on() -> None:
    with pytest.raises(Invalid) as caught:
        exec_worker("127.0.0.1:1", WorkerSettings())
    assert caught.value.field == "worker.exec_enabled"
    assert "off" in caught.value.rule


async def test_t23_a_shell_is_used_only_where_the_worker_allows_it() -> None:
    refused = await executed({"shell": "echo $((6 * 7))"})
    assert refused.not_retryable
    assert "exec_shell_enabled" in refused.error
    allowed = await executed({"shell": "echo $((6 * 7))"}, shell_allowed=True)
    assert allowed.json()["output_tail"] == "42\n"
    plain = await executed({"argv": ["echo", "$((6 * 7))", "; ls", "*"]})
    assert plain.json()["output_tail"] == "$((6 * 7)) ; ls *\n"


async def test_t23_a_command_gets_a_small_environment_and_no_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        outcome = await executed({"argv": ["env"], "env": {"COLOUR": "blue", "TIDEWHEEL_RUN_ID": "forged"}}, attempt=3)
        files = await executed({"argv": ["ls", "/proc/self/fd"]})
    finally:
        os.close(read)
        os.close(write)
    variables = dict(line.split("=", 1) for line in outcome.json()["output_tail"].splitlines())
    assert variables.keys() == {
        *("PATH", "HOME", "LANG", "COLOUR", "TIDEWHEEL_JOB", "TIDEWHEEL_RUN_ID", "TIDEWHEEL_ATTEMPT"),
        *("TIDEWHEEL_FENCING_TOKEN", "TIDEWHEEL_SCHEDULED_FOR", "TIDEWHEEL_WORKER"),
    }
    assert variables["TIDEWHEEL_ATTEMPT"] == "3"
    assert variables["TIDEWHEEL_RUN_ID"] != "forged"
    # The fourth is the directory that ls itself reads.
    assert files.json()["output_tail"].split() == ["0", "1", "2", "3"]


def test_the_small_environment_has_sound_defaults() -> None:
    assert minimal_environment({"HOME": "/no/such/home", "SECRET": "x"}).keys() == {"PATH", "HOME", "LANG"}
    assert minimal_environment({"HOME": "/no/such/home"})["HOME"] == "/"
    assert minimal_environment({"HOME": "/", "PATH": "/p", "LANG": "de"}) == {"HOME": "/", "PATH": "/p", "LANG": "de"}


async def test_exit_code_and_the_end_of_the_output_are_the_result() -> None:
    outcome = await executed(
        {"argv": ["sh", "-c", "cat; echo err >&2; head -c 1000000 /dev/zero | tr '\\0' x; echo END"]}
    )
    result = outcome.json()
    assert result["exit_code"] == 0
    assert result["output_tail"].endswith("xxEND\n")
    assert len(result["output_tail"]) == 16_384
    assert result["output_bytes"] == 1_000_008


async def test_what_a_command_reads_and_where_it_runs_is_the_payloads(tmp_path: Path) -> None:
    outcome = await executed({"argv": ["sh", "-c", "cat; pwd"], "stdin": "grüße\n", "cwd": str(tmp_path)})
    assert outcome.json()["output_tail"] == f"grüße\n{tmp_path}\n"


async def test_a_worker_that_stood_still_loses_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event loop comes to read only when the command has long ended."""

    async def read_late(process: subprocess.Popen[bytes], tail: Tail) -> None:
        await asyncio.to_thread(process.wait)
        await asyncio.sleep(0.1)
        await read_at_once(process, tail)

    read_at_once = exec_process._read
    monkeypatch.setattr(exec_process, "_read", read_late)
    monkeypatch.setattr(exec_process, "LAST_OUTPUT_S", 0.0)
    monkeypatch.setattr(exec_process, "AFTER_THE_END_S", 30.0)
    assert (await executed({"argv": ["echo", "all of it"]})).json()["output_tail"] == "all of it\n"


async def test_any_other_end_is_a_failure_that_is_retried_and_shows_the_last_output() -> None:
    failed = await executed({"argv": ["sh", "-c", "echo what went wrong; exit 3"]})
    assert not failed.succeeded
    assert not failed.not_retryable
    assert "exit code 3; last output: what went wrong" in failed.error
    assert "ended by SIGKILL; no output" in (await executed({"argv": ["sh", "-c", "kill -9 $$"]})).error
    assert "cannot be started: no-such-program" in (await executed({"argv": ["no-such-program"]})).error
    assert "cannot be started: /etc/passwd: Not executable" in (await executed({"argv": ["/etc/passwd"]})).error
    assert "cannot be started: /no/such" in (await executed({"argv": ["ls"], "cwd": "/no/such"})).error


async def test_t23_the_time_limit_ends_the_whole_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >>{pids}; (sleep 600 & echo $! >>{pids}; wait) & echo $$ >>{pids}; wait"
    await stopped_in_time(["sh", "-c", script], pids, 3)
    await eventually(lambda: not [pid for pid in pids.read_text().split() if _lives(pid)])


async def test_t23_a_group_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.exec_process.TERM_GRACE_S", 0.3)
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 600 & echo $! >{pids}; wait; wait"
    outcome = await stopped_in_time(["sh", "-c", script], pids, 1)
    assert not outcome.succeeded
    await eventually(lambda: not _lives(pids.read_text().strip()))


async def test_a_cancelled_run_ends_its_group_first(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    argv = ["sh", "-c", f"trap 'echo cleaned up >>{tmp_path}/cleaned; exit' TERM; sleep 600 & echo $! >{pids}; wait"]
    task = asyncio.ensure_future(run_command(argv, env=ENV, cwd="/", stdin=b"", timeout_s=None, tail_bytes=100))
    await eventually(lambda: pids.exists() and pids.read_text().strip())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "cleaned").exists()
    await eventually(lambda: not _lives(pids.read_text().strip()))


async def test_what_a_command_leaves_in_the_background_does_not_outlive_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    began_s = time.monotonic()
    outcome = await executed({"argv": ["sh", "-c", f"sleep 600 & echo $! >{pids}; echo done"]})
    assert outcome.json()["output_tail"] == "done\n"
    assert time.monotonic() - began_s < 30
    await eventually(lambda: not _lives(pids.read_text().strip()))


@pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="util-linux' setpriv is not here, which binds commands to us"
)
async def test_a_command_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import asyncio; from tools.exec_process import run_command; asyncio.run(run_command("
        f"['sh', '-c', 'echo $$ >{pids}; exec sleep 600'], "
        f"env={ENV!r}, cwd='/', stdin=b'', timeout_s=None, tail_bytes=9))"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], env=environment())
    try:
        pid = await eventually(lambda: pids.exists() and pids.read_text().strip())
    finally:
        worker.kill()
        worker.wait()
    await eventually(lambda: not _lives(pid))


async def test_a_large_tail_of_control_characters_still_fits_into_a_result() -> None:
    outcome = await executed({"argv": ["head", "-c", "300000", "/dev/zero"]}, tail_bytes=10_000_000)
    assert outcome.succeeded
    assert len(outcome.result) <= 262_144
    assert json.loads(outcome.result)["output_bytes"] == 300_000


def test_a_tail_keeps_the_last_bytes_however_they_come() -> None:
    for chunks in ([b"abcdefgh"], [b"abc", b"def", b"gh"], [bytes([c]) for c in b"abcdefgh"], [b"", b"abcdefgh", b""]):
        tail = Tail(3)
        for chunk in chunks:
            tail.add(chunk)
        assert (tail.read(), tail.total) == (b"fgh", 8)


def _lives(pid: str) -> bool:
    """Whether a process is there and is not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
