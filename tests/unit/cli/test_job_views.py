"""How jobs and runs are shown: a schedule on one readable line, what is next, when it is due, and what policies say."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, run_pb2

from tools.cli import job_views, run_views
from tools.cli.commands import Call, Output
from tools.cli.printing import Printer
from tools.cli.schedule_words import schedule_line
from tools.cli.words import name_of, word_of, words_of

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)


def at(text: str) -> Timestamp:
    stamp = Timestamp()
    stamp.FromJsonString(text)
    return stamp


def call(stream: io.StringIO) -> Call:
    return Call(None, "default", Output.TABLE, Printer(stream, terminal=False), NOW)  # type: ignore[arg-type]


def facts_of(job: job_pb2.Job) -> dict[str, str]:
    stream = io.StringIO()
    job_views.show_job(call(stream), job)
    return {name.strip(): value for name, _, value in (line.partition("  ") for line in stream.getvalue().splitlines())}


def shown(job: job_pb2.Job, fact: str) -> str:
    return facts_of(job).get(fact, "").strip()


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        (job_pb2.Schedule(cron=["0 3 * * *"]), "0 3 * * * in UTC"),
        (job_pb2.Schedule(cron=["0 3 * * *", "@hourly"], zone="Asia/Tokyo"), "0 3 * * * | @hourly in Asia/Tokyo"),
        (job_pb2.Schedule(every=[job_pb2.Interval(elapsed=Duration(seconds=5400))]), "every 1h30m"),
        (job_pb2.Schedule(every=[job_pb2.Interval(days=1)], zone="Asia/Tokyo"), "every day in Asia/Tokyo"),
        (job_pb2.Schedule(every=[job_pb2.Interval(days=14)]), "every 2 weeks in UTC"),
        (
            job_pb2.Schedule(
                cron=["0 3 * * *"],
                every=[
                    job_pb2.Interval(elapsed=Duration(seconds=10)),
                    job_pb2.Interval(weeks=2, anchor=at("2026-07-06T07:00:00Z")),
                    job_pb2.Interval(months=1),
                ],
                at=[at("2026-12-31T23:59:59Z")],
                zone="Europe/Berlin",
            ),
            "0 3 * * * | every 2 weeks from 2026-07-06 09:00 +02:00 | every month in Europe/Berlin | every 10s"
            " | at 2026-12-31T23:59:59Z",
        ),
        (
            job_pb2.Schedule(at=[at(f"2026-07-0{day}T00:00:00Z") for day in range(1, 6)]),
            "at 2026-07-01T00:00:00Z, 2026-07-02T00:00:00Z, 2026-07-03T00:00:00Z and 2 more",
        ),
        (
            job_pb2.Schedule(
                cron=["0 3 * * *"],
                start=at("2026-07-01T00:00:00Z"),
                end=at("2026-08-01T00:00:00Z"),
                exclude=job_pb2.Exclusions(dates=["2026-12-24", "*-05-01"], cron=["0 0 13 * *"], calendars=["off"]),
                windows=["nights", "backups"],
                max_runs=10,
                jitter=Duration(seconds=300),
                gap=job_pb2.GAP_RULE_SKIP,
                repeat=job_pb2.REPEAT_RULE_BOTH,
            ),
            "0 3 * * * in UTC from 2026-07-01T00:00:00Z until 2026-08-01T00:00:00Z; except 2026-12-24, *-05-01; "
            "except cron 0 0 13 * *; except days off of off; windows nights, backups; at most 10 runs; "
            "jitter up to 5m; gap skip; repeat both",
        ),
        (
            job_pb2.Schedule(cron=["@daily"], max_runs=1, gap=job_pb2.GAP_RULE_END, jitter=Duration()),
            "@daily in UTC; at most 1 run",
        ),
    ],
)
def test_a_schedule_is_one_readable_line(schedule: job_pb2.Schedule, line: str) -> None:
    assert schedule_line(schedule) == line


def test_a_job_without_a_schedule_says_so() -> None:
    assert shown(job_pb2.Job(name="x"), "schedule") == "when triggered"


def test_a_due_time_is_shown_where_it_is_not_the_nominal_one() -> None:
    job = job_pb2.Job(name="x", schedule=job_pb2.Schedule(cron=["0 3 * * *"]))
    job.next_occurrence.CopyFrom(at("2026-06-04T03:00:00Z"))
    job.next_due.CopyFrom(at("2026-06-04T03:00:00Z"))
    assert "due" not in facts_of(job)
    job.next_due.CopyFrom(at("2026-06-04T03:02:05.25Z"))
    job.jitter_offset.FromMilliseconds(125_250)
    assert shown(job, "due") == "2026-06-04T03:02:05.25Z (2m5s later: jitter; in 15h2m)"
    job.next_due.CopyFrom(at("2026-06-04T04:02:05.25Z"))
    assert shown(job, "due") == "2026-06-04T04:02:05.25Z (1h2m5s later: of this jitter 2m5s; in 16h2m)"
    job.ClearField("jitter_offset")
    assert shown(job, "due") == "2026-06-04T04:02:05.25Z (1h2m5s later: put off by a window; in 16h2m)"


def test_policies_are_shown_in_the_words_of_their_options() -> None:
    job = job_pb2.Job(name="x", overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL, max_buffered=20)
    assert shown(job, "overlap") == "buffer-all, at most 20 wait"
    job.overlap = job_pb2.OVERLAP_POLICY_CANCEL_OTHER
    assert shown(job, "overlap") == "cancel-other"
    policy = job.catch_up
    policy.mode, policy.max_runs, policy.order = (
        job_pb2.CATCH_UP_MODE_ALL,
        6,
        job_pb2.CATCH_UP_ORDER_NEWEST_FIRST,
    )
    policy.window.FromSeconds(86_400)
    policy.grace.FromSeconds(60)
    assert shown(job, "catch-up") == "all, at most 6, newest first, window 1d, grace 1m"
    policy.mode = job_pb2.CATCH_UP_MODE_SKIP
    assert shown(job, "catch-up") == "skip, grace 1m"


def test_a_list_cuts_a_long_schedule_only_where_people_look() -> None:
    job = job_pb2.Job(name="x", schedule=job_pb2.Schedule(cron=["0 3 * * *"] * 9))
    whole = schedule_line(job.schedule)
    assert job_views.row(job, whole=True)[2] == whole
    assert len(job_views.row(job, whole=False)[2]) == job_views.LONGEST_SCHEDULE < len(whole)


def test_a_run_shows_the_operation_that_made_it_and_that_it_waits_its_turn() -> None:
    stream = io.StringIO()
    run = run_pb2.Run(run_id="r", cause=run_pb2.RUN_CAUSE_BACKFILL, operation_id="op-1", buffered=True)
    run_views.show_run(call(stream), run)
    words = stream.getvalue().split()
    assert {"backfill", "op-1", "buffered"} <= set(words)


def test_a_word_stands_for_each_value_of_an_enum() -> None:
    overlap = job_pb2.OverlapPolicy.DESCRIPTOR
    assert words_of(overlap) == ["skip", "allow", "buffer-one", "buffer-all", "cancel-other"]
    assert [name_of(overlap, word) for word in words_of(overlap)] == list(job_pb2.OverlapPolicy.keys())[1:]
    assert (word_of(overlap, 0), word_of(overlap, 99)) == ("", "99")
    assert words_of(job_pb2.CatchUpOrder.DESCRIPTOR) == ["oldest", "newest"]
    assert name_of(job_pb2.CatchUpOrder.DESCRIPTOR, "OLDEST_FIRST") == "CATCH_UP_ORDER_OLDEST_FIRST"
    assert words_of(job_pb2.RepeatRule.DESCRIPTOR) == ["first", "second", "both"]
    assert name_of(overlap, "unspecified") is None
