"""Every change of the API has exactly one effect, whatever its COMMITs come to: rules/cockroachdb.md 16 to 20."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.errors import OutcomeUnknown, Unavailable
from core.store.transact import RetryLimits
from tests.support.api_store import ApiStore, run_id_of
from tests.support.db_faults import DbFaults
from tests.support.store_world import StoreWorld, close_world, open_world

TABLES = ("jobs", "job_versions", "due", "runs", "audit", "requests")


@pytest.fixture
def store(world: StoreWorld) -> ApiStore:
    return ApiStore(world)


async def counts(store: ApiStore) -> dict[str, int]:
    return {table: len(await store.world.rows(table)) for table in TABLES}


async def _create(store: ApiStore) -> Callable[[], Awaitable[Any]]:
    return store.create


async def _change(store: ApiStore) -> Callable[[], Awaitable[Any]]:
    await store.create()
    return store.change


async def _trigger(store: ApiStore) -> Callable[[], Awaitable[Any]]:
    await store.create()
    return store.trigger


async def _cancel(store: ApiStore) -> Callable[[], Awaitable[Any]]:
    await store.create()
    run_id = run_id_of(await store.trigger())
    return lambda: store.cancel(run_id)


# What each change adds to the rows.
CHANGES = {
    _create: {"jobs": 1, "job_versions": 1, "due": 1, "runs": 0, "audit": 1, "requests": 1},
    _change: {"jobs": 0, "job_versions": 1, "due": 1, "runs": 0, "audit": 1, "requests": 1},
    _trigger: {"jobs": 0, "job_versions": 0, "due": 1, "runs": 1, "audit": 1, "requests": 1},
    _cancel: {"jobs": 0, "job_versions": 0, "due": 0, "runs": 0, "audit": 1, "requests": 1},
}
EACH = pytest.mark.parametrize("begin", list(CHANGES), ids=lambda begin: begin.__name__.strip("_"))


async def added(store: ApiStore, before: dict[str, int]) -> dict[str, int]:
    after = await counts(store)
    return {table: after[table] - before[table] for table in TABLES}


@EACH
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_lost_commit_is_settled_by_running_the_change_again(
    store: ApiStore, begin: Callable[[ApiStore], Awaitable[Callable[[], Awaitable[Any]]]], applied: bool
) -> None:
    act = await begin(store)
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.lost_commits(applied=applied):
        changed = await act()
    assert faults.count == 1
    assert changed.answer
    assert await added(store, before) == CHANGES[begin]


@EACH
async def test_a_refused_commit_is_run_again(
    store: ApiStore, begin: Callable[[ApiStore], Awaitable[Callable[[], Awaitable[Any]]]]
) -> None:
    act = await begin(store)
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.refused_commits(times=2):
        await act()
    assert faults.count == 2
    assert await added(store, before) == CHANGES[begin]


@pytest.mark.parametrize("number", range(1, 4))
async def test_a_conflict_at_each_statement_of_a_creation_is_run_again(store: ApiStore, number: int) -> None:
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.conflict_at_statement(number):
        await store.create()
    assert faults.count == 1
    assert await added(store, before) == CHANGES[_create]


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_conflict_at_each_statement_of_a_trigger_is_run_again(store: ApiStore, number: int) -> None:
    await store.create()
    before, faults = await counts(store), DbFaults(store.world.database)
    with faults.conflict_at_statement(number):
        await store.trigger()
    assert faults.count == 1
    assert await added(store, before) == CHANGES[_trigger]


class TestWithFewTries:
    @pytest.fixture
    async def store(self, store_config: Any) -> Any:
        opened = await open_world(store_config, RetryLimits(tries=3, first_wait_s=0.001, longest_wait_s=0.002))
        yield ApiStore(opened)
        await close_world(opened)

    async def test_b103_conflicts_without_end_are_unavailable_and_leave_nothing(self, store: ApiStore) -> None:
        """Retries are bounded, and no session is left in a transaction."""
        before, faults = await counts(store), DbFaults(store.world.database)
        with faults.refused_commits(times=1_000), pytest.raises(Unavailable):
            await store.create()
        assert faults.count == 3
        assert await counts(store) == before
        idle = await store.world.eye.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in trans%'"
        )
        assert idle == 0

    async def test_commits_lost_without_end_leave_the_outcome_unknown_and_a_repeat_settles_it(
        self, store: ApiStore
    ) -> None:
        call, faults = store.call("r-1"), DbFaults(store.world.database)
        with faults.lost_commits(applied=True, times=1_000), pytest.raises(OutcomeUnknown):
            await store.create(call=call)
        assert (await store.create(call=store.call("r-1"))).answer == b"job v1 ACTIVE"
        assert len(await store.world.rows("jobs")) == 1
