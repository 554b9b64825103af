"""What PostgreSQL makes of the hot statements: bounded ranges and whole keys, no walk over dead or foreign rows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from core.clock import US_PER_S
from core.ids import hashes_range, run_id_ranges
from core.policy import Overlap
from core.states import AttemptOutcome, RunState
from core.store.completion import Ending
from core.store.discovery import BucketRange, Discovery
from core.store.gates import WaitingKey
from core.store.leases import LeaseOrder, Renewal
from core.store.overdue import Overdue
from tests.support.plans import ROWS, both_modes, crowd
from tests.support.polling import eventually
from tests.support.raw_statements import captured
from tests.support.store_world import NOW_US, SHARDS, Job, StoreWorld, fire_chain, fire_run, grant

NEXT_US = NOW_US + 60 * US_PER_S
DUE_KEY = {"shard", "bucket", "due_at_us", "id"}
Plan = dict[str, Any]
Act = Callable[[StoreWorld, Job], Awaitable[Callable[[], Awaitable[object]]]]


async def scan(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    ranges = [BucketRange(shard, world.bucket, world.bucket + 2) for shard in range(SHARDS)]
    return lambda: Discovery(world.database).scan(ranges, limit_per_shard=500)


async def lowest(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    ranges = [BucketRange(shard, world.bucket, world.bucket + 2) for shard in range(SHARDS)]
    return lambda: Discovery(world.database).lowest(ranges)


async def overdue(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    high = world.bucket + 2
    return lambda: Overdue(world.database).late(range(SHARDS), before_us=NOW_US, high_bucket=high, limit_per_shard=200)


async def put_off(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    coming = range(world.bucket, world.bucket + 13)
    return lambda: Overdue(world.database).put_off(
        range(SHARDS), coming, before_us=NOW_US, limit_per_shard=1000, limit=500
    )


async def anywhere(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    return lambda: Overdue(world.database).anywhere({job.chain_id: job.shard})


async def fire_moving(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    term = (await world.terms.history(0))[0]
    row = await world.plant_occurrence(job)
    item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US, overlap=Overlap.SKIP, open_from_us=NOW_US)
    return lambda: world.firing().fire_chains([item] * 100, now_us=NOW_US)


async def fire_ending(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    term = (await world.terms.history(0))[0]
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant())
    return lambda: world.firing().fire_chains([item] * 100, now_us=NOW_US)


async def fire_attempts(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    term = (await world.terms.history(0))[0]
    item = fire_run(await world.plant_retry(job, job.run_id(NOW_US)), term, grant())
    return lambda: world.firing().fire_runs([item] * 100, now_us=NOW_US)


async def end(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    item = Ending(0, 1, job.run_id(NOW_US), 1, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, b"token", stands_open=True)
    return lambda: world.completion().end([item] * 100, now_us=NOW_US)


async def end_and_retry(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    run_id = job.run_id(NOW_US)
    item = Ending(0, 1, run_id, 1, RunState.PENDING, AttemptOutcome.FAILED, b"token", retry_at_us=NEXT_US)
    return lambda: world.completion().end([item] * 100, now_us=NOW_US)


async def lease(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    item = LeaseOrder(0, 1, job.run_id(NOW_US), 1, grant())
    return lambda: world.leases().lease([item] * 100, now_us=NOW_US)


async def lease_gated(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    item = LeaseOrder(0, 1, job.run_id(NOW_US), 1, grant(), gated=True)
    return lambda: world.leases().lease([item] * 100, now_us=NOW_US)


async def look(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    key = WaitingKey(0, 1, job.run_id(NOW_US))
    return lambda: world.gates().blocked([key] * 100, now_us=NOW_US)


async def make_way(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    key = WaitingKey(0, 1, job.run_id(NOW_US))
    return lambda: world.gates().make_way([key] * 100, now_us=NOW_US)


async def renew(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    item = Renewal(0, 1, job.run_id(NOW_US), 1, NEXT_US, None)
    return lambda: world.leases().renew([item] * 100)


async def open_runs(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    ranges = run_id_ranges([0], NOW_US)
    return lambda: world.open_runs().find(0, ranges)


async def peopled(world: StoreWorld, job: Job) -> Callable[[], Awaitable[object]]:
    ranges = [hashes_range(range(64)), hashes_range(range(64, 128))]
    return lambda: world.open_runs().peopled(ranges)


DUE = f"""
    INSERT INTO due
    SELECT n % {SHARDS}, :bucket + 2 - n % 50, {NOW_US} - n, gen_random_uuid(), 1, gen_random_uuid(), 1, {NOW_US}
    FROM generate_series(1, {ROWS}) AS n"""
TERMS = f"""
    INSERT INTO shard_terms SELECT 100 + n, 1, 0, 1, 'x', gen_random_uuid(), 2, 0, ''
    FROM generate_series(1, {ROWS}) AS n"""


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Many rows of other jobs and shards, dead ones below the watermark among them."""
    await world.own(0)
    return await crowd(world, "runs", "jobs", "open_runs", besides=(DUE, TERMS))


