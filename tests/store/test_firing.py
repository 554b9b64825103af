"""Firing: what happens to the due row, the run and the skips, and what is left alone when something does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.clock import US_PER_S
from core.fence import FenceView
from core.policy import Overlap
from core.states import DueKind, JobState, RunState, SkipReason
from core.store.decisions import Fired, LeaseGrant, SkippedRange
from core.store.marks import Raise
from tests.support.store_world import (
    LEASE_US,
    NOW_US,
    OTHER,
    StoreWorld,
    fire_chain,
    fire_run,
    grant,
)

HOUR_US = 3600 * US_PER_S
NEXT_US = NOW_US + HOUR_US
NONE: frozenset[int] = frozenset()
FIRST = frozenset({0})


async def test_a_chain_moves_to_its_next_occurrence_and_leaves_a_leased_run(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    fired = await world.firing().fire_chains(
        [fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US)], now_us=NOW_US + 5
    )
    assert fired.consumed == {0}
    assert attempts(fired) == {0: 1}
    assert fired.fences == {(0, 1): FenceView(0, 1, term.from_bucket, term.to_bucket)}
    (moved,) = await world.due()
    assert (moved.bucket, moved.due_at_us, moved.scheduled_for_us) == (world.scale.bucket_of(NEXT_US), NEXT_US, NEXT_US)
    assert (moved.id, moved.kind, moved.job_version) == (row.id, row.kind, row.job_version)
    run = await world.run(job.run_id(NOW_US))
    assert (run["state"], run["attempt"], run["home_term"], run["worker"]) == (RunState.LEASED, 1, 1, "worker-1")
    assert (run["scheduled_for_us"], run["due_at_us"]) == (NOW_US, NOW_US)
    assert (run["created_us"], run["started_us"], run["lease_until_us"]) == (NOW_US + 5, NOW_US + 5, NOW_US + LEASE_US)


async def test_a_run_without_a_credit_waits_unleased(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    fired = await world.firing().fire_chains([fire_chain(world, job, row, term, next_us=NEXT_US)], now_us=NOW_US)
    assert attempts(fired) == {0: 0}
    run = await world.run(job.run_id(NOW_US))
    assert (run["state"], run["attempt"], run["lease_until_us"], run["started_us"]) == (RunState.PENDING, 0, 0, 0)
    assert (run["token_hash"], run["worker"]) == (None, "")


async def test_a_chain_without_a_next_occurrence_ends(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    fired = await world.firing().fire_chains([fire_chain(world, job, row, term, lease=grant())], now_us=NOW_US)
    assert (fired.consumed, attempts(fired)) == (FIRST, {0: 1})
    assert await world.due() == []
    assert len(await world.rows("runs")) == 1


async def test_a_row_of_an_older_version_ends_without_a_run(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    await world.bump_version(job)
    dying = fire_chain(world, job, row, term, makes_run=False, expect_version=2)
    fired = await world.firing().fire_chains([dying], now_us=NOW_US)
    assert (fired.consumed, fired.made) == (FIRST, {})
    assert await world.due() == []
    assert await world.rows("runs") == []


async def test_a_batch_over_several_shards_is_one_statement(world: StoreWorld) -> None:
    terms = [await world.own(shard) for shard in range(3)]
    jobs = [await world.plant_job(shard) for shard in range(3) for _ in range(5)]
    rows = [await world.plant_occurrence(job, NOW_US + n) for n, job in enumerate(jobs)]
    items = [fire_chain(world, j, r, terms[r.shard], next_us=NEXT_US) for j, r in zip(jobs, rows, strict=True)]
    fired = await world.firing().fire_chains(items, now_us=NOW_US + HOUR_US)
    assert fired.consumed == set(range(15))
    assert set(fired.fences) == {(0, 1), (1, 1), (2, 1)}
    assert len(await world.rows("runs")) == 15


async def test_chains_that_move_and_chains_that_end_do_not_mix(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    mixed = [fire_chain(world, job, row, term, next_us=NEXT_US), fire_chain(world, job, row, term)]
    with pytest.raises(ValueError, match="separate statements"):
        await world.firing().fire_chains(mixed, now_us=NOW_US)


async def test_firing_again_changes_nothing_and_is_told_of_the_first_effect(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant(), next_us=NEXT_US)
    await world.firing().fire_chains([item], now_us=NOW_US)
    before = (await world.due(), await world.rows("runs"))
    again = await world.firing().fire_chains([item], now_us=NOW_US + 1)
    assert (again.consumed, attempts(again), set(again.fences)) == (FIRST, {0: 1}, {(0, 1)})
    assert (await world.due(), await world.rows("runs")) == before


async def test_an_occurrence_that_has_its_run_moves_on_all_the_same(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    run_id = await world.plant_run(job, state=RunState.SUCCEEDED)
    row = await world.plant_occurrence(job)
    fired = await world.firing().fire_chains(
        [fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US)], now_us=NOW_US
    )
    assert (fired.consumed, fired.made) == (FIRST, {})
    assert [r.due_at_us for r in await world.due()] == [NEXT_US]
    assert (await world.run(run_id))["state"] == RunState.SUCCEEDED


async def test_a_chain_never_moves_below_the_floor(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    raised = await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 7)])
    assert raised.shards == {0}
    soon_us = NOW_US + US_PER_S
    await world.firing().fire_chains([fire_chain(world, job, row, term, next_us=soon_us)], now_us=NOW_US)
    (moved,) = await world.due()
    assert (moved.bucket, moved.due_at_us) == (world.bucket + 7, soon_us)


class TestOverlap:
    """A job whose overlap policy is SKIP."""

    @pytest.mark.parametrize("state", [RunState.PENDING, RunState.LEASED])
    async def test_an_open_run_leaves_a_recorded_skip_instead_of_a_run(
        self, world: StoreWorld, state: RunState
    ) -> None:
        term, job = await world.own(0), await world.plant_job()
        await world.plant_run(job, state=state, scheduled_for_us=NOW_US - HOUR_US)
        row = await world.plant_occurrence(job)
        item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US, overlap=Overlap.SKIP)
        fired = await world.firing().fire_chains([item], now_us=NOW_US + 9)
        assert (fired.consumed, fired.made) == (FIRST, {})
        assert len(await world.rows("runs")) == 1
        (skip,) = await world.rows("skips")
        assert (skip["job_id"], skip["from_us"], skip["to_us"]) == (job.job_id, NOW_US, NOW_US)
        assert (skip["reason"], skip["term"], skip["recorded_us"]) == (SkipReason.OVERLAP, 1, NOW_US + 9)

    async def test_an_ended_run_does_not_stand_in_the_way(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        await world.plant_run(job, state=RunState.DEAD, scheduled_for_us=NOW_US - HOUR_US)
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US, overlap=Overlap.SKIP)
        assert attempts(await world.firing().fire_chains([item], now_us=NOW_US)) == {0: 0}

    async def test_another_jobs_open_run_does_not_stand_in_the_way(self, world: StoreWorld) -> None:
        term, job, other = await world.own(0), await world.plant_job(), await world.plant_job()
        await world.plant_run(other, scheduled_for_us=NOW_US - HOUR_US)
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US, overlap=Overlap.SKIP)
        assert attempts(await world.firing().fire_chains([item], now_us=NOW_US)) == {0: 0}

    async def test_without_the_policy_runs_may_overlap(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US)
        assert attempts(await world.firing().fire_chains([item], now_us=NOW_US)) == {0: 0}

    async def test_a_run_older_than_the_open_from_mark_counts_where_it_stands_open(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, scheduled_for_us=NOW_US - HOUR_US)
        await world.open_runs().stand([(0, 1, job.job_id, run_id)])
        row = await world.plant_occurrence(job)
        item = fire_chain(world, job, row, term, next_us=NEXT_US, overlap=Overlap.SKIP, open_from_us=NOW_US - 1)
        assert (await world.firing().fire_chains([item], now_us=NOW_US)).made == {}
        assert [s["reason"] for s in await world.rows("skips")] == [SkipReason.OVERLAP]

    async def test_the_run_of_the_same_occurrence_is_no_overlap(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        await world.plant_run(job)
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US, overlap=Overlap.SKIP)
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, fired.made) == (FIRST, {})
        assert await world.rows("skips") == []


async def test_a_run_older_than_the_open_from_mark_stands_in_open_runs_from_its_birth(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job, NOW_US - HOUR_US)
    fired = await world.firing().fire_chains(
        [fire_chain(world, job, row, term, next_us=NEXT_US, open_from_us=NOW_US)], now_us=NOW_US
    )
    assert attempts(fired) == {0: 0}
    assert await world.rows("open_runs") == [{"shard": 0, "job_id": job.job_id, "run_id": job.run_id(NOW_US - HOUR_US)}]


@pytest.mark.parametrize("makes_run", [True, False], ids=["beside a run", "alone"])
async def test_a_range_without_runs_is_recorded_with_its_reason(world: StoreWorld, makes_run: bool) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    skipped = SkippedRange(NOW_US - 3 * HOUR_US, NOW_US - HOUR_US, SkipReason.CATCH_UP)
    item = fire_chain(world, job, row, term, next_us=NEXT_US, skipped=skipped, makes_run=makes_run)
    fired = await world.firing().fire_chains([item], now_us=NOW_US)
    assert fired.consumed == {0}
    assert attempts(fired) == ({0: 0} if makes_run else {})
    (skip,) = await world.rows("skips")
    assert (skip["from_us"], skip["to_us"]) == (NOW_US - 3 * HOUR_US, NOW_US - HOUR_US)
    assert (skip["reason"], skip["job_version"], skip["shard"]) == (SkipReason.CATCH_UP, 1, 0)


async def test_a_range_and_an_overlap_are_both_recorded(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    await world.plant_run(job, scheduled_for_us=NOW_US - 9 * HOUR_US)
    row = await world.plant_occurrence(job)
    skipped = SkippedRange(NOW_US - 3 * HOUR_US, NOW_US - HOUR_US, SkipReason.CATCH_UP)
    item = fire_chain(world, job, row, term, next_us=NEXT_US, skipped=skipped, overlap=Overlap.SKIP)
    await world.firing().fire_chains([item], now_us=NOW_US)
    assert [s["reason"] for s in await world.rows("skips")] == [SkipReason.CATCH_UP, SkipReason.OVERLAP]


@pytest.mark.parametrize("moving", [True, False], ids=["moving", "ending"])
class TestNothingIsConsumed:
    """When the writer's right or the job's version does not hold: the due row stays, and nothing is written."""

    async def untouched(self, world: StoreWorld) -> bool:
        return len(await world.due()) == 1 and await world.rows("runs") == [] and await world.rows("skips") == []

    async def test_for_a_job_that_changed_meanwhile(self, world: StoreWorld, moving: bool) -> None:
        term, job = await world.own(0), await world.plant_job()
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US if moving else None)
        await world.bump_version(job)
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, set(fired.fences)) == (NONE, {(0, 1)})
        assert await self.untouched(world)

    async def test_for_a_row_that_is_gone(self, world: StoreWorld, moving: bool) -> None:
        term, job = await world.own(0), await world.plant_job()
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US if moving else None)
        await world.eye.execute("DELETE FROM due")
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, fired.made, set(fired.fences)) == (NONE, {}, {(0, 1)})
        assert await world.rows("runs") == []

    async def test_under_a_term_that_was_never_opened(self, world: StoreWorld, moving: bool) -> None:
        term, job = await world.own(0), await world.plant_job()
        item = fire_chain(
            world, job, await world.plant_occurrence(job), replace(term, term=2), next_us=NEXT_US if moving else None
        )
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, fired.fences) == (NONE, {})
        assert await self.untouched(world)

    async def test_by_somebody_else_than_the_owner(self, world: StoreWorld, moving: bool) -> None:
        term, job = await world.own(0), await world.plant_job()
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US if moving else None)
        fired = await world.firing(OTHER).fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, fired.fences) == (NONE, {})
        assert await self.untouched(world)

    async def test_under_a_closed_term(self, world: StoreWorld, moving: bool) -> None:
        term, job = await world.own(0), await world.plant_job()
        item = fire_chain(world, job, await world.plant_occurrence(job), term, next_us=NEXT_US if moving else None)
        await world.take_over(term)
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        assert (fired.consumed, fired.fences) == (NONE, {})
        assert await self.untouched(world)

    async def test_in_a_bucket_outside_the_terms_range_but_the_fence_is_seen(
        self, world: StoreWorld, moving: bool
    ) -> None:
        term, job = await world.own(0), await world.plant_job()
        late = await world.plant_occurrence(job, NOW_US + HOUR_US)
        successor = await world.split(term, world.bucket + 1)
        item = fire_chain(world, job, late, term, next_us=2 * HOUR_US + NOW_US if moving else None)
        fired = await world.firing().fire_chains([item], now_us=NOW_US + HOUR_US)
        assert fired.consumed == set()
        assert fired.fences == {(0, 1): FenceView(0, 1, term.from_bucket, world.bucket + 1)}
        assert await self.untouched(world)
        early = await world.plant_occurrence(await world.plant_job())
        wrong = fire_chain(world, job, early, successor, next_us=NEXT_US if moving else None)
        fired = await world.firing(OTHER).fire_chains([wrong], now_us=NOW_US)
        assert (fired.consumed, set(fired.fences)) == (NONE, {(0, 2)})

    async def test_while_the_others_of_the_batch_go_on(self, world: StoreWorld, moving: bool) -> None:
        terms = [await world.own(0), await world.own(1)]
        jobs = [await world.plant_job(0), await world.plant_job(1)]
        rows = [await world.plant_occurrence(job) for job in jobs]
        await world.take_over(terms[0])
        items = [
            fire_chain(world, j, r, t, next_us=NEXT_US if moving else None)
            for j, r, t in zip(jobs, rows, terms, strict=True)
        ]
        fired = await world.firing().fire_chains(items, now_us=NOW_US)
        assert (fired.consumed, set(fired.fences)) == (frozenset({1}), {(1, 1)})
        assert [r.due_at_us for r in await world.due(0)] == [NOW_US]
        assert [run["shard"] for run in await world.rows("runs")] == [1]


class TestNextAttempts:
    """Due rows of kind RUN: the next attempt of a run that is there already."""

    async def test_a_waiting_retry_is_leased_as_the_next_attempt(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, attempt=1, not_before_us=NOW_US, started_us=7)
        row = await world.plant_retry(job, run_id)
        fired = await world.firing().fire_runs([fire_run(row, term, grant("worker-2"))], now_us=NOW_US + 3)
        assert (fired.consumed, attempts(fired)) == (FIRST, {0: 2})
        assert await world.due() == []
        run = await world.run(run_id)
        assert (run["state"], run["attempt"], run["worker"]) == (RunState.LEASED, 2, "worker-2")
        assert (run["started_us"], run["not_before_us"], run["token_hash"]) == (NOW_US + 3, 0, b"token")

    async def test_without_a_credit_it_is_made_ready_to_wait(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, attempt=1, not_before_us=NOW_US, started_us=7)
        row = await world.plant_retry(job, run_id)
        fired = await world.firing().fire_runs([fire_run(row, term)], now_us=NOW_US)
        assert (fired.consumed, attempts(fired)) == (FIRST, {0: 1})
        run = await world.run(run_id)
        assert (run["state"], run["attempt"], run["not_before_us"]) == (RunState.PENDING, 1, 0)
        assert run["started_us"] == 7

    async def test_the_firing_term_becomes_the_runs_home(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US)
        successor = await world.take_over(term)
        row = await world.plant_retry(job, run_id)
        await world.firing(OTHER).fire_runs([fire_run(row, successor)], now_us=NOW_US)
        assert (await world.run(run_id))["home_term"] == successor.term

    async def test_a_canceled_run_stays_so_and_its_due_row_goes(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.CANCELED)
        row = await world.plant_retry(job, run_id)
        fired = await world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US)
        assert (fired.consumed, fired.made) == (FIRST, {})
        assert await world.due() == []
        assert (await world.run(run_id))["state"] == RunState.CANCELED

    async def test_a_second_firing_leaves_the_attempt_alone(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US)
        item = fire_run(await world.plant_retry(job, run_id), term, grant())
        await world.firing().fire_runs([item], now_us=NOW_US)
        again = await world.firing().fire_runs([item], now_us=NOW_US)
        assert (again.consumed, attempts(again), set(again.fences)) == (FIRST, {0: 2}, {(0, 1)})
        assert (await world.run(run_id))["attempt"] == 2

    async def test_an_attempt_that_another_secret_holds_is_not_taken_for_an_own_effect(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US)
        row = await world.plant_retry(job, run_id)
        await world.firing().fire_runs([fire_run(row, term, grant())], now_us=NOW_US)
        other = fire_run(row, term, LeaseGrant("worker-1", b"another", NOW_US + LEASE_US))
        again = await world.firing().fire_runs([other], now_us=NOW_US)
        assert (again.consumed, again.made) == (NONE, {})

    async def test_a_closed_term_starts_nothing(self, world: StoreWorld) -> None:
        term, job = await world.own(0), await world.plant_job()
        run_id = await world.plant_run(job, state=RunState.PENDING, not_before_us=NOW_US)
        item = fire_run(await world.plant_retry(job, run_id), term, grant())
        await world.take_over(term)
        fired = await world.firing().fire_runs([item], now_us=NOW_US)
        assert (fired.consumed, fired.fences) == (NONE, {})
        assert [row.kind for row in await world.due()] == [DueKind.RUN]
        assert (await world.run(run_id))["state"] == RunState.PENDING


async def test_a_paused_jobs_row_is_left_to_a_decision_for_its_present_version(world: StoreWorld) -> None:
    """Pausing bumps the version, so the version alone decides: the state needs no test of its own."""
    term, job = await world.own(0), await world.plant_job(state=JobState.PAUSED, version=3)
    row = await world.plant_occurrence(job)
    stale = fire_chain(world, job, row, term, next_us=NEXT_US, expect_version=2)
    assert (await world.firing().fire_chains([stale], now_us=NOW_US)).consumed == set()
    decided = fire_chain(world, job, row, term, makes_run=False)
    assert (await world.firing().fire_chains([decided], now_us=NOW_US)).consumed == {0}


def attempts(fired: Fired) -> dict[int, int]:
    """The attempt number of each run that was made, by position."""
    return {position: made.attempt for position, made in fired.made.items()}
