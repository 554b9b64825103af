"""The checker itself: it finds nothing in a sound ledger, and each fault that is planted into a copy of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from core.policy import Overlap, Retry
from core.states import RunState, TermState
from tests.support.databases import Databases
from tests.support.dispatcher_room import LASTING, Room, open_room
from tests.support.ledger_check import LedgerCheck, Rows, read_tables
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, Start, failure, success
from tools.servers.etcd import EtcdServer

Ledger = dict[str, Rows]


@dataclass
class Told:
    """A ledger with something of everything in it, and what was expected of it."""

    tables: Ledger
    check: LedgerCheck
    starts: list[Start]

    def problems(self, spoil: Callable[[Ledger], object] | None = None) -> list[str]:
        tables = deepcopy(self.tables)
        if spoil is not None:
            spoil(tables)
        return self.check.judge(tables, self.starts)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(databases: Databases, etcd: EtcdServer) -> AsyncIterator[Told]:
    """Two owners one after the other, retries, a skip, a run that waits, one that runs, one to be retried late."""
    async with AsyncExitStack() as stack:
        room = await open_room(await databases.create(), "", etcd.endpoint, stack)
        yield await _tell(room)


async def _tell(room: Room) -> Told:
    first = await room.owner()
    await first.kill()
    owner = await room.owner(**LASTING)
    late = Retry(max_attempts=2, first_delay_us=600_000_000, max_delay_us=600_000_000)
    async with ScriptedWorker(owner.address, handlers=["work", "long", "flaky", "late"], slots=20) as worker:
        worker._work = lambda given: None if given.handler == "long" else _answers(given)
        await worker.grant(20)
        skipping = await room.every_second(60, first_after_s=0.2, handler="long", overlap=Overlap.SKIP)
        await room.once()
        flaky = await room.trigger(await room.job(handler="flaky"))
        await room.trigger(await room.job(handler="late", retry=late))
        await room.trigger(await room.job(handler="nobody"))
        await room.becomes(flaky, RunState.SUCCEEDED)
        await eventually(lambda: room.skips(skipping), 10)
        await eventually(lambda: _settled(room), 10)
        tables = await read_tables(room.eye)
    past = max(run["created_us"] for run in tables["runs"])
    expected = {job: [at for at in instants if at <= past] for job, instants in room.expected.items()}
    skipped = max(skip["to_us"] for skip in tables["skips"])
    expected[skipping] = [at for at in room.expected[skipping] if at <= skipped]
    return Told(tables, LedgerCheck(room.eye, expected), list(worker.starts))


def _answers(given: Any) -> Any:
    fails = given.handler == "late" or (given.handler == "flaky" and given.ref.attempt == 1)
    return failure(given) if fails else success(given)


async def _settled(room: Room) -> bool:
    states = [run["state"] for run in await room.runs()]
    return sorted(states) == [1, 1, 2, 3, 3]


def run_in(ledger: Ledger, state: RunState, **columns: Any) -> dict[str, Any]:
    wanted = {"state": state, **columns}
    return next(r for r in ledger["runs"] if all(r[name] == value for name, value in wanted.items()))


def attempt_of(ledger: Ledger, run: dict[str, Any]) -> dict[str, Any]:
    return next(a for a in ledger["attempts"] if a["run_id"] == run["run_id"])


def twice(ledger: Ledger) -> None:
    run = run_in(ledger, RunState.SUCCEEDED, cause=1)
    ledger["runs"].append({**run, "run_id": UUID(int=1)})


def lost(ledger: Ledger) -> None:
    ledger["runs"].remove(run_in(ledger, RunState.SUCCEEDED, cause=1))


def run_and_skipped(ledger: Ledger) -> None:
    run = run_in(ledger, RunState.SUCCEEDED, cause=1)
    ledger["skips"].append({**ledger["skips"][0], "job_id": run["job_id"], "from_us": 0, "to_us": 2**60})


def invented(ledger: Ledger) -> None:
    run_in(ledger, RunState.SUCCEEDED, cause=1)["scheduled_for_us"] += 1


def early(ledger: Ledger) -> None:
    run_in(ledger, RunState.SUCCEEDED, cause=1)["due_at_us"] += 10_000_000


def attempt_missing(ledger: Ledger) -> None:
    ledger["attempts"].remove(attempt_of(ledger, run_in(ledger, RunState.SUCCEEDED, attempt=2)))


def attempt_too_many(ledger: Ledger) -> None:
    ledger["attempts"].append({**ledger["attempts"][0], "attempt": 9})


def wrong_outcome(ledger: Ledger) -> None:
    attempt_of(ledger, run_in(ledger, RunState.SUCCEEDED, attempt=1))["outcome"] = 2


def retried_too_soon(ledger: Ledger) -> None:
    run = run_in(ledger, RunState.SUCCEEDED, attempt=2)
    attempts = sorted((a for a in ledger["attempts"] if a["run_id"] == run["run_id"]), key=lambda a: a["attempt"])
    attempts[1]["started_us"] = attempts[0]["ended_us"] + 1


def success_rolled_back(ledger: Ledger) -> None:
    run = run_in(ledger, RunState.SUCCEEDED, attempt=2)
    attempt_of(ledger, run)["outcome"] = 1


def gap_between_terms(ledger: Ledger) -> None:
    next(t for t in ledger["shard_terms"] if t["state"] == TermState.OPEN)["from_bucket"] += 1


def overlapping_terms(ledger: Ledger) -> None:
    next(t for t in ledger["shard_terms"] if t["state"] == TermState.CLOSED)["to_bucket"] += 1


def no_last_term(ledger: Ledger) -> None:
    ledger["shard_terms"].remove(next(t for t in ledger["shard_terms"] if t["state"] == TermState.OPEN))


def at_home_nowhere(ledger: Ledger) -> None:
    run_in(ledger, RunState.LEASED)["home_term"] = 77


def at_home_under_a_closed_term(ledger: Ledger) -> None:
    run_in(ledger, RunState.LEASED)["home_term"] = 1


def due_below_the_watermark(ledger: Ledger) -> None:
    ledger["due"][0]["bucket"] = 1


def watermark_above_the_floor(ledger: Ledger) -> None:
    ledger["shard_marks"][0]["watermark"] += 10


def open_run_out_of_sight(ledger: Ledger) -> None:
    for marks in ledger["shard_marks"]:
        marks["open_from_us"] = 2**60
    ledger["open_runs"].clear()


def retry_without_its_due_row(ledger: Ledger) -> None:
    ledger["due"] = [row for row in ledger["due"] if row["kind"] == 1]


def chain_without_a_due_row(ledger: Ledger) -> None:
    ledger["due"] = [row for row in ledger["due"] if row["kind"] == 2]


def chain_with_two_due_rows(ledger: Ledger) -> None:
    row = next(row for row in ledger["due"] if row["kind"] == 1)
    ledger["due"].append({**row, "bucket": row["bucket"] + 1})


FAULTS = [
    twice,
    lost,
    run_and_skipped,
    invented,
    early,
    attempt_missing,
    attempt_too_many,
    wrong_outcome,
    retried_too_soon,
    success_rolled_back,
    gap_between_terms,
    overlapping_terms,
    no_last_term,
    at_home_nowhere,
    at_home_under_a_closed_term,
    due_below_the_watermark,
    watermark_above_the_floor,
    open_run_out_of_sight,
    retry_without_its_due_row,
    chain_without_a_due_row,
    chain_with_two_due_rows,
]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_sound_ledger_is_found_sound(told: Told) -> None:
    assert told.problems() == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("spoil", FAULTS, ids=lambda spoil: spoil.__name__)
async def test_every_planted_fault_is_found(told: Told, spoil: Callable[[Ledger], object]) -> None:
    assert told.problems(spoil) != []


@pytest.mark.asyncio(loop_scope="module")
async def test_ranges_that_overlap_are_found_whatever_was_expected(told: Told) -> None:
    tables = deepcopy(told.tables)
    skip = {**tables["skips"][0], "job_id": UUID(int=7)}
    tables["skips"] += [{**skip, "from_us": 10, "to_us": 20}, {**skip, "from_us": 20, "to_us": 30}]
    assert "skipped from 10 to 20, and again from 20" in "\n".join(told.check.judge(tables, told.starts))
    tables["skips"][-1]["from_us"] = 21
    assert told.check.judge(tables, told.starts) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_inside_a_skipped_range_is_found_whatever_was_expected(told: Told) -> None:
    tables = deepcopy(told.tables)
    run = run_in(tables, RunState.SUCCEEDED, cause=1)
    at_us = run["scheduled_for_us"]
    tables["skips"].append({**tables["skips"][0], "job_id": run["job_id"], "from_us": at_us - 1, "to_us": at_us + 1})
    assert f"the occurrence at {at_us} ran and was skipped" in "\n".join(told.check.judge(tables, told.starts))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("changes", [{"at_us": 0}, {"attempt": 9}, {"run_id": "another"}, {}], ids=str)
async def test_what_workers_saw_is_held_against_the_rows(told: Told, changes: dict[str, Any]) -> None:
    seen = told.starts[0]
    odd = Start(**({f: getattr(seen, f) for f in ("run_id", "attempt", "due_at_us", "at_us")} | changes))
    assert told.check.judge(deepcopy(told.tables), [*told.starts, odd]) != []