async def plan_of(world: StoreWorld, act: Act, mode: str) -> list[Plan]:
    """Every node of the plan for the one statement of `act`."""
    job = await world.plant_job()
    sql, arguments = (await captured(world.database, await act(world, job))).compiled()
    async with world.eye.transaction():
        await world.eye.execute(f"SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = {mode}")
        shown = await world.eye.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *arguments)
    return list(_nodes(json.loads(shown)[0]["Plan"]))


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def conditions(plans: list[Plan], table: str) -> list[str]:
    """The index condition of each scan of the table; a scan that has none gives ""."""
    scans = [p for p in plans if p.get("Relation Name") == table and p["Node Type"] not in ("ModifyTable", "LockRows")]
    assert all("Seq Scan" not in p["Node Type"] for p in scans), scans
    indexed = [p for p in plans if "Index Cond" in p and str(p.get("Index Name", "")).startswith(f"{table}_")]
    assert len(indexed) >= len(scans) > 0, plans
    return [p["Index Cond"] for p in indexed]


def names(condition: str, columns: set[str]) -> bool:
    words = set(condition.replace("(", " ").replace(")", " ").replace(".", " ").split())
    return columns <= words


@both_modes
@pytest.mark.parametrize("act", [scan, lowest, overdue, put_off, anywhere])
async def test_a_scan_of_due_is_bounded_by_shard_and_both_buckets(crowded: StoreWorld, act: Act, mode: str) -> None:
    plans = await plan_of(crowded, act, mode)
    (condition,) = conditions(plans, "due")
    assert names(condition, {"shard", "bucket"})
    assert condition.count("bucket") == 2
    assert ">=" in condition
    assert "<" in condition


@both_modes
@pytest.mark.parametrize("act", [fire_moving, fire_ending, fire_attempts])
async def test_firing_finds_due_rows_by_their_whole_key(crowded: StoreWorld, act: Act, mode: str) -> None:
    plans = await plan_of(crowded, act, mode)
    assert all(names(condition, DUE_KEY) for condition in conditions(plans, "due"))


@both_modes
@pytest.mark.parametrize("act", [fire_attempts, end, end_and_retry, renew])
async def test_runs_are_changed_by_their_key(crowded: StoreWorld, act: Act, mode: str) -> None:
    plans = await plan_of(crowded, act, mode)
    assert all(names(condition, {"run_id"}) for condition in conditions(plans, "runs"))


@both_modes
async def test_the_overlap_test_looks_at_the_jobs_recent_runs_only(crowded: StoreWorld, mode: str) -> None:
    plans = await plan_of(crowded, fire_moving, mode)
    by_job = [c for c in conditions(plans, "runs") if "job_id" in c]
    assert all(names(condition, {"job_id", "scheduled_for_us"}) for condition in by_job)
    assert len(by_job) == 3, "busy, and only for those that buffer: how many wait, and whether one is open"
    assert all(names(condition, {"shard", "job_id"}) for condition in conditions(plans, "open_runs"))


@both_modes
@pytest.mark.parametrize("act", [lease, lease_gated, look, make_way])
async def test_a_gate_looks_at_the_runs_themselves_and_at_their_jobs_recent_and_standing_ones_only(
    crowded: StoreWorld, act: Act, mode: str
) -> None:
    plans = await plan_of(crowded, act, mode)
    looks = conditions(plans, "runs")
    assert all(names(condition, {"run_id"}) or names(condition, {"job_id", "scheduled_for_us"}) for condition in looks)
    assert sum("job_id" in condition for condition in looks) == 1
    assert all(names(condition, {"shard", "job_id"}) for condition in conditions(plans, "open_runs"))


@both_modes
@pytest.mark.parametrize("act", [fire_moving, overdue, put_off])
async def test_a_job_is_joined_by_its_key(crowded: StoreWorld, act: Act, mode: str) -> None:
    plans = await plan_of(crowded, act, mode)
    assert all(names(condition, {"job_id"}) for condition in conditions(plans, "jobs"))


@both_modes
@pytest.mark.parametrize("act", [fire_moving, end, renew])
async def test_the_fence_is_read_by_its_key(crowded: StoreWorld, act: Act, mode: str) -> None:
    plans = await plan_of(crowded, act, mode)
    by_key, *others = sorted(conditions(plans, "shard_terms"), key=len, reverse=True)
    assert names(by_key, {"shard", "term"})
    assert all(names(condition, {"shard"}) for condition in others), "the few open ones, by their own index"


@both_modes
@pytest.mark.parametrize("act", [open_runs, peopled])
async def test_runs_of_a_shard_are_looked_for_in_short_ranges_of_the_key(
    crowded: StoreWorld, act: Act, mode: str
) -> None:
    plans = await plan_of(crowded, act, mode)
    (condition,) = conditions(plans, "runs")
    assert condition.count("run_id") == 2


async def test_a_runs_life_changes_no_index_of_runs(world: StoreWorld) -> None:
    """Changes of a run stay on its page (HOT): no changing column is indexed, and pages are half empty."""
    await world.own(0)
    runs = [await world.plant_run(await world.plant_job()) for _ in range(50)]
    await world.leases().renew([Renewal(0, 1, run_id, 1, NEXT_US, b"half") for run_id in runs])
    items = [Ending(0, 1, r, 1, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, b"token") for r in runs]
    await world.completion().end(items, now_us=NOW_US)
    await world.database.close()  # a session that ends hands its counts over at once

    async def nearly_all_hot() -> bool:
        query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'"
        changed, hot = await world.eye.fetchrow(query)
        assert changed == 2 * len(runs)
        return bool(hot >= 0.9 * changed)

    await eventually(nearly_all_hot, what="100 changes of runs, nearly all of them HOT")
