"""Steps of operations, and changes of calendars: each has exactly one effect, whatever its COMMITs come to, whoever
else steps at the same time, and whatever happens to the jobs and runs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

from core.clock import US_PER_S
from core.errors import Conflict, NotFound, RequestReused
from core.states import JobState, OperationState, RunState
from core.store.database import DatabaseConfig
from core.store.operation_records import OperationRecord
from core.store.transact import RetryLimits
from tests.support.db_faults import DbFaults
from tests.support.operation_store import HOUR_US, NEW_YEAR, OperationStore, id_of
from tests.support.raw_statements import until_held_up
from tests.support.store_world import NOW_US, close_world, open_world

TABLES = ("calendars", "calendar_versions", "operations", "job_versions", "due", "runs", "audit", "requests")
Act = Callable[[], Awaitable[Any]]


@pytest.fixture
async def store(store_config: DatabaseConfig) -> AsyncIterator[OperationStore]:
    """With more tries than usual: what runs at once here meets on a handful of rows, again and again."""
    world = await open_world(store_config, RetryLimits(tries=40, first_wait_s=0.002, longest_wait_s=0.1))
    yield OperationStore(world)
    await close_world(world)


async def counts(store: OperationStore) -> dict[str, int]:
    return {table: len(await store.world.rows(table)) for table in TABLES}


async def added(store: OperationStore, before: dict[str, int]) -> dict[str, int]:
    after = await counts(store)
    return {table: after[table] - before[table] for table in TABLES if after[table] != before[table]}


async def _creation(store: OperationStore) -> Act:
    return store.make_calendar


async def _update(store: OperationStore) -> Act:
    await store.make_calendar()
    await store.job_with_calendar("a")
    return store.change_calendar


async def _deletion(store: OperationStore) -> Act:
    await store.make_calendar()
    return store.delete_calendar


async def _beginning(store: OperationStore) -> Act:
    return store.begin_pause


async def _pause(store: OperationStore) -> Act:
    for name in ("a", "b", "c"):
        await store.create(name)
    operation = await store.begin_pause(3)
    return lambda: store.step(operation)


async def _carrying(store: OperationStore) -> Act:
    await store.make_calendar()
    for name in ("a", "b"):
        await store.job_with_calendar(name)
    store.clock.set_wall(NOW_US + 1000)
    changed = await store.change_calendar()
    operation = await store.operations.get("default", id_of(changed.answer))
    return lambda: store.step(operation)


async def _backfill(store: OperationStore) -> Act:
    await store.create(of=None)
    operation = await store.begin_backfill(hours=1)
    return lambda: store.step(operation)


async def _cancel(store: OperationStore) -> Act:
    operation = await store.begin_pause()
    return lambda: store.cancel_operation(operation)


# What each act adds to the rows. A backfill of an hour of a minutely job makes sixty runs.
ACTS: dict[Callable[[OperationStore], Awaitable[Act]], dict[str, int]] = {
    _creation: {"calendars": 1, "calendar_versions": 1, "audit": 1, "requests": 1},
    _update: {"calendar_versions": 1, "operations": 1, "audit": 1, "requests": 1},
    _deletion: {"audit": 1, "requests": 1},
    _beginning: {"operations": 1, "audit": 1, "requests": 1},
    _pause: {"job_versions": 3, "audit": 3},
    _carrying: {"job_versions": 2, "due": 2, "audit": 2},
    _backfill: {"runs": 60, "due": 60},
    _cancel: {"audit": 1, "requests": 1},
}
EACH = pytest.mark.parametrize("begin", list(ACTS), ids=lambda begin: begin.__name__.strip("_"))


@EACH
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_lost_commit_is_settled_by_running_it_again(
    store: OperationStore, begin: Callable[[OperationStore], Awaitable[Act]], applied: bool
) -> None:
    act = await begin(store)
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.lost_commits(applied=applied):
        await act()
    assert faults.count == 1
    assert await added(store, before) == ACTS[begin]


@EACH
async def test_a_refused_commit_is_run_again(
    store: OperationStore, begin: Callable[[OperationStore], Awaitable[Act]]
) -> None:
    act = await begin(store)
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.refused_commits(times=2):
        await act()
    assert faults.count == 2
    assert await added(store, before) == ACTS[begin]


@EACH
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_conflict_at_any_statement_is_run_again(
    store: OperationStore, begin: Callable[[OperationStore], Awaitable[Act]], number: int
) -> None:
    act = await begin(store)
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.conflict_at_statement(number):
        await act()
    assert await added(store, before) == ACTS[begin]


class TestTwoRunners:
    @pytest.mark.parametrize("begin", [_pause, _carrying, _backfill], ids=lambda begin: begin.__name__.strip("_"))
    async def test_at_one_step_do_it_once(
        self, store: OperationStore, begin: Callable[[OperationStore], Awaitable[Act]]
    ) -> None:
        act = await begin(store)
        before = await counts(store)
        await asyncio.gather(*(act() for _ in range(4)))
        assert await added(store, before) == ACTS[begin]

    async def test_through_a_whole_pause_change_each_job_once(self, store: OperationStore) -> None:
        for number in range(230):
            await store.create(f"job-{number:03}")
        operation = await store.begin_pause(230)

        async def runner() -> OperationRecord:
            seen = operation
            while seen.is_open:
                seen = (await store.step(seen)).operation
            return seen

        ended = await asyncio.gather(*(runner() for _ in range(3)))
        assert {(each.state, each.done, each.unchanged) for each in ended} == {(OperationState.SUCCEEDED, 230, 0)}
        assert set(await store.states_of_jobs()) == {JobState.PAUSED}
        assert {row["version"] for row in await store.world.rows("jobs")} == {2}

    async def test_through_a_whole_backfill_make_each_run_once(self, store: OperationStore) -> None:
        await store.create()
        operation = await store.begin_backfill(hours=10)

        async def runner() -> None:
            seen = operation
            for _ in range(10):
                seen = (await store.step(seen)).operation

        await asyncio.gather(*(runner() for _ in range(3)))
        runs = await store.world.rows("runs")
        instants = sorted(row["scheduled_for_us"] for row in runs)
        assert instants == [NOW_US - 10 * HOUR_US + n * 60 * US_PER_S for n in range(600)]
        assert len(await store.world.eye.fetch("SELECT id FROM due WHERE kind = 2")) == 600


class TestJobsThatChangeMeanwhile:
    @pytest.mark.parametrize("seed", range(3))
    async def test_are_decided_anew(self, store: OperationStore, seed: int) -> None:
        """Edits, pauses and deletions of single jobs run beside the steps: afterwards no live job is active, and each
        has every version once."""
        for number in range(120):
            await store.create(f"job-{number:03}")
        operation, random = await store.begin_pause(120), Random(seed)

        async def meddle() -> None:
            for _ in range(25):
                name, act = f"job-{random.randrange(120):03}", random.choice(("edit", "pause", "delete"))
                try:
                    if act == "edit":
                        await store.change(name)
                    else:
                        await store.steer(JobState.PAUSED if act == "pause" else JobState.DELETED, name)
                except NotFound:
                    continue

        await asyncio.gather(meddle(), meddle(), store.finish(operation))
        jobs = await store.world.rows("jobs")
        assert JobState.ACTIVE not in {JobState(job["state"]) for job in jobs}
        versions = await store.world.eye.fetch(
            "SELECT job_id, count(*) AS n, max(version) AS newest FROM job_versions GROUP BY job_id"
        )
        newest = {row["job_id"]: row["newest"] for row in versions if row["n"] == row["newest"]}
        assert newest == {job["job_id"]: job["version"] for job in jobs}

    async def test_one_that_is_younger_than_the_operation_is_left_alone(self, store: OperationStore) -> None:
        await store.create("old")
        operation = await store.begin_pause(1)
        store.clock.set_wall(NOW_US + 1)
        await store.create("young")
        await store.finish(operation)
        assert await store.states_of_jobs() == [JobState.PAUSED, JobState.ACTIVE]

    async def test_what_was_counted_and_has_gone_is_unchanged(self, store: OperationStore) -> None:
        for name in ("a", "b", "c"):
            await store.create(name)
        operation = await store.begin_pause(3)
        await store.steer(JobState.DELETED, "b")
        ended = await store.finish(operation)
        assert (ended.done, ended.total, ended.unchanged) == (3, 3, 1)


class TestACalendar:
    async def test_to_which_a_job_refers_is_not_deleted(self, store: OperationStore) -> None:
        await store.make_calendar()
        await store.job_with_calendar("nightly")
        with pytest.raises(Conflict, match="used by job 'nightly': 1 in all"):
            await store.delete_calendar()

    async def test_that_is_registered_and_deleted_at_once_is_one_or_the_other(self, store: OperationStore) -> None:
        for number in range(12):
            name = f"c-{number}"
            await store.make_calendar(name)
            await asyncio.gather(
                store.job_with_calendar(f"job-{number}", name),
                store.delete_calendar(name),
                return_exceptions=True,
            )
        rows = await store.world.eye.fetch(
            """SELECT c.deleted_us > 0 AS deleted, count(r.job_id) AS jobs
               FROM calendars c LEFT JOIN calendar_jobs r ON r.calendar_id = c.calendar_id GROUP BY c.calendar_id"""
        )
        assert {(row["deleted"], row["jobs"]) for row in rows} <= {(True, 0), (False, 1)}

    async def test_changed_while_jobs_are_registered_reaches_each_of_them(self, store: OperationStore) -> None:
        """A job is pinned to the new version at once, or by the operation: never to the old one for good."""
        await store.make_calendar()
        await store.job_with_calendar("first")
        store.clock.set_wall(NOW_US + 1)
        registering = [store.job_with_calendar(f"job-{n}") for n in range(6)]
        changed, *_ = await asyncio.gather(store.change_calendar(), *registering)
        await store.finish(await store.operations.get("default", id_of(changed.answer)))
        pins = await store.world.eye.fetch(
            """SELECT v.spec->'pins'->'calendars'->'holidays'->>1 AS version FROM jobs j
               JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version"""
        )
        assert [row["version"] for row in pins] == ["2"] * 7

    async def test_that_two_change_at_once_has_both_versions(self, store: OperationStore) -> None:
        await store.make_calendar()
        await asyncio.gather(*(store.change_calendar() for _ in range(4)))
        (calendar,) = await store.world.rows("calendars")
        versions = await store.world.rows("calendar_versions")
        assert calendar["version"] == 5
        assert sorted(row["version"] for row in versions) == [1, 2, 3, 4, 5]

    async def test_keeps_what_older_versions_said(self, store: OperationStore) -> None:
        await store.make_calendar()
        before = (await store.calendars.by_name("default", "holidays")).content
        await store.change_calendar()
        assert (await store.calendars.by_name("default", "holidays", 1)).content == before
        assert (await store.calendars.by_name("default", "holidays")).content == NEW_YEAR

    async def test_a_repeated_call_with_another_body_is_refused(self, store: OperationStore) -> None:
        await store.make_calendar(call=store.call("r-1"))
        with pytest.raises(RequestReused):
            await store.make_calendar(call=store.call("r-1", body=b"other"))


class TestABackfillThatIsCanceled:
    async def test_leaves_what_a_dispatcher_has_leased(self, store: OperationStore) -> None:
        await store.create()
        operation = (await store.step(await store.begin_backfill(hours=1))).operation
        first, *_ = sorted(await store.world.rows("runs"), key=lambda row: row["scheduled_for_us"])
        await store.world.eye.execute(
            """UPDATE runs SET state = 2, attempt = 1, lease_until_us = 1, not_before_us = 0, started_us = 1
               WHERE run_id = $1""",
            first["run_id"],
        )
        await store.cancel_operation(operation)
        stepped = await store.step(await store.again(operation))
        assert stepped.operation.state is OperationState.CANCELED
        assert len(stepped.canceled) == 59
        states = [RunState(row["state"]) for row in await store.world.rows("runs")]
        assert (states.count(RunState.LEASED), states.count(RunState.CANCELED)) == (1, 59)

    async def test_leaves_what_a_dispatcher_leases_while_it_is_being_taken_back(self, store: OperationStore) -> None:
        await store.create()
        operation = (await store.step(await store.begin_backfill(hours=1))).operation
        await store.cancel_operation(operation)
        leasing = store.world.eye.transaction()
        await leasing.start()
        await store.world.eye.execute(
            """UPDATE runs SET state = 2, attempt = 1, lease_until_us = 1, not_before_us = 0, started_us = 1
               WHERE scheduled_for_us = $1""",
            NOW_US - HOUR_US,
        )
        stepping = asyncio.ensure_future(store.step(await store.again(operation)))
        await until_held_up(store.world)
        assert not stepping.done()
        await leasing.commit()
        assert len((await stepping).canceled) == 59
        states = [RunState(row["state"]) for row in await store.world.rows("runs")]
        assert (states.count(RunState.LEASED), states.count(RunState.CANCELED)) == (1, 59)

    async def test_makes_nothing_more(self, store: OperationStore) -> None:
        await store.create()
        operation = (await store.step(await store.begin_backfill(hours=10))).operation
        assert len(await store.world.rows("runs")) == 200
        await store.cancel_operation(operation)
        ended = await store.finish(await store.again(operation))
        assert ended.state is OperationState.CANCELED
        assert {row["state"] for row in await store.world.rows("runs")} == {int(RunState.CANCELED)}

    async def test_by_a_cancel_that_comes_during_a_step_is_canceled_all_the_same(self, store: OperationStore) -> None:
        await store.create()
        operation = await store.begin_backfill(hours=10)
        await asyncio.gather(store.step(operation), store.cancel_operation(operation))
        ended = await store.finish(await store.again(operation))
        assert ended.state is OperationState.CANCELED
        states = {row["state"] for row in await store.world.rows("runs")}
        assert states <= {int(RunState.CANCELED)}


async def test_an_operation_that_has_ended_is_not_stepped_again(store: OperationStore) -> None:
    operation = await store.finish(await store.begin_pause())
    await store.create()
    assert (await store.step(operation)).operation == operation
    assert await store.states_of_jobs() == [JobState.ACTIVE]
