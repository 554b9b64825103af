"""The command line against a whole system: what it does, prints and returns."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

from tests.support.command import Run, environment, tidewheel, until
from tools.fleet import Fleet


def test_a_job_is_registered_read_steered_and_deleted(run: Run) -> None:
    made = run("job", "create", "life", "--handler", "exec", "--cron", "0 3 * * *", "--payload", '{"argv": ["true"]}')
    assert made.code == 0, made.err
    assert made.out.splitlines()[0].split() == ["created", "life"]
    shown = run("job", "get", "life").out
    assert "0 3 * * * in UTC" in shown
    assert '{"argv": ["true"]}' in shown

    changed = run("job", "update", "life", "--every", "1h", "--description", "what it does", "--note", "why")
    assert changed.code == 0, changed.err
    document = run("job", "get", "life", "-o", "json").document
    assert (
        [one["elapsed"] for one in document["schedule"]["every"]],
        document["version"],
        document["description"],
    ) == (
        ["3600s"],
        "2",
        "what it does",
    )

    assert run("job", "pause", "life", "-o", "json").document["state"] == "JOB_STATE_PAUSED"
    assert "next      none" in run("job", "get", "life").out.replace("next         none", "next      none")
    assert run("job", "resume", "life", "-o", "json").document["state"] == "JOB_STATE_ACTIVE"
    stale = run("job", "delete", "life", "--etag", document["etag"])
    assert stale.code == 1
    assert "read the job again" in stale.complaint
    assert run("job", "delete", "life").code == 0
    gone = run("job", "get", "life")
    assert gone.code == 3
    assert "job 'life' not found" in gone.complaint
    assert run("job", "get", "--id", document["jobId"], "-o", "json").document["state"] == "JOB_STATE_DELETED"


def test_a_run_is_triggered_runs_a_command_and_is_shown_with_its_attempts(run: Run) -> None:
    payload = json.dumps({"argv": ["sh", "-c", "echo hello from $TIDEWHEEL_JOB"]})
    assert run("job", "create", "hello", "--handler", "exec", "--payload", payload).code == 0
    run_id = run("job", "trigger", "hello", "-o", "json").document["runId"]
    until(lambda: run("run", "get", run_id, "-o", "json").document["state"] == "RUN_STATE_SUCCEEDED")
    shown = run("run", "get", run_id).out
    assert "hello from hello" in shown
    assert "succeeded" in shown
    listed = run("run", "list", "hello", "-o", "json").document
    assert [one["runId"] for one in listed["runs"]] == [run_id]
    attempts = run("run", "attempts", run_id, "-o", "json").document["attempts"]
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [(1, "ATTEMPT_OUTCOME_SUCCEEDED")]
    assert "succeeded" in run("run", "attempts", run_id).out
    refused = run("run", "cancel", run_id)
    assert refused.code == 1
    assert refused.complaint
    assert run("run", "get", "00000000-0000-0000-0000-000000000000").code == 3
    assert run("run", "list", "hello", "--since", "1h ago", "--until", "now", "--state", "failed").code == 0


def test_a_command_that_fails_shows_its_last_output_and_a_running_one_can_be_cancelled(
    run: Run, tmp_path: Path
) -> None:
    failing = json.dumps({"argv": ["sh", "-c", "echo the reason; exit 7"]})
    assert run("job", "create", "fails", "--handler", "exec", "--payload", failing, "--retry-attempts", "1").code == 0
    run_id = run("job", "trigger", "fails", "-o", "json").document["runId"]
    until(lambda: run("run", "get", run_id, "-o", "json").document["state"] == "RUN_STATE_DEAD")
    assert "exit code 7; last output: the reason" in run("run", "get", run_id).out

    pids = tmp_path / "pids"
    endless = json.dumps({"argv": ["sh", "-c", f"sleep 600 & echo $! >{pids}; wait"]})
    assert run("job", "create", "endless", "--handler", "exec", "--payload", endless).code == 0
    run_id = run("job", "trigger", "endless", "-o", "json").document["runId"]
    pid = until(lambda: pids.exists() and pids.read_text().strip())
    assert run("run", "cancel", run_id, "--note", "enough").code == 0
    until(lambda: run("run", "get", run_id, "-o", "json").document["state"] == "RUN_STATE_CANCELED")
    until(lambda: not _lives(pid))


@pytest.mark.parametrize(
    ("zone", "line"),
    [("America/Phoenix", "48 17 * * 3"), ("America/Santiago", "37 20 2 5 *")],
    ids=["phoenix", "santiago"],
)
def test_b133_the_next_occurrence_is_the_servers_own_in_utc_and_in_the_jobs_zone(
    run: Run, zone: str, line: str
) -> None:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    name = zone.partition("/")[2].lower()
    made = run("job", "create", name, "--handler", "exec", "--cron", line, "--zone", zone)
    assert made.code == 0, made.err
    stored = run("job", "get", name, "-o", "json").document["nextOccurrence"]
    local = datetime.fromisoformat(stored).astimezone(ZoneInfo(zone))
    minute, hour = line.split()[:2]
    assert (local.minute, local.hour) == (int(minute), int(hour))
    wall = local.strftime("%Y-%m-%d %H:%M ") + f"{local:%z}"[:3] + ":" + f"{local:%z}"[3:]
    for shown in (made.out, run("job", "get", name).out, run("job", "list", "--prefix", name).out):
        assert stored in shown
        assert wall in shown


def test_bad_input_is_exit_code_2_with_the_field_named_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    wrong = [
        (["--cron", "61 * * * *"], "job.schedule.cron[0]"),
        (["--cron", "0 0 31 2 *"], "job.schedule.cron[0]"),
        (["--cron", "* * * * *", "--zone", "Mars/Olympus"], "job.schedule.zone"),
        (["--every", "1ms"], "job.schedule.every"),
        (["--queue", "a b"], "job.queue"),
    ]
    for options, field in wrong:
        done = run("job", "create", "wrong", "--handler", "exec", *options)
        assert done.code == 2, (options, done)
        assert field in done.complaint
    assert run("job", "create", "a/b", "--handler", "exec").code == 2
    misspelt = tmp_path / "job.toml"
    misspelt.write_text(
        'handler = "exec"\n[schedule]\ncron = ["0 3 * * *"]\n[retry]\nmax_atempts = 3\n', encoding="utf-8"
    )
    done = run("job", "create", "wrong", "--file", str(misspelt))
    assert done.code == 2
    assert "unknown field retry.max_atempts (did you mean max_attempts?)" in done.complaint
    assert run("job", "get", "wrong").code == 3


def test_a_job_comes_from_a_file_and_what_is_printed_can_be_handed_in_again(run: Run, tmp_path: Path) -> None:
    first = tmp_path / "job.toml"
    first.write_text(
        'name = "filed"\nhandler = "exec"\npayload_json = { argv = ["true"] }\noverlap = "allow"\n'
        '[schedule]\ncron = ["0 3 * * *"]\nzone = "Europe/Berlin"\n',
        encoding="utf-8",
    )
    assert run("job", "create", "--file", str(first)).code == 0
    printed = run("job", "get", "filed", "-o", "json")
    again = tmp_path / "job.json"
    again.write_text(printed.out, encoding="utf-8")
    assert run("job", "create", "filed-again", "--file", str(again)).code == 0
    one, other = printed.document, run("job", "get", "filed-again", "-o", "json").document
    for field in ("handler", "payload", "payloadType", "overlap", "schedule", "retry"):
        assert one[field] == other[field]
    stale = run("job", "update", "--file", str(again), "--description", "x")
    assert stale.code == 0, stale.err
    assert run("job", "update", "--file", str(again), "--description", "y").code == 1


def test_a_request_id_makes_a_call_repeatable(run: Run) -> None:
    create = ["job", "create", "repeated", "--handler", "exec", "--request-id", "once-1", "-o", "json"]
    assert run(*create).document["jobId"] == run(*create).document["jobId"]
    other = run(*create, "--queue", "other")
    assert other.code == 1
    taken = run("job", "create", "repeated", "--handler", "exec")
    assert taken.code == 1
    assert taken.complaint


def test_t12_what_others_wrote_commands_no_terminal(run: Run, fleet: Fleet) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07harmless\x9b31m\u202e"
    made = run("job", "create", "hostile", "--handler", "exec", "--payload", hostile)
    assert made.code == 0, made.err
    outputs = [made.out, run("job", "get", "hostile").out, run("job", "get", "hostile", "-o", "json").out]
    outputs.append(run("job", "get", "\x1b[2Jnot there").err)
    outputs.append(on_a_terminal(["job", "get", "hostile"], fleet.addresses))
    assert "harmless" in outputs[1]
    for text in outputs:
        assert not {"\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e"} & {
            text[i : i + n] for i in range(len(text)) for n in (1, 3, 4)
        }


def test_lists_fit_a_small_terminal(run: Run, fleet: Fleet) -> None:
    run(
        "job", "create", "a-job-with-quite-a-long-name-for-a-small-terminal", "--handler", "exec", "--cron", "0 3 * * *"
    )
    for words in (["job", "list"], ["shard", "list"], ["dispatcher", "list"]):
        shown = on_a_terminal(words, fleet.addresses, columns=60)
        plain = [_without_styles(line) for line in shown.splitlines()]
        assert all(len(line) <= 60 for line in plain), shown
        assert len(plain) > 1


def test_operators_see_the_shards_the_dispatchers_and_the_state_of_the_cluster(run: Run) -> None:
    # A dispatcher that a busy machine holds up may be missed for a moment.
    until(lambda: _counted(run("status", "-o", "json").document) == (64, 64, 1))
    until(lambda: "64 owned, 0 without owner, of 64" in run("status").out)
    shards = run("shard", "list", "-o", "json").document["shards"]
    assert [shard.get("shard", 0) for shard in shards] == list(range(64))
    assert len(run("shard", "list").out.splitlines()) == 65
    shown = run("shard", "show", "3").out
    assert "dispatcher-" in shown
    assert "open" in shown
    dispatchers = run("dispatcher", "list", "-o", "json").document["dispatchers"]
    assert [one["shards"] for one in dispatchers] == [64]
    beyond = run("shard", "show", "64")
    assert beyond.code in (2, 3)
    assert beyond.complaint


def _counted(status: dict[str, int]) -> tuple[int, int, int]:
    return status["shardCount"], status.get("ownedShards", 0), status.get("dispatchers", 0)


CRONTAB = """
MAILTO=ops@shop.example
CRON_TZ=Europe/Berlin
COLOUR=blue
# Every night
15 2 * * *  backup --keep 14
@every 2s   sh -c 'echo tick >>{log}'
0 8 * * 1   mail -s "numbers \\% of the week" boss%good morning%
"""


def test_a_crontab_is_imported_once_and_a_second_time_nothing_changes(run: Run, tmp_path: Path) -> None:
    crontab, log = tmp_path / "crontab", tmp_path / "log"
    crontab.write_text(CRONTAB.format(log=log), encoding="utf-8")
    first = run("import", "crontab", str(crontab), "--prefix", "web1-", "-o", "json").document
    assert [line["outcome"] for line in first["lines"]] == ["created"] * 3
    names = [line["job"] for line in first["lines"]]
    job = run("job", "get", names[0], "-o", "json").document
    assert (job["schedule"]["cron"], job["schedule"]["zone"]) == (["15 2 * * *"], "Europe/Berlin")
    assert job["description"] == "Every night"
    until(lambda: log.exists() and log.read_text().count("tick") >= 2)

    second = run("import", "crontab", str(crontab), "--prefix", "web1-")
    assert second.code == 0
    assert second.out.splitlines()[-1] == "3 unchanged"
    assert "not kept: output is not mailed to ops@shop.example" in second.out

    crontab.write_text(CRONTAB.format(log=log).replace("15 2", "20 2") + "@reboot start\n", encoding="utf-8")
    differs = run("import", "crontab", str(crontab), "--prefix", "web1-")
    assert differs.code == 1
    assert "differs in schedule; --update changes it" in differs.out
    updated = run("import", "crontab", str(crontab), "--prefix", "web1-", "--update", "-o", "json")
    assert updated.code == 1
    assert [line["outcome"] for line in json.loads(updated.out)["lines"]] == [
        "updated",
        "unchanged",
        "unchanged",
        "failed",
    ]
    assert run("job", "get", names[0], "-o", "json").document["schedule"]["cron"] == ["20 2 * * *"]
    for name in names:
        assert run("job", "delete", name).code == 0


def test_a_system_crontab_is_read_from_standard_input(run: Run) -> None:
    done = run(
        "import", "crontab", "-", "--system", "--prefix", "sys-", stdin="17 * * * * root run-parts /etc/cron.hourly\n"
    )
    assert done.code == 0, done.err
    assert "not kept: runs as the worker's own user, not as root" in done.out


def test_a_cluster_that_was_founded_otherwise_is_not_joined(fleet: Fleet) -> None:
    environ = {
        "TIDEWHEEL_DATABASE_URL": fleet.backing.database_url,
        "TIDEWHEEL_ETCD_ENDPOINTS": ",".join(fleet.backing.etcd_endpoints),
    }
    done = tidewheel("dispatcher", "--set", "cluster.shard_count=32", environ=environ)
    assert done.code == 2
    assert "shard_count" in done.err
    assert "Traceback" not in done.err


def on_a_terminal(words: list[str], address: str, columns: int = 80) -> str:
    """What the command writes when people look at it."""
    import fcntl
    import struct
    import subprocess
    import sys
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "tools.cli.main", *words]
    environ = environment({"TIDEWHEEL_ADDRESS": address, "TERM": "xterm", "COLUMNS": str(columns)})
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environ, cwd="/") as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 65_536)
            except OSError:  # nobody holds the other end any more
                break
            shown += data
        os.close(leader)
    assert process.returncode == 0, shown
    return shown.decode()


def _without_styles(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
