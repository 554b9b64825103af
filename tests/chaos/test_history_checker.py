"""The checker on histories that were recorded whole and then spoilt in one place: each must fail by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from core.states import RunState
from tests.support.chaos_system import ChaosSystem
from tests.support.history import Change, History, Invariant, Noted, Outcome, report
from tests.support.history_check import hold, judge, names
from tests.support.live_system import US, Size
from tools.servers.homes import temporary_home


@pytest.fixture(scope="module")
def recorded() -> History:
    """The history of a short life of a whole system, with a takeover in it; it holds."""
    history = asyncio.run(_record())
    hold(history)
    return history


async def _record() -> History:
    with temporary_home() as home:
        async with ChaosSystem(home, Size(1, 2, 1)) as chaos:
            load = chaos.load(Random(5), seconds=9)
            await load.register(steady=8, busy=2)
            trouble = asyncio.create_task(load.trouble(chaos.horizon_us - 3 * US, per_s=6))
            await asyncio.sleep(1)
            chaos.kill(chaos.watched[0])
            await trouble
            return await chaos.history()


Spoil = Callable[[History], History]


def _run(history: History, cause: int = 1, state: int = RunState.SUCCEEDED) -> dict[str, Any]:
    return next(run for run in history.tables["runs"] if run["cause"] == cause and run["state"] == state)


def _without(history: History, table: str, row: dict[str, Any]) -> History:
    tables = {**history.tables, table: [each for each in history.tables[table] if each is not row]}
    return replace(history, tables=tables)


def _changed(history: History, table: str, row: dict[str, Any], **columns: Any) -> History:
    rows = [{**each, **columns} if each is row else each for each in history.tables[table]]
    return replace(history, tables={**history.tables, table: rows})


def _noted(history: History, phase: str, **changes: Any) -> History:
    """The first such line, changed."""
    lines = list(history.noted)
    at = next(n for n, line in enumerate(lines) if line.phase == phase)
    lines[at] = replace(lines[at], **changes)
    return replace(history, noted=lines)


def _first_change(history: History, wanted: Callable[[Change], bool], **columns: Any) -> History:
    """The first committed change that is wanted, with other columns."""
    commits = list(history.commits)
    for n, commit in enumerate(commits):
        for m, change in enumerate(commit.changes):
            if wanted(change):
                changes = list(commit.changes)
                changes[m] = replace(change, row={**change.row, **columns})
                commits[n] = replace(commit, changes=tuple(changes))
                return replace(history, commits=commits)
    raise AssertionError("no such change")


def _again(history: History, run: dict[str, Any]) -> History:
    twin = {**run, "run_id": "00000000-0000-0000-0000-000000000000"}
    return replace(history, tables={**history.tables, "runs": [*history.tables["runs"], twin]})


def _effect_twice(history: History) -> History:
    line = next(line for line in history.noted if line.applied)
    return replace(history, noted=[*history.noted, replace(line, seq=10**9)])


def _acknowledged_loser(history: History) -> History:
    lost = next(a for a in history.tables["attempts"] if a["outcome"] != 1)
    line = Noted(10**9, "acknowledged", lost["run_id"], lost["attempt"], 0, 0, "worker-1", 0)
    return replace(history, noted=[*history.noted, line])


def _refused_create(history: History) -> History:
    said = list(history.said)
    at = next(n for n, each in enumerate(said) if each.verb == "create")
    said[at] = replace(said[at], outcome=Outcome.REFUSED)
    return replace(history, said=said)


def _lost_create(history: History) -> History:
    said = next(each for each in history.said if each.verb == "create")
    return replace(history, said=[*history.said, replace(said, request_id="another")])


def _is(table: str, verb: str, **columns: Any) -> Callable[[Change], bool]:
    return lambda c: c.table == table and c.verb == verb and columns.items() <= c.row.items()


SPOILT: dict[str, tuple[Spoil, Invariant]] = {
    "a run is missing": (lambda h: _without(h, "runs", _run(h)), Invariant.ONE_RUN),
    "a run stands twice": (lambda h: _again(h, _run(h)), Invariant.ONE_RUN),
    "a run at no occurrence": (
        lambda h: _changed(h, "runs", _run(h), scheduled_for_us=_run(h)["scheduled_for_us"] + 1),
        Invariant.NONE_INVENTED,
    ),
    "a trigger is missing": (lambda h: _without(h, "runs", _run(h, cause=2)), Invariant.CALLS_STAND),
    "a trigger of nobody": (lambda h: _changed(h, "runs", _run(h, cause=2), request_id="?"), Invariant.NONE_INVENTED),
    "a refused call was done": (_refused_create, Invariant.CALLS_STAND),
    "an acknowledged call was not done": (_lost_create, Invariant.CALLS_STAND),
    "a start before its time": (lambda h: _noted(h, "start", at_us=1), Invariant.NEVER_EARLY),
    "a start by another worker": (lambda h: _noted(h, "start", worker="thief"), Invariant.TOKENS_GROW),
    "a start of a run that is not there": (lambda h: _noted(h, "start", run="nobody"), Invariant.NONE_INVENTED),
    "an effect twice": (_effect_twice, Invariant.ONE_EFFECT),
    "a result of nobody": (lambda h: _changed(h, "runs", _run(h), result=b"0"), Invariant.RESULT_OF_WORKER),
    "an acknowledged result that was lost": (_acknowledged_loser, Invariant.ACKNOWLEDGED_STAYS),
    "a run that did not end": (lambda h: _changed(h, "runs", _run(h), state=1), Invariant.COMES_TO_REST),
    "a write under a term that never was": (
        lambda h: _first_change(h, _is("runs", "INSERT", cause=1), home_term=99),
        Invariant.VALID_TERM,
    ),
    "a term that begins too late": (
        lambda h: _first_change(h, _is("shard_terms", "INSERT"), from_bucket=7),
        Invariant.TERMS_TILE,
    ),
    "a floor ahead of its time": (
        lambda h: _first_change(h, _is("shard_floors", "UPDATE"), floor=2**40),
        Invariant.ABOVE_FLOOR,
    ),
    "a watermark past what is live": (
        lambda h: _first_change(h, _is("shard_marks", "UPDATE"), watermark=2**40),
        Invariant.BELOW_WATERMARK,
    ),
    "an ended run changes": (
        lambda h: replace(h, commits=[*h.commits, _last_change_of(h, state=4)]),
        Invariant.ENDED_STAYS,
    ),
    "a second due row": (
        lambda h: replace(h, commits=[h.commits[0], *[_landed_again(c) for c in h.commits[1:]]]),
        Invariant.ONE_DUE_ROW,
    ),
}


def _last_change_of(history: History, **columns: Any) -> Any:
    """The end of a run, once more."""
    for commit in history.commits:
        for change in commit.changes:
            if change.table == "runs" and change.row["state"] == RunState.SUCCEEDED:
                row = {**change.row, **columns}
                return replace(history.commits[-1], changes=(replace(change, row=row),))
    raise AssertionError("no run succeeded")


def _landed_again(commit: Any) -> Any:
    """What lands, lands twice, a bucket apart."""
    twins = [
        replace(c, row={**c.row, "bucket": c.row["bucket"] + 1})
        for c in commit.changes
        if c.table == "due" and c.verb == "INSERT"
    ]
    return replace(commit, changes=(*commit.changes, *twins))


@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_history_is_found(recorded: History, what: str) -> None:
    spoil, invariant = SPOILT[what]
    found = judge(spoil(recorded))
    assert invariant.name in names(found), report(found)


def test_nothing_is_judged_by_an_episode_without_a_refused_write(recorded: History) -> None:
    hold(recorded, refused_writes=1)
    with pytest.raises(AssertionError, match="SOMETHING_REFUSED"):
        hold(deepcopy(recorded), refused_writes=0)
