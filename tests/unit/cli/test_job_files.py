"""Jobs from files and options: strict keys, types named, options before the file."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2

from tools.cli.exits import ExitCode, Failure
from tools.cli.job_file import OUTPUT_ONLY, read_job
from tools.cli.job_options import changed_in_part, fill

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
mode = "all"
grace = "30s"
max_runs = 24
window = "2d"
order = "newest"
"""

UNION = """
name = "union"
handler = "report"
overlap = "buffer-all"
max_buffered = 20

[schedule]
at = [2026-12-31T23:59:59Z, "2027-01-01T00:00:00Z"]
every = [{ elapsed = "1h30m" }, { weeks = 2, anchor = 2026-07-06T09:00:00+02:00 }, { months = 1 }]
cron = ["0 2 * * *"]
zone = "Europe/Berlin"
windows = ["nights"]
max_runs = 1000
jitter = "5m"

[schedule.exclude]
dates = ["2026-12-24/2027-01-02", "*-05-01"]
cron = ["* 13 * * *"]
calendars = ["holidays"]
"""


def test_a_toml_file_describes_a_job(tmp_path: Path) -> None:
    job = job_of(tmp_path, WHOLE)
    assert (job.name, job.handler, job.overlap) == ("nightly", "report", job_pb2.OVERLAP_POLICY_ALLOW)
    assert (job.payload, job.payload_type) == (b'{"day":"yesterday"}', "application/json")
    assert list(job.schedule.cron) == ["0 2 * * *", "0 14 * * sun"]
    assert job.schedule.start.ToJsonString() == "2026-06-30T22:00:00Z"
    assert job.schedule.gap == job_pb2.GAP_RULE_SKIP
    assert (job.retry.max_attempts, job.retry.first_delay.ToMilliseconds()) == (2, 1500)
    assert job.catch_up == job_pb2.CatchUpPolicy(
        mode=job_pb2.CATCH_UP_MODE_ALL,
        grace=Duration(seconds=30),
        max_runs=24,
        window=Duration(seconds=172_800),
        order=job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
    )
    assert job.start_to_close_timeout.seconds == 90
    assert dict(job.labels) == {"team": "shop"}


def test_a_file_takes_every_part_of_the_schedule_language(tmp_path: Path) -> None:
    job = job_of(tmp_path, UNION)
    assert (job.overlap, job.max_buffered) == (job_pb2.OVERLAP_POLICY_BUFFER_ALL, 20)
    when = job.schedule
    assert [at.ToJsonString() for at in when.at] == ["2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"]
    assert [(each.WhichOneof("period"), each.elapsed.seconds, each.weeks, each.months) for each in when.every] == [
        ("elapsed", 5400, 0, 0),
        ("weeks", 0, 2, 0),
        ("months", 0, 0, 1),
    ]
    assert when.every[1].anchor.ToJsonString() == "2026-07-06T07:00:00Z"
    assert (list(when.windows), when.max_runs, when.jitter.seconds) == (["nights"], 1000, 300)
    exclude = when.exclude
    assert (list(exclude.dates), list(exclude.cron)) == (["2026-12-24/2027-01-02", "*-05-01"], ["* 13 * * *"])
    assert list(exclude.calendars) == ["holidays"]


def test_what_job_get_prints_can_be_handed_in_again_without_what_is_the_servers(tmp_path: Path) -> None:
    from google.protobuf import json_format

    job = job_of(tmp_path, WHOLE)
    shown = job_pb2.Job()
    shown.CopyFrom(job)
    shown.state, shown.version, shown.etag, shown.job_id = job_pb2.JOB_STATE_PAUSED, 4, "e", "id"
    shown.next_occurrence.FromJsonString("2026-07-01T00:00:00Z")
    shown.next_due.FromJsonString("2026-07-01T00:03:00Z")
    shown.jitter_offset.FromSeconds(180)
    again = job_of(tmp_path, json_format.MessageToJson(shown), "json")
    job.etag = "e"
    assert again == job


def test_nothing_that_is_the_servers_is_taken_from_a_file() -> None:
    contract = (Path(__file__).parents[3] / "proto/tidewheel/v1/job.proto").read_text(encoding="utf-8")
    message = contract.split("message Job {")[1].split("\n}\n")[0]
    head, tail = message.split("// Output only, from here on.")
    told = re.findall(r"// Output only\..*\n  \S+ (\w+) = ", head) + re.findall(r"^  \S+ (\w+) = ", tail, re.MULTILINE)
    assert set(told) - {"etag"} == OUTPUT_ONLY


