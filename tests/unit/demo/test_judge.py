"""The demo's judge finds what is planted: a loss, a double, an early start, an invented run; and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tidewheel.v1 import job_pb2

from tests.support.instants import us
from tools.demo.judge import Verdict, crash_cost, expectation, judge, outstanding, quantile_us
from tools.demo.oracle import occurrences
from tools.demo.pending import Pending
from tools.demo.run_log import RunLog, Start, read_start

BEGAN, END = "2026-06-03T12:00:00.4Z", "2026-06-03T12:00:40Z"
LATE_US = 12_000


def job(name: str, **when: object) -> job_pb2.Job:
    made = job_pb2.Job(name=name, schedule=job_pb2.Schedule(**when))  # type: ignore[arg-type]
    made.create_time.FromMicroseconds(us(BEGAN))
    return made


def every(name: str, seconds: int) -> job_pb2.Job:
    made = job(name)
    made.schedule.every.add().elapsed.FromSeconds(seconds)
    made.schedule.anchor.FromMicroseconds(us(BEGAN))
    return made


JOBS = [
    every("poll", 2),
    job("probe", cron=["*/4 * * * * *"], zone="UTC"),
    job("minute", cron=["* * * * *"], zone="Europe/Berlin"),
    job("nightly", cron=["15 2 * * *"], zone="Europe/Berlin"),
]


def start(name: str, scheduled_us: int, late_us: int = LATE_US) -> Start:
    return Start(name, "00000000-0000-0000-0000-000000000000", scheduled_us, scheduled_us + late_us, 1, "w-1-x", name)


def faultless() -> list[Start]:
    """What a perfect system does until a little after the window's end."""
    after_us = us(END) + 3_000_000
    return [start(one.name, at) for one in JOBS for at in occurrences(one.schedule, us(BEGAN), after_us)]


def judged(starts: list[Start]) -> Verdict:
    return judge([expectation(one, us(END), occurrences) for one in JOBS], starts)


def test_a_perfect_record_is_good() -> None:
    verdict = judged(faultless())
    assert verdict.good
    # 19 of every two seconds, 9 of every four; the minute's and the night's are outside of the window.
    assert verdict.expected == 19 + 9
    assert verdict.lateness_us[-1] == LATE_US


@pytest.mark.parametrize("index", range(28))
def test_each_planted_loss_is_found(index: int) -> None:
    starts = faultless()
    due = [one for one in starts if one.scheduled_us < us(END)]
    gone = due[index]
    verdict = judged([one for one in starts if one is not gone])
    assert verdict.lost == ((gone.job, gone.scheduled_us),)
    assert not verdict.good


def test_a_planted_double_is_found_also_as_another_attempt_and_after_the_window() -> None:
    starts = faultless()
    for again in (starts[3], replace(starts[4], attempt=2), max(starts, key=lambda one: one.scheduled_us)):
        verdict = judged([*starts, again])
        assert verdict.doubled == ((again.job, again.scheduled_us),)
        assert not verdict.good


def test_a_start_a_microsecond_early_is_found() -> None:
    starts = faultless()
    verdict = judged([replace(starts[0], started_us=starts[0].scheduled_us - 1), *starts[1:]])
    assert verdict.early == ((starts[0].job, starts[0].scheduled_us),)
    assert not verdict.good


def test_a_run_that_was_no_occurrence_is_found() -> None:
    for invented in (start("poll", us("2026-06-03T12:00:05Z")), start("nightly", us("2026-06-03T12:00:05Z"))):
        assert judged([*faultless(), invented]).invented == ((invented.job, invented.scheduled_us),)
    assert not judged([*faultless(), start("unknown", us("2026-06-03T12:00:05Z"))]).good


def test_a_line_whose_time_lies_outside_of_the_demo_is_expected_not_to_run() -> None:
    assert expectation(JOBS[3], us(END), occurrences).due_us == ()


def test_times_that_join_in_one_schedule_are_one_series() -> None:
    union = every("union", 10)
    union.schedule.cron.append("*/15 * * * * *")
    union.schedule.at.add().FromMicroseconds(us("2026-06-03T12:00:31Z"))
    found = occurrences(union.schedule, us("2026-06-03T12:00:10.4Z"), us("2026-06-03T12:00:31.5Z"))
    assert [at - us("2026-06-03T12:00:00Z") for at in found] == [
        15_000_000,
        20_400_000,
        30_000_000,
        30_400_000,
        31_000_000,
    ]


