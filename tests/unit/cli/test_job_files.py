"""Jobs from files and options: strict keys, types named, options before the file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tidewheel.v1 import job_pb2

from tools.cli.exits import ExitCode, Failure
from tools.cli.job_file import read_job
from tools.cli.job_options import fill

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)


def job_of(tmp_path: Path, text: str, ending: str = "toml") -> job_pb2.Job:
    file = tmp_path / f"job.{ending}"
    file.write_text(text, encoding="utf-8")
    return read_job(file)


def refused(tmp_path: Path, text: str, ending: str = "toml") -> str:
    with pytest.raises(Failure) as caught:
        job_of(tmp_path, text, ending)
    assert caught.value.code is ExitCode.USAGE
    return caught.value.line()


WHOLE = """
name = "nightly"
handler = "report"
payload_json = { day = "yesterday" }
overlap = "allow"
start_to_close_timeout = "90s"
labels = { team = "shop" }

[schedule]
cron = ["0 2 * * *", "0 14 * * sun"]
zone = "Europe/Berlin"
start = 2026-07-01T00:00:00+02:00
gap = "skip"

[retry]
max_attempts = 2
first_delay = "1.5s"

[catch_up]
mode = "latest"
grace = "30s"
"""


def test_a_toml_file_describes_a_job(tmp_path: Path) -> None:
    job = job_of(tmp_path, WHOLE)
    assert (job.name, job.handler, job.overlap) == ("nightly", "report", job_pb2.OVERLAP_POLICY_ALLOW)
    assert (job.payload, job.payload_type) == (b'{"day":"yesterday"}', "application/json")
    assert list(job.schedule.cron) == ["0 2 * * *", "0 14 * * sun"]
    assert job.schedule.start.ToJsonString() == "2026-06-30T22:00:00Z"
    assert job.schedule.gap == job_pb2.GAP_RULE_SKIP
    assert (job.retry.max_attempts, job.retry.first_delay.ToMilliseconds()) == (2, 1500)
    assert job.catch_up.mode == job_pb2.CATCH_UP_MODE_LATEST
    assert job.start_to_close_timeout.seconds == 90
    assert dict(job.labels) == {"team": "shop"}


def test_what_job_get_prints_can_be_handed_in_again_without_what_is_the_servers(tmp_path: Path) -> None:
    from google.protobuf import json_format

    job = job_of(tmp_path, WHOLE)
    shown = job_pb2.Job()
    shown.CopyFrom(job)
    shown.state, shown.version, shown.etag, shown.job_id = job_pb2.JOB_STATE_PAUSED, 4, "e", "id"
    shown.next_occurrence.FromJsonString("2026-07-01T00:00:00Z")
    again = job_of(tmp_path, json_format.MessageToJson(shown), "json")
    job.etag = "e"
    assert again == job


@pytest.mark.parametrize(
    ("text", "path", "nearest"),
    [
        ('name = "x"\nretry_polcy = {}', "retry_polcy", "retry"),
        ("[retry]\nmax_atempts = 3", "retry.max_atempts", "max_attempts"),
        ("[schedule]\ncrom = []", "schedule.crom", "cron"),
        ('payload_txt = "x"', "payload_txt", "payload_text"),
        ("[catch_up]\ngrase = '1s'", "catch_up.grase", "grace"),
    ],
)
def test_a_misspelt_key_is_refused_with_its_path(tmp_path: Path, text: str, path: str, nearest: str) -> None:
    line = refused(tmp_path, text)
    assert f"unknown field {path} (did you mean {nearest}?)" in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("overlap = 'sometimes'", "overlap must be one of skip, allow, not 'sometimes'"),
        ("[schedule]\nat = 2026-07-01T00:00:00", "schedule.at has no offset"),
        ("payload = 'not base64!'", "payload must be base64"),
        ("payload = ''\npayload_text = 'x'", "only one of payload and payload_text"),
        ("handler = 5", "handler: "),
        ("[retry]\nmax_attempts = 'many'", "retry: "),
        ("[retry]\nfirst_delay = 'soon'", "retry: "),
        ("schedule = 5", "schedule must be a table"),
        ("name = ", "is not TOML"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_json_files_are_as_strict(tmp_path: Path) -> None:
    assert "the same key stands twice" in refused(tmp_path, '{"name": "a", "name": "b"}', "json")
    assert "unknown field schedule.crom" in refused(tmp_path, json.dumps({"schedule": {"crom": []}}), "json")
    assert "must be one job" in refused(tmp_path, "[]", "json")
    assert "ends with .json or .toml" in refused(tmp_path, "", "yaml")


def test_options_win_over_the_file_and_name_the_paths_they_touch(tmp_path: Path) -> None:
    job = job_of(tmp_path, WHOLE)
    paths = fill(job, {"every": "10s", "handler": "other", "payload": "text", "retry_attempts": 7}, NOW)
    assert paths == ["handler", "payload", "payload_type", "retry", "schedule"]
    assert (job.handler, job.schedule.every.seconds, list(job.schedule.cron)) == ("other", 10, [])
    assert (job.payload, job.payload_type) == (b"text", "text/plain; charset=utf-8")
    assert (job.retry.max_attempts, job.retry.first_delay.ToMilliseconds()) == (7, 1500)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"every": "10s", "cron": ["* * * * *"]}, "only one of --every and --cron"),
        ({"zone": "Europe/Berlin"}, "the schedule needs --cron, --every or --at"),
        ({"at": "2026-07-01T00:00:00"}, "--at: '2026-07-01T00:00:00' has no offset"),
        ({"cron": ["* * * * *"], "gap": "never"}, "--gap: must be one of end, shift, skip"),
        ({"overlap": "maybe"}, "--overlap: must be one of skip, allow"),
        ({"label": ["team"]}, "--label team: takes key=value"),
        ({"time_limit": "-1s"}, "--time-limit: '-1s' is not a length"),
        ({"payload": "x" * 262_145}, "job.payload: 262,145 bytes; at most 262,144"),
        ({"payload_file": Path("/none/such")}, "--payload-file: /none/such: No such file"),
        ({"payload_file": Path("/none/such"), "payload": ""}, "only one of --payload and --payload-file"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(Failure) as caught:
        fill(job_pb2.Job(), given, NOW)
    assert says in caught.value.line()


def test_a_payload_that_is_json_is_called_so() -> None:
    job = job_pb2.Job()
    fill(job, {"payload": '{"argv": ["ls"]}'}, NOW)
    assert job.payload_type == "application/json"


def test_at_takes_a_relative_instant() -> None:
    job = job_pb2.Job()
    fill(job, {"at": "in 5m"}, NOW)
    assert job.schedule.at.ToJsonString() == "2026-06-03T12:05:00Z"