@pytest.mark.parametrize(
    ("text", "path", "nearest"),
    [
        ('name = "x"\nretry_polcy = {}', "retry_polcy", "retry"),
        ("[retry]\nmax_atempts = 3", "retry.max_atempts", "max_attempts"),
        ("[schedule]\ncrom = []", "schedule.crom", "cron"),
        ('payload_txt = "x"', "payload_txt", "payload_text"),
        ("[catch_up]\ngrase = '1s'", "catch_up.grase", "grace"),
        ("[schedule]\nevery = [{ elapsed = '1s' }, { day = 1 }]", "schedule.every[1].day", "days"),
        ("[schedule.exclude]\ndate = []", "schedule.exclude.date", "dates"),
    ],
)
def test_a_misspelt_key_is_refused_with_its_path(tmp_path: Path, text: str, path: str, nearest: str) -> None:
    line = refused(tmp_path, text)
    assert f"unknown field {path} (did you mean {nearest}?)" in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("overlap = 'sometimes'", "overlap must be one of skip, allow, buffer-one, buffer-all, cancel-other, not"),
        ("[schedule]\nat = [2026-07-01T00:00:00]", "schedule.at[0] has no offset"),
        ("[schedule]\nat = 2026-07-01T00:00:00Z", "schedule.at must be a list"),
        ("[schedule]\ncron = '* * * * *'", 'schedule.cron must be a list (write ["* * * * *"])'),
        ("[schedule]\nevery = [{ days = 1, weeks = 1 }]", "schedule: "),
        ("[schedule]\nevery = ['1h']", "schedule.every[0] must be a table"),
        ("[schedule]\njitter = 5", "schedule.jitter must be a length of time"),
        ("[catch_up]\norder = 'backwards'", "catch_up.order must be one of oldest, newest, not 'backwards'"),
        ("payload = 'not base64!'", "payload must be base64"),
        ("payload = ''\npayload_text = 'x'", "only one of payload and payload_text"),
        ("handler = 5", "handler: "),
        ("[retry]\nmax_attempts = 'many'", "retry: "),
        ("[retry]\nfirst_delay = 'soon'", "retry.first_delay: 'soon' is not a length"),
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
    paths = fill(job, {"every": ["10s"], "handler": "other", "payload": "text", "retry_attempts": 7}, NOW)
    assert paths == ["handler", "payload", "payload_type", "retry", "schedule"]
    assert (job.handler, job.schedule.every[0].elapsed.seconds, list(job.schedule.cron)) == ("other", 10, [])
    assert (job.schedule.zone, job.schedule.gap) == ("Europe/Berlin", job_pb2.GAP_RULE_SKIP)
    assert (job.payload, job.payload_type) == (b"text", "text/plain; charset=utf-8")
    assert (job.retry.max_attempts, job.retry.first_delay.ToMilliseconds()) == (7, 1500)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"zone": "Europe/Berlin"}, "the schedule needs a time (--cron, --at, --every"),
        ({"cron": [""]}, "the schedule needs a time"),
        ({"at": ["2026-07-01T00:00:00"]}, "--at: '2026-07-01T00:00:00' has no offset"),
        ({"every": ["1d"]}, "--every: '1d': a day is not always 24 hours (--every-days keeps the wall time; --every"),
        ({"every_days": [2**31]}, "--every-days: 2147483648 is out of any range"),
        ({"cron": ["* * * * *"], "max_runs": -(2**40)}, "--max-runs: -1099511627776 is out of any range"),
        ({"max_buffered": 2**31}, "--max-buffered: 2147483648 is out of any range"),
        ({"retry_attempts": 2**31}, "--retry-attempts: 2147483648 is out of any range"),
        ({"catch_up_max": 2**31}, "--catch-up-max: 2147483648 is out of any range"),
        ({"cron": ["* * * * *"], "jitter": "5"}, "--jitter: '5' is not a length"),
        ({"cron": ["* * * * *"], "gap": "never"}, "--gap: must be one of end, shift, skip"),
        (
            {"overlap": "maybe"},
            "--overlap: must be one of skip, allow, buffer-one, buffer-all, cancel-other, not 'maybe'",
        ),
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


def test_at_takes_relative_instants() -> None:
    job = job_pb2.Job()
    fill(job, {"at": ["in 5m", "in 1h"]}, NOW)
    assert [at.ToJsonString() for at in job.schedule.at] == ["2026-06-03T12:05:00Z", "2026-06-03T13:00:00Z"]


