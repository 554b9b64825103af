"""The state machines stand in three places: core/states.py, the CHECK constraints, and STATES.md. They agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

import pytest

from core.errors import InvariantBroken
from core.handoff import HANDOFF_TRANSITIONS, Phase
from core.states import (
    ENDED_RUN_STATES,
    JOB_TRANSITIONS,
    MOVE_TRANSITIONS,
    OPEN_MOVE_STATES,
    OPEN_OPERATION_STATES,
    OPEN_RUN_STATES,
    OPERATION_TRANSITIONS,
    RUN_TRANSITIONS,
    TERM_TRANSITIONS,
    AttemptOutcome,
    DueKind,
    JobState,
    MoveCause,
    MoveState,
    OperationKind,
    OperationState,
    PlacementRuleKind,
    RunCause,
    RunEvent,
    RunState,
    SkipReason,
    TermState,
    next_run_state,
)
from core.store.schema import MIGRATIONS

PAGE = (Path(__file__).parents[2] / "STATES.md").read_text()
ARROW = re.compile(r"^\s+(\S+) --> (\w+|\[\*\])(?:: (\w+))?$", re.MULTILINE)

MACHINES: dict[str, tuple[type[IntEnum], Mapping[tuple[IntEnum, IntEnum], IntEnum]]] = {
    "Run": (RunState, RUN_TRANSITIONS),  # type: ignore[dict-item]
    "Job": (JobState, JOB_TRANSITIONS),  # type: ignore[dict-item]
    "Operation": (OperationState, OPERATION_TRANSITIONS),  # type: ignore[dict-item]
    "Term": (TermState, TERM_TRANSITIONS),  # type: ignore[dict-item]
    "Move": (MoveState, MOVE_TRANSITIONS),  # type: ignore[dict-item]
    "Hand-off": (Phase, HANDOFF_TRANSITIONS),  # type: ignore[dict-item]
}
CHECKED = {
    ("runs", "state"): RunState,
    ("runs", "cause"): RunCause,
    ("jobs", "state"): JobState,
    ("job_versions", "state"): JobState,
    ("attempts", "outcome"): AttemptOutcome,
    ("due", "kind"): DueKind,
    ("skips", "reason"): SkipReason,
    ("operations", "kind"): OperationKind,
    ("operations", "state"): OperationState,
    ("shard_terms", "state"): TermState,
    ("shard_moves", "cause"): MoveCause,
    ("shard_moves", "state"): MoveState,
    ("placement_rules", "kind"): PlacementRuleKind,
}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def arrows(title: str) -> set[tuple[str, str, str]]:
    """(from, to, event) of each arrow of the chart; "[*]" is the outside."""
    return {(begin, end, event or "") for begin, end, event in ARROW.findall(section(title))}


def table(title: str, first_column: str) -> list[list[str]]:
    """The rows of the section's table whose first column has that heading."""
    lines = section(title).splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |")) + 2
    rows = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def ddl_of(name: str) -> str:
    return next(step.ddl for step in MIGRATIONS if step.name == name)


@pytest.mark.parametrize("title", MACHINES)
def test_the_chart_draws_the_table_in_code(title: str) -> None:
    _, transitions = MACHINES[title]
    drawn = {arrow for arrow in arrows(title) if "[*]" not in arrow}
    assert drawn == {(state.name, to.name, event.name) for (state, event), to in transitions.items()}


@pytest.mark.parametrize("title", MACHINES)
def test_the_written_table_lists_the_table_in_code(title: str) -> None:
    _, transitions = MACHINES[title]
    written = [tuple(row[:3]) for row in table(title, "from")]
    assert written == [(state.name, event.name, to.name) for (state, event), to in transitions.items()]


@pytest.mark.parametrize("title", MACHINES)
def test_states_that_nothing_leaves_end_the_chart(title: str) -> None:
    states, transitions = MACHINES[title]
    left = {state for (state, _), to in transitions.items() if to is not state}
    assert {begin for begin, end, _ in arrows(title) if end == "[*]"} == {s.name for s in states if s not in left}


@pytest.mark.parametrize(
    ("title", "column", "states"),
    [
        ("Run", "state", RunState),
        ("Attempt", "outcome", AttemptOutcome),
        ("Job", "state", JobState),
        ("Skip", "reason", SkipReason),
        ("Operation", "state", OperationState),
        ("Term", "state", TermState),
    ],
)
def test_every_number_is_written_down(title: str, column: str, states: type[IntEnum]) -> None:
    assert [(row[0], int(row[1])) for row in table(title, column)] == [(s.name, int(s)) for s in states]


def test_every_outcome_of_an_attempt_is_drawn() -> None:
    assert arrows("Attempt") == {("[*]", "open", "")} | {("open", outcome.name, "") for outcome in AttemptOutcome}


def test_open_and_ended_states_are_told_apart_alike_everywhere() -> None:
    assert {row[0] for row in table("Run", "state") if row[2] == "yes"} == {s.name for s in OPEN_RUN_STATES}
    ended = ", ".join(str(int(state)) for state in sorted(ENDED_RUN_STATES))
    runs = ddl_of("runs")
    assert f"CHECK ((state IN ({ended})) = (ended_us > 0))" in runs
    assert f"CHECK ((state = {int(RunState.LEASED)}) = (lease_until_us > 0))" in runs
    assert f"CHECK ((state = {int(JobState.DELETED)}) = (deleted_us > 0))" in ddl_of("jobs")
    assert {row[0] for row in table("Operation", "state") if row[2] == "yes"} == {s.name for s in OPEN_OPERATION_STATES}
    over = ", ".join(str(int(state)) for state in sorted(set(OperationState) - OPEN_OPERATION_STATES))
    assert f"CHECK ((state IN ({over})) = (ended_us > 0))" in ddl_of("operations")
    assert {row[0] for row in table("Move", "state") if row[2] == "yes"} == {s.name for s in OPEN_MOVE_STATES}
    over = ", ".join(str(int(state)) for state in sorted(set(MoveState) - OPEN_MOVE_STATES))
    assert f"CHECK ((state IN ({over})) = (ended_us > 0))" in ddl_of("shard_moves")


def test_only_a_backfill_makes_runs_that_name_their_operation() -> None:
    assert f"CHECK ((cause = {int(RunCause.BACKFILL)}) = (operation_id IS NOT NULL))" in ddl_of("runs")


@pytest.mark.parametrize(("table_name", "column"), CHECKED)
def test_each_check_lists_the_numbers_in_code(table_name: str, column: str) -> None:
    found = re.search(rf"{column} SMALLINT NOT NULL CHECK \({column} IN \(([\d, ]+)\)\)", ddl_of(table_name))
    assert found is not None
    assert [int(n) for n in found[1].split(",")] == [int(value) for value in CHECKED[table_name, column]]


def test_no_numbered_column_goes_unchecked() -> None:
    numbered = {
        (step.name, column)
        for step in MIGRATIONS
        for column in re.findall(r"^\s*(\w+) SMALLINT", step.ddl, re.MULTILINE)
    }
    assert numbered - {("cluster", "id")} == set(CHECKED)


def test_what_the_table_does_not_list_cannot_happen() -> None:
    assert next_run_state(RunState.LEASED, RunEvent.SUCCEED) is RunState.SUCCEEDED
    for state in (RunState.SUCCEEDED, RunState.CANCELED):
        for event in RunEvent:
            with pytest.raises(InvariantBroken, match=f"a run in state {state.name} cannot take {event.name}"):
                next_run_state(state, event)
