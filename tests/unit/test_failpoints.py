"""Failpoints do nothing unless they are named, and name nothing that does not exist."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.errors import Invalid
from core.failpoints import NAMES, read_failpoints


def test_without_the_variable_nothing_happens() -> None:
    points = read_failpoints({})
    assert [points.pass_by(name) for name in NAMES] == [0.0] * len(NAMES)


def test_a_wait_is_told_to_its_place_alone() -> None:
    points = read_failpoints({"TIDEWHEEL_FAILPOINTS": "target.after_split=wait:0.5"})
    assert points.pass_by("target.after_split") == 0.5
    assert points.pass_by("target.before_split") == 0.0


@pytest.mark.parametrize(
    "text", ["target.split=kill", "target.after_split=die", "target.after_split=wait:61", "claim.after=when:/x", "kill"]
)
def test_what_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_failpoints({"TIDEWHEEL_FAILPOINTS": text})


def test_kill_ends_the_process_at_its_place() -> None:
    script = (
        "from core.failpoints import read_failpoints\n"
        "points = read_failpoints({'TIDEWHEEL_FAILPOINTS': 'claim.after=kill'})\n"
        "points.pass_by('claim.before'); print('here', flush=True); points.pass_by('claim.after'); print('never')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (-9, "here\n")


def test_once_is_the_first_passing_alone() -> None:
    points = read_failpoints({"TIDEWHEEL_FAILPOINTS": "claim.after=once:wait:2"})
    assert [points.pass_by("claim.after") for _ in range(3)] == [2.0, 0.0, 0.0]


def test_a_file_sets_a_place_off_once_each_time_it_is_made(tmp_path: Path) -> None:
    trigger = tmp_path / "now"
    points = read_failpoints({"TIDEWHEEL_FAILPOINTS": f"due.before=when:{trigger}:wait:2"})
    told = []
    for _ in range(2):
        told.append(points.pass_by("due.before"))
        trigger.touch()
        told += [points.pass_by("due.before"), points.pass_by("due.before")]
    assert told == [0.0, 2.0, 0.0] * 2


def test_block_holds_up_everything() -> None:
    points, began_s = read_failpoints({"TIDEWHEEL_FAILPOINTS": "report.before=block:0.2"}), time.monotonic()
    assert points.pass_by("report.before") == 0.0
    assert time.monotonic() - began_s >= 0.2