def test_every_time_that_is_given_joins_the_schedule() -> None:
    job = job_pb2.Job()
    given = {
        "cron": ["0 3 * * *", "@hourly"],
        "at": ["2026-07-01T00:00:00Z"],
        "every": ["90m", "10s"],
        "every_days": [2],
        "every_weeks": [1, 3],
        "every_months": [6],
        "anchor": "2026-06-01T09:00:00Z",
    }
    assert fill(job, given, NOW) == ["schedule"]
    assert job.schedule == job_pb2.Schedule(
        cron=["0 3 * * *", "@hourly"],
        at=[Timestamp(seconds=1_782_864_000)],
        every=[
            job_pb2.Interval(elapsed=Duration(seconds=5400)),
            job_pb2.Interval(elapsed=Duration(seconds=10)),
            job_pb2.Interval(days=2),
            job_pb2.Interval(weeks=1),
            job_pb2.Interval(weeks=3),
            job_pb2.Interval(months=6),
        ],
        anchor=Timestamp(seconds=1_780_304_400),
    )


def test_what_bounds_thins_and_spreads_a_schedule_goes_over_what_it_has() -> None:
    job = job_pb2.Job()
    fill(job, {"cron": ["0 3 * * *"], "zone": "Asia/Tokyo", "jitter": "5m", "exclude_date": ["*-12-25"]}, NOW)
    given = {
        "start": "2026-07-01T00:00:00Z",
        "end": "2026-08-01T00:00:00Z",
        "max_runs": 7,
        "exclude_date": ["2026-07-04", "2026-07-14/2026-07-16"],
        "exclude_cron": ["* 13 * * *"],
        "exclude_calendar": ["holidays"],
        "window": ["nights", "backups"],
        "gap": "shift",
        "repeat": "both",
    }
    assert fill(job, given, NOW) == ["schedule"]
    when = job.schedule
    assert (list(when.cron), when.zone, when.jitter.seconds, when.max_runs) == (["0 3 * * *"], "Asia/Tokyo", 300, 7)
    assert (when.gap, when.repeat) == (job_pb2.GAP_RULE_SHIFT, job_pb2.REPEAT_RULE_BOTH)
    assert list(when.exclude.dates) == ["2026-07-04", "2026-07-14/2026-07-16"]
    assert (list(when.exclude.cron), list(when.exclude.calendars)) == (["* 13 * * *"], ["holidays"])
    assert list(when.windows) == ["nights", "backups"]
    assert (when.start.ToJsonString(), when.end.ToJsonString()) == ("2026-07-01T00:00:00Z", "2026-08-01T00:00:00Z")


def test_an_empty_text_takes_away_what_was_there() -> None:
    job = job_pb2.Job()
    full = {"exclude_date": ["*-12-25"], "exclude_calendar": ["holidays"], "window": ["nights"]}
    fill(job, {"cron": ["0 3 * * *"], "end": "in 9h", "zone": "Asia/Tokyo", "label": ["a=b"], **full}, NOW)
    fill(job, {"exclude_date": [""], "exclude_calendar": [""], "window": [""], "end": "", "zone": ""}, NOW)
    assert job.schedule == job_pb2.Schedule(cron=["0 3 * * *"])


@pytest.mark.parametrize(
    ("given", "overlap"),
    [
        ("skip", job_pb2.OVERLAP_POLICY_SKIP),
        ("allow", job_pb2.OVERLAP_POLICY_ALLOW),
        ("buffer-one", job_pb2.OVERLAP_POLICY_BUFFER_ONE),
        ("buffer_all", job_pb2.OVERLAP_POLICY_BUFFER_ALL),
        ("Cancel-Other", job_pb2.OVERLAP_POLICY_CANCEL_OTHER),
    ],
)
def test_every_overlap_policy_has_its_word(given: str, overlap: int) -> None:
    job = job_pb2.Job()
    assert fill(job, {"overlap": given, "max_buffered": 5}, NOW) == ["max_buffered", "overlap"]
    assert (job.overlap, job.max_buffered) == (overlap, 5)


def test_every_part_of_the_catch_up_policy_is_an_option() -> None:
    job = job_pb2.Job()
    given = {"catch_up": "all", "grace": "30s", "catch_up_max": 9, "catch_up_window": "12h", "catch_up_order": "newest"}
    assert fill(job, given, NOW) == ["catch_up"]
    assert job.catch_up == job_pb2.CatchUpPolicy(
        mode=job_pb2.CATCH_UP_MODE_ALL,
        grace=Duration(seconds=30),
        max_runs=9,
        window=Duration(seconds=43_200),
        order=job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
    )


def test_only_what_options_change_in_part_needs_the_present_job() -> None:
    assert changed_in_part({"handler": "x", "overlap": "skip", "label": ["a=b"]}) == []
    assert changed_in_part({"jitter": "5m", "catch_up_max": 3}) == ["schedule", "catch_up"]
    assert changed_in_part({"retry_jitter": 0.1}) == ["retry"]
