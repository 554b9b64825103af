"""What firing makes of an occurrence while other runs of its job are open or wait, under each policy that buffers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.fence import TermRow
from core.policy import Overlap
from core.states import RunCause, RunState, SkipReason
from core.store.decisions import Fired
from core.store.discovery import BucketRange, Discovery
from tests.support.store_world import NOW_US, Job, StoreWorld, fire_chain, fire_run, grant

HOUR_US = 3600 * US_PER_S
NEXT_US = NOW_US + HOUR_US
BUFFERING = [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER]
PENDING, LEASED = RunState.PENDING, RunState.LEASED

FIRST = frozenset({0})

buffering = pytest.mark.parametrize("policy", BUFFERING)


async def fire(world: StoreWorld, job: Job, policy: Overlap, *, moving: bool = True, **item: Any) -> Fired:
    """Fire the occurrence at NOW with a lease at hand."""
    term = (await world.terms.history(job.shard))[-1] if await world.terms.history(job.shard) else await world.own(0)
    row = await world.plant_occurrence(job)
    chain = fire_chain(
        world, job, row, term, lease=grant(), next_us=NEXT_US if moving else None, overlap=policy, **item
    )
    return await world.firing().fire_chains([chain], now_us=NOW_US)


async def made(world: StoreWorld, job: Job) -> dict[str, Any]:
    return await world.run(job.run_id(NOW_US))


async def waits(world: StoreWorld, job: Job, ago_us: int, **columns: Any) -> UUID:
    """A run that waits behind its gate already."""
    values: dict[str, Any] = {"state": PENDING, "attempt": 0, "gated": True}
    return await world.plant_run(job, scheduled_for_us=NOW_US - ago_us, **(values | columns))


@buffering
@pytest.mark.parametrize("moving", [True, False], ids=["moving", "ending"])
class TestWithNothingInTheWay:
    async def test_a_run_starts_at_once(self, world: StoreWorld, policy: Overlap, moving: bool) -> None:
        job = await world.plant_job()
        await world.plant_run(job, state=RunState.DEAD, scheduled_for_us=NOW_US - HOUR_US)
        await world.plant_run(await world.plant_job(), scheduled_for_us=NOW_US - HOUR_US)
        fired = await fire(world, job, policy, moving=moving)
        assert (fired.made[0].attempt, fired.made[0].gated, fired.made[0].blocked) == (1, True, False)
        run = await made(world, job)
        assert (run["state"], run["attempt"], run["gated"], run["worker"]) == (LEASED, 1, True, "worker-1")

    async def test_a_trigger_that_is_not_yet_due_is_not_in_the_way(
        self, world: StoreWorld, policy: Overlap, moving: bool
    ) -> None:
        job = await world.plant_job()
        await waits(world, job, HOUR_US, not_before_us=NOW_US + 1)
        assert (await fire(world, job, policy, moving=moving)).made[0].attempt == 1


@buffering
@pytest.mark.parametrize(
    "open_run",
    [
        {"state": LEASED},
        {"state": PENDING, "attempt": 1, "not_before_us": NOW_US + HOUR_US},
        {"state": PENDING, "attempt": 0},
        {"state": PENDING, "attempt": 0, "gated": True},
        {"state": PENDING, "attempt": 0, "gated": True, "home_term": 0, "not_before_us": NOW_US},
    ],
    ids=["leased", "waits for its retry", "waits for a worker", "waits at its gate", "a trigger that is due"],
)
class TestBehindAnotherRun:
    async def test_a_run_waits_although_a_lease_was_offered(
        self, world: StoreWorld, policy: Overlap, open_run: dict[str, Any]
    ) -> None:
        job = await world.plant_job()
        await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US, **open_run)
        fired = await fire(world, job, policy)
        assert (fired.consumed, fired.skipped) == (FIRST, {})
        assert (fired.made[0].attempt, fired.made[0].gated, fired.made[0].blocked) == (0, True, True)
        run = await made(world, job)
        assert (run["state"], run["attempt"], run["gated"], run["home_term"]) == (PENDING, 0, True, 1)
        assert (run["worker"], run["token_hash"], run["lease_until_us"], run["started_us"]) == ("", None, 0, 0)
        assert await world.rows("skips") == []

    async def test_also_if_it_is_only_among_those_that_have_been_open_for_long(
        self, world: StoreWorld, policy: Overlap, open_run: dict[str, Any]
    ) -> None:
        job = await world.plant_job()
        run_id = await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US, **open_run)
        await world.eye.execute("INSERT INTO open_runs VALUES (0, $1, $2)", job.job_id, run_id)
        fired = await fire(world, job, policy, open_from_us=NOW_US - 1)
        assert (fired.made[0].attempt, fired.made[0].blocked) == (0, True)


class TestTheBuffer:
    @pytest.mark.parametrize(
        ("policy", "max_buffered", "room"),
        [(Overlap.BUFFER_ONE, 9, 1), (Overlap.BUFFER_ALL, 1, 1), (Overlap.BUFFER_ALL, 3, 3)],
    )
    @pytest.mark.parametrize("old", [False, True], ids=["recent", "open for long"])
    async def test_holds_as_many_as_it_may_and_the_next_is_recorded_as_skipped(
        self, world: StoreWorld, policy: Overlap, max_buffered: int, room: int, old: bool
    ) -> None:
        waiting, full = await world.plant_job(), await world.plant_job()
        for job, count in ((waiting, room - 1), (full, room)):
            runs = [await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)]
            runs += [await waits(world, job, HOUR_US - n) for n in range(1, count + 1)]
            for run_id in runs if old else ():
                await world.eye.execute("INSERT INTO open_runs VALUES (0, $1, $2)", job.job_id, run_id)
        limits: dict[str, Any] = {"max_buffered": max_buffered, "open_from_us": NOW_US - 1 if old else 0}
        assert (await fire(world, waiting, policy, **limits)).made[0].blocked
        fired = await fire(world, full, policy, **limits)
        assert (fired.consumed, fired.made, fired.skipped) == (FIRST, {}, {0: SkipReason.BUFFER_FULL})
        (skip,) = await world.rows("skips")
        assert (skip["job_id"], skip["from_us"], skip["to_us"]) == (full.job_id, NOW_US, NOW_US)
        assert skip["reason"] == SkipReason.BUFFER_FULL

    async def test_counts_the_first_that_waits_as_the_open_one_where_none_is_open(self, world: StoreWorld) -> None:
        """It is about to start, or waits for a worker: one more may wait behind it."""
        job = await world.plant_job()
        await waits(world, job, HOUR_US)
        assert (await fire(world, job, Overlap.BUFFER_ONE)).made[0].blocked
        job = await world.plant_job()
        for n in range(2):
            await waits(world, job, HOUR_US - n)
        assert (await fire(world, job, Overlap.BUFFER_ONE)).skipped == {0: SkipReason.BUFFER_FULL}

    async def test_does_not_count_what_a_backfill_lets_wait(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
        backfill = {"cause": int(RunCause.BACKFILL), "operation_id": world.rand.uuid()}
        for n in range(1, 4):
            await waits(world, job, HOUR_US + n, **backfill)
        assert (await fire(world, job, Overlap.BUFFER_ONE)).made[0].blocked

    async def test_does_not_exist_where_a_job_cancels_the_others(self, world: StoreWorld) -> None:
        job = await world.plant_job()
        for n in range(4):
            await waits(world, job, HOUR_US - n)
        assert (await fire(world, job, Overlap.CANCEL_OTHER)).made[0].blocked


async def test_a_waiting_run_is_an_overlap_to_a_job_that_skips(world: StoreWorld) -> None:
    job = await world.plant_job()
    await waits(world, job, HOUR_US)
    assert (await fire(world, job, Overlap.SKIP)).skipped == {0: SkipReason.OVERLAP}


async def test_nothing_is_in_the_way_of_a_job_that_allows_overlap(world: StoreWorld) -> None:
    job = await world.plant_job()
    await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
    fired = await fire(world, job, Overlap.ALLOW)
    assert (fired.made[0].attempt, fired.made[0].gated) == (1, False)
    assert not (await made(world, job))["gated"]


@buffering
async def test_an_occurrence_that_has_its_run_moves_on_all_the_same(world: StoreWorld, policy: Overlap) -> None:
    job = await world.plant_job()
    await waits(world, job, 0)
    fired = await fire(world, job, policy)
    assert (fired.consumed, fired.made, fired.skipped) == (FIRST, {}, {})
    assert [row.due_at_us for row in await world.due()] == [NEXT_US]


@buffering
async def test_firing_again_is_told_that_the_run_waits(world: StoreWorld, policy: Overlap) -> None:
    """As after a lost answer: the lease that was offered was not taken."""
    term, job = await world.own(0), await world.plant_job()
    await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
    row = await world.plant_occurrence(job)
    item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US, overlap=policy)
    await world.firing().fire_chains([item], now_us=NOW_US)
    again = await world.firing().fire_chains([item], now_us=NOW_US + 1)
    assert (again.consumed, again.made[0].attempt, again.made[0].gated) == (FIRST, 0, True)


@buffering
async def test_a_closed_term_lets_nothing_wait(world: StoreWorld, policy: Overlap) -> None:
    term, job = await world.own(0), await world.plant_job()
    await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
    item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US, overlap=policy)
    await world.take_over(term)
    assert (await world.firing().fire_chains([item], now_us=NOW_US)).consumed == set()
    assert len(await world.rows("runs")) == 1


async def test_where_a_backwards_catch_up_stands_moves_with_the_chain(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    item = fire_chain(world, job, row, term, next_us=NEXT_US, back_us=NOW_US - US_PER_S, back_to_us=NOW_US - HOUR_US)
    await world.firing().fire_chains([item], now_us=NOW_US)
    bucket = world.scale.bucket_of(NEXT_US)
    scan = await Discovery(world.database).scan([BucketRange(0, bucket, bucket + 1)], limit_per_shard=9)
    (moved,) = scan.rows
    assert (moved.back_us, moved.back_to_us) == (NOW_US - US_PER_S, NOW_US - HOUR_US)
    await world.firing().fire_chains(
        [fire_chain(world, job, moved, term, next_us=2 * HOUR_US + NOW_US)], now_us=NEXT_US
    )
    (moved,) = await world.due()
    assert (moved.back_us, moved.back_to_us) == (None, None)


class TestTheNextAttempt:
    """Due rows of kind RUN."""

    async def ready(self, world: StoreWorld, **columns: Any) -> tuple[TermRow, UUID, Fired]:
        term, job = await world.own(0), await world.plant_job()
        values = {"state": PENDING, "attempt": 0, "not_before_us": NOW_US, "gated": True, "home_term": 0}
        run_id = await world.plant_run(job, **(values | columns))
        row = await world.plant_retry(job, run_id)
        return term, run_id, await world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US)

    async def test_of_a_gated_run_that_has_none_yet_is_left_to_leasing(self, world: StoreWorld) -> None:
        term, run_id, fired = await self.ready(world, cause=2)
        done = fired.made[0]
        assert (fired.consumed, done.attempt, done.gated, done.cause) == (FIRST, 0, True, RunCause.TRIGGER)
        run = await world.run(run_id)
        assert (run["state"], run["attempt"], run["not_before_us"], run["home_term"]) == (PENDING, 0, 0, term.term)
        assert (run["worker"], run["token_hash"], run["lease_until_us"]) == ("", None, 0)

    async def test_of_a_gated_run_that_had_one_starts(self, world: StoreWorld) -> None:
        _, run_id, fired = await self.ready(world, attempt=1)
        assert fired.made[0].attempt == 2
        assert (await world.run(run_id))["state"] == LEASED

    async def test_is_recognised_when_the_answer_was_lost(self, world: StoreWorld) -> None:
        term, run_id, _ = await self.ready(world)
        run = await world.run(run_id)
        row = await world.plant_retry(Job(run["job_id"], 0), run_id)
        await world.eye.execute("DELETE FROM due")
        again = await world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US)
        assert (again.consumed, again.made[0].attempt) == (FIRST, 0)
