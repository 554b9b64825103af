"""The demo's screen fits every terminal, its lines say everything, and the sample crontab is what it claims to be."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tidewheel.v1 import run_pb2

from tests.support.instants import us
from tools.crontab import ImportedJob, parse_crontab
from tools.demo.__main__ import wanted_seconds
from tools.demo.judge import CrashCost, Verdict
from tools.demo.observer import Ownership
from tools.demo.run_log import Start
from tools.demo.screen import ProcessRow, StartRow, View, plain_line, render
from tools.demo.summary import Crash, Outcome, summary_lines
from tools.picture import picture

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "samples" / "crontab"
AT = us("2026-06-03T12:00:02Z")


def row(number: int) -> StartRow:
    started = Start(f"shop-a-rather-long-name-{number}", "", AT, AT + 17_000 * number, 1, "w", "task")
    return StartRow(started, 63, "dispatcher-1", "worker-2")


def view(rows: int = 40) -> View:
    return View(
        elapsed_s=13.2,
        total_s=40,
        servers="PostgreSQL 18.6, etcd 3.5.30",
        fired=132,
        late_p50_us=6_000,
        late_p99_us=14_000,
        late_max_us=1_220_000,
        overdue=3,
        doubled=0,
        early=0,
        upcoming="shop-poll-payments in 0.4 s",
        processes=[
            ProcessRow("dispatcher-1", 12345, "running", 64, "1-2", 66),
            ProcessRow("dispatcher-2", 12346, "killed", 0),
            *(ProcessRow(f"controlplane-{n}", 12350 + n, "running") for n in (1, 2)),
            *(ProcessRow(f"worker-{n}", 12360 + n, "running", ran=66) for n in (1, 2)),
        ],
        recent=[row(number) for number in range(rows)],
        events=[f"12:00:0{n} something happened that takes quite a long line to tell about in full" for n in range(5)],
    )


def drawn(width: int, height: int, rows: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(render(view(rows), width, height))
    file = console.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [200, 80, 60, 45, 30])
@pytest.mark.parametrize("height", [60, 24, 16, 10])
def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    shown = drawn(width, height)
    assert len(shown) <= height
    assert all(len(line) <= width for line in shown)
    assert shown[0].startswith("Tidewheel")
    assert "fired 132" in shown[1]
    assert any("dispatcher-2" in line and "killed" in line for line in shown)
    if height >= 16:
        assert any("shop-a-rath" in line for line in shown)


def test_the_usual_terminal_shows_where_each_run_was() -> None:
    shown = drawn(80, 24)
    assert any("dispatcher-1" in line and "worker-2" in line and "663 ms" in line for line in shown)
    assert sum("shop-a-rather-long-name" in line for line in shown) >= 6
    assert any(line.startswith("12:00:04 something happened") for line in shown)


def test_a_start_is_one_plain_line() -> None:
    line = plain_line(row(1))
    assert line == "12:00:02 shop-a-rather-long-name-1: 17 ms late (shard 63 of dispatcher-1, worker-2)"


def test_the_picture_is_the_screen_and_fetches_nothing() -> None:
    svg = picture(view())
    assert svg.startswith("<svg")
    assert "dispatcher-1" in svg
    assert "font-face" not in svg
    assert "url(http" not in svg


def outcome(verdict: Verdict, states: Counter[int]) -> Outcome:
    crash = Crash("dispatcher-1", 32, 0.6, CrashCost(9, 2, 750_000))
    return Outcome(verdict, states, 40, 25, crash, Ownership({0: "a", 1: "a"}, {0: 1, 1: 3}), ())


def test_the_summary_tells_all_and_ends_with_the_verdict() -> None:
    good = Verdict(60, 61, (), (), (), (), tuple(range(61)))
    lines = summary_lines(outcome(good, Counter({run_pb2.RUN_STATE_SUCCEEDED: 61})))
    assert lines[0] == "25 jobs for 40 s: 61 runs fired, 61 succeeded"
    assert (
        "its 32 shards taken over within 0.6 s; 2 of 9 runs due there meanwhile were late, by at most 750 ms"
        in lines[2]
    )
    assert lines[-1].endswith("0 lost, 0 doubled, 0 early - all is well")


@pytest.mark.parametrize(
    ("verdict", "states"),
    [
        (Verdict(1, 0, (("a", AT),), (), (), (), ()), Counter()),
        (Verdict(1, 2, (), (("a", AT),), (), (), (1, 1)), Counter()),
        (Verdict(1, 1, (), (), (("a", AT),), (), (-1,)), Counter()),
        (Verdict(1, 2, (), (), (), (("a", AT),), (1, 1)), Counter()),
        (Verdict(1, 1, (), (), (), (), (1,)), Counter({run_pb2.RUN_STATE_DEAD: 1})),
        (Verdict(1, 1, (), (), (), (), (1,)), Counter({run_pb2.RUN_STATE_LEASED: 1})),
    ],
)
def test_one_fault_of_any_kind_is_not_well(verdict: Verdict, states: Counter[int]) -> None:
    judged = outcome(verdict, states)
    assert not judged.good
    assert summary_lines(judged)[-1].endswith("NOT WELL")


def test_whoever_interrupts_it_is_not_told_off_for_runs_under_way() -> None:
    verdict = Verdict(1, 1, (), (), (), (), (1,))
    assert replace(outcome(verdict, Counter({run_pb2.RUN_STATE_LEASED: 1})), cut_short=True).good
    assert not replace(outcome(verdict, Counter({run_pb2.RUN_STATE_DEAD: 1})), cut_short=True).good


def test_the_sample_crontab_can_be_kept_whole_and_shows_life_within_seconds() -> None:
    results = parse_crontab(SAMPLE.read_text(encoding="utf-8"), system=False, anchor_us=AT)
    jobs = [result for result in results if isinstance(result, ImportedJob)]
    assert len(jobs) == len(results) >= 20
    assert len({job.name for job in jobs}) == len(jobs)
    # What the demo promises: every kind of line that the importer knows.
    assert sum(job.schedule.cron[0].startswith("@every") for job in jobs) >= 3
    assert sum(len(job.schedule.cron[0].split()) == 6 for job in jobs) >= 3
    assert sum(job.stdin is not None for job in jobs) >= 1
    assert sum(bool(job.shell_command) for job in jobs) >= 1
    assert len({job.schedule.zone for job in jobs}) >= 3


@pytest.mark.parametrize("text", ["ten", "-1", "0", "5", "nan", "1e9"])
def test_a_length_of_the_demo_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="DEMO_SECONDS"):
        wanted_seconds(text)


def test_the_demo_runs_as_long_as_it_is_told() -> None:
    assert wanted_seconds("") is None
    assert wanted_seconds("40") == 40