@pytest.mark.parametrize("name", ["windows", "max_runs", "jitter", "months"])
def test_a_schedule_that_cannot_be_reckoned_with_is_never_judged_by_half(name: str) -> None:
    schedule = job_pb2.Schedule(cron=["* * * * *"])
    if name == "windows":
        schedule.windows.append("nights")
    elif name == "max_runs":
        schedule.max_runs = 3
    elif name == "jitter":
        schedule.jitter.seconds = 3
    else:
        schedule.every.add(months=1)
    with pytest.raises(ValueError, match="cannot reckon"):
        occurrences(schedule, us(BEGAN), us(END))


def test_what_falls_due_after_the_window_may_run_and_need_not() -> None:
    assert judged([one for one in faultless() if one.scheduled_us < us(END)]).good


def test_an_occurrence_in_the_moment_of_registration_may_go_either_way() -> None:
    made = job("edge", cron=["* * * * * *"])
    made.create_time.FromMicroseconds(us("2026-06-03T12:00:01.00001Z"))
    owed = expectation(made, us("2026-06-03T12:00:03Z"), occurrences)
    assert owed.due_us == (us("2026-06-03T12:00:02Z"),)
    edge = start("edge", us("2026-06-03T12:00:01Z"))
    both = [edge, start("edge", us("2026-06-03T12:00:02Z"))]
    assert judge([owed], both).good
    assert judge([owed], both[1:]).good


def test_a_wrong_start_is_not_hidden_by_a_right_one_of_another_job() -> None:
    starts = faultless()
    moved = [replace(starts[0], job="probe"), *starts[1:]]
    verdict = judged(moved)
    assert verdict.lost
    assert verdict.invented


def test_outstanding_is_what_is_due_and_has_not_started() -> None:
    starts = faultless()
    owed = [expectation(one, us(END), occurrences) for one in JOBS]
    assert outstanding(owed, starts, us(END)) == []
    assert outstanding(owed, starts[1:], us(END)) == [(starts[0].job, starts[0].scheduled_us)]
    assert outstanding(owed, starts[1:], starts[0].scheduled_us) == []


def test_pending_follows_the_starts_and_looks_ahead_without_end() -> None:
    bounded = Pending(JOBS, horizon_us=us(END))
    assert len(bounded.before(us(END))) == 28
    bounded.settle(faultless())
    assert bounded.before(us(END)) == []
    endless = Pending(JOBS, horizon_us=None)
    hour_later = us("2026-06-03T13:00:00Z")
    assert len(endless.before(hour_later)) == 1799 + 899 + 59
    assert endless.next_words(hour_later) in ("probe in 0.0 s", "minute in 0.0 s")


def test_quantiles_are_values_that_occurred() -> None:
    assert quantile_us([], 0.5) == 0
    assert quantile_us([7], 0.99) == 7
    assert quantile_us(list(range(1, 101)), 0.5) == 50
    assert quantile_us(list(range(1, 101)), 0.99) == 99
    assert quantile_us(list(range(1, 101)), 1.0) == 100


def test_the_cost_of_a_crash_is_counted_on_the_shards_of_the_victim() -> None:
    crashed_us = us("2026-06-03T12:00:13Z")
    starts = [
        start("poll", crashed_us - 5_000_000, 900_000),
        start("poll", crashed_us + 200_000, 850_000),
        start("poll", crashed_us + 2_200_000),
        start("probe", crashed_us + 200_000, 5_000_000),
    ]
    cost = crash_cost(starts, lambda one: one.job == "poll", crashed_us, span_us=10_000_000, late_us=100_000)
    assert (cost.runs, cost.late_runs, cost.worst_us) == (2, 1, 850_000)


def test_a_line_of_the_log_is_read_to_the_microsecond() -> None:
    line = "shop-poll\trun-1\t2026-06-03T12:00:02.858459Z\t1780488002.870001999\t2\thost-17-ab\tpoll\n"
    read = read_start(line)
    assert (read.job, read.run_id, read.attempt, read.worker, read.task) == (
        "shop-poll",
        "run-1",
        2,
        "host-17-ab",
        "poll",
    )
    assert read.scheduled_us == us("2026-06-03T12:00:02.858459Z")
    assert read.late_us == 11_542
    with pytest.raises(ValueError, match="fields"):
        read_start("half a line")


def test_the_log_is_followed_and_an_unfinished_line_waits(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs.log")
    assert log.new() == []
    line = "a\tb\t2026-06-03T12:00:02Z\t1780488002.5\t1\tw\tt\n"
    with log.path.open("a") as file:
        file.write(line + line[:10])
        file.flush()
        assert len(log.new()) == 1
        assert log.new() == []
        file.write(line[10:])
        file.flush()
        assert len(log.new()) == 1
