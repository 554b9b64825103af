"""Completion: how attempts end, who may end them, and where a retry lands."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.clock import US_PER_S
from core.fence import FenceView
from core.states import AttemptOutcome, DueKind, RunState
from core.store.completion import Ended, Ending
from core.store.marks import Raise
from tests.support.store_world import LEASE_US, NOW_US, OTHER, StoreWorld

RETRY_US = NOW_US + 10 * US_PER_S
ENDED_US = NOW_US + 3 * US_PER_S


def ending(run_id: UUID, state: RunState, outcome: AttemptOutcome = AttemptOutcome.FAILED, **changes: Any) -> Ending:
    """The end of attempt 1 under term 1 of shard 0, proven by its token."""
    values: dict[str, Any] = {"shard": 0, "term": 1, "attempt": 1, "token_hash": b"token", **changes}
    return Ending(run_id=run_id, state=state, outcome=outcome, **values)


def retry(world: StoreWorld, run_id: UUID, at_us: int = RETRY_US, **changes: Any) -> Ending:
    bucket = world.scale.bucket_of(at_us)
    return ending(run_id, RunState.PENDING, retry_at_us=at_us, retry_bucket=bucket, error="no luck", **changes)


async def end(world: StoreWorld, *items: Ending, owner: str = "") -> Ended:
    completion = world.completion(owner) if owner else world.completion()
    return await completion.end(items, now_us=ENDED_US)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED),
        (RunState.FAILED, AttemptOutcome.FAILED),
        (RunState.DEAD, AttemptOutcome.LOST),
        (RunState.CANCELED, AttemptOutcome.CANCELED),
    ],
)
async def test_an_attempt_ends_its_run_and_is_recorded(
    world: StoreWorld, state: RunState, outcome: AttemptOutcome
) -> None:
    term, job = await world.own(0), await world.plant_job()
    run_id = await world.plant_run(job)
    ended = await end(world, ending(run_id, state, outcome, error="why", result=b"42", result_type="text/plain"))
    assert ended.states == {0: state}
    assert ended.fences == {(0, 1): FenceView(0, 1, term.from_bucket, term.to_bucket)}
    run = await world.run(run_id)
    assert (run["state"], run["ended_us"], run["lease_until_us"], run["not_before_us"]) == (state, ENDED_US, 0, 0)
    assert (run["result"], run["result_type"], run["last_error"]) == (b"42", "text/plain", "why")
    assert await world.rows("attempts") == [
        {
            "run_id": run_id,
            "attempt": 1,
            "worker": "worker-1",
            "outcome": outcome,
            "started_us": NOW_US,
            "ended_us": ENDED_US,
            "term": 1,
            "error": "why",
        }
    ]
    assert await world.due() == []


class TestRetries:
    """Attempts after which the run goes on."""

    async def test_a_retry_waits_in_due_for_its_time(self, world: StoreWorld) -> None:
        await world.own(0)
        job = await world.plant_job()
        run_id = await world.plant_run(job)
        assert (await end(world, retry(world, run_id))).states == {0: RunState.PENDING}
        run = await world.run(run_id)
        assert (run["state"], run["attempt"], run["not_before_us"], run["ended_us"]) == (1, 1, RETRY_US, 0)
        assert (run["lease_until_us"], run["last_error"]) == (0, "no luck")
        (row,) = await world.due()
        assert (row.id, row.kind, row.job_id) == (run_id, DueKind.RUN, job.job_id)
        assert (row.due_at_us, row.bucket) == (RETRY_US, world.scale.bucket_of(RETRY_US))
        assert [a["outcome"] for a in await world.rows("attempts")] == [AttemptOutcome.FAILED]

    async def test_a_retry_never_lands_below_the_floor(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 9)])
        await end(world, retry(world, run_id, NOW_US + 1))
        (row,) = await world.due()
        assert (row.bucket, row.due_at_us) == (world.bucket + 9, NOW_US + 1)

    async def test_a_retry_at_once_is_the_owners_own_business(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        assert (await end(world, ending(run_id, RunState.PENDING))).states == {0: RunState.PENDING}
        assert await world.due() == []
        assert (await world.run(run_id))["not_before_us"] == 0

    async def test_a_run_whose_cancel_was_requested_is_canceled_instead(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), cancel_requested_us=NOW_US)
        assert (await end(world, retry(world, run_id))).states == {0: RunState.CANCELED}
        assert await world.due() == []
        run = await world.run(run_id)
        assert (run["state"], run["ended_us"], run["not_before_us"]) == (RunState.CANCELED, ENDED_US, 0)

    async def test_a_success_wins_over_a_requested_cancel(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), cancel_requested_us=NOW_US)
        assert (await end(world, ending(run_id, RunState.SUCCEEDED))).states == {0: RunState.SUCCEEDED}

    async def test_an_attempt_given_back_unstarted_does_not_count(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), last_error="of attempt 0")
        given_back = ending(run_id, RunState.PENDING, AttemptOutcome.LOST, uncounted=1, error="no slot")
        assert (await end(world, given_back)).states == {0: RunState.PENDING}
        run = await world.run(run_id)
        assert (run["attempt"], run["uncounted"], run["last_error"]) == (1, 1, "of attempt 0")
        assert await world.rows("attempts") == []

    async def test_progress_that_comes_with_the_end_replaces_what_was_written(self, world: StoreWorld) -> None:
        await world.own(0)
        runs = [await world.plant_run(await world.plant_job(), progress=b"a third") for _ in range(2)]
        await end(world, retry(world, runs[0], progress=b"half"), retry(world, runs[1]))
        assert [(await world.run(run_id))["progress"] for run_id in runs] == [b"half", b"a third"]

    async def test_retries_and_endings_share_a_batch(self, world: StoreWorld) -> None:
        await world.own(0)
        runs = [await world.plant_run(await world.plant_job()) for _ in range(3)]
        ended = await end(
            world, ending(runs[0], RunState.SUCCEEDED), retry(world, runs[1]), ending(runs[2], RunState.DEAD)
        )
        assert ended.states == {0: RunState.SUCCEEDED, 1: RunState.PENDING, 2: RunState.DEAD}
        assert [row.id for row in await world.due()] == [runs[1]]
        assert len(await world.rows("attempts")) == 3


class TestRefusals:
    """Words that come too late, or from the wrong side, change nothing."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"token_hash": b"another"},
            {"attempt": 2},
            {"attempt": 0},
            {"token_hash": None, "lease_until_us": NOW_US + LEASE_US - 1},
        ],
        ids=["wrong token", "an attempt to come", "an attempt before", "a lease that was renewed"],
    )
    async def test_of_a_wrong_proof(self, world: StoreWorld, changes: dict[str, Any]) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        before = await world.run(run_id)
        for item in (ending(run_id, RunState.SUCCEEDED, **changes), retry(world, run_id, **changes)):
            ended = await end(world, item)
            assert (ended.states, set(ended.fences)) == ({}, {(0, 1)})
        assert await world.run(run_id) == before
        assert await world.rows("attempts") == []
        assert await world.due() == []

    async def test_of_a_run_whose_home_is_another_term(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), home_term=7)
        ended = await end(world, ending(run_id, RunState.SUCCEEDED))
        assert (ended.states, set(ended.fences)) == ({}, {(0, 1)})

    @pytest.mark.parametrize("state", [s for s in RunState if s is not RunState.LEASED])
    async def test_of_a_run_that_is_not_leased(self, world: StoreWorld, state: RunState) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), state=state, token_hash=b"token")
        for item in (ending(run_id, RunState.SUCCEEDED), retry(world, run_id)):
            assert (await end(world, item)).states == {}
        assert (await world.run(run_id))["state"] == state

    async def test_under_a_closed_term_and_by_a_stranger(self, world: StoreWorld) -> None:
        term = await world.own(0)
        run_id = await world.plant_run(await world.plant_job())
        assert (await end(world, ending(run_id, RunState.SUCCEEDED), owner=OTHER)).fences == {}
        await world.take_over(term)
        for item in (ending(run_id, RunState.SUCCEEDED), retry(world, run_id)):
            ended = await end(world, item)
            assert (ended.states, ended.fences) == ({}, {})
        assert (await world.run(run_id))["state"] == RunState.LEASED

    async def test_leave_the_rest_of_the_batch_alone(self, world: StoreWorld) -> None:
        await world.own(0)
        good, bad = [await world.plant_run(await world.plant_job()) for _ in range(2)]
        ended = await end(world, ending(bad, RunState.SUCCEEDED, token_hash=b"x"), ending(good, RunState.SUCCEEDED))
        assert ended.states == {1: RunState.SUCCEEDED}

    async def test_are_settled_by_what_stands_there(self, world: StoreWorld) -> None:
        await world.own(0)
        run_id = await world.plant_run(await world.plant_job(), home_term=7)
        holding = (await world.completion().holdings([run_id]))[run_id]
        assert (holding.state, holding.attempt, holding.token_hash) == (RunState.LEASED, 1, b"token")
        assert (holding.home_term, holding.shard) == (7, 0)


async def test_ending_again_changes_nothing(world: StoreWorld) -> None:
    await world.own(0)
    items = [retry(world, await world.plant_run(await world.plant_job())) for _ in range(2)]
    await end(world, *items)
    before = (await world.due(), await world.rows("runs"), await world.rows("attempts"))
    assert (await end(world, *items)).states == {}
    assert (await world.due(), await world.rows("runs"), await world.rows("attempts")) == before


async def test_the_owner_reaps_a_lease_that_ended(world: StoreWorld) -> None:
    await world.own(0)
    run_id = await world.plant_run(await world.plant_job())
    proof: dict[str, Any] = {"token_hash": None, "lease_until_us": NOW_US + LEASE_US}
    assert (await end(world, retry(world, run_id, **proof))).states == {0: RunState.PENDING}


@pytest.mark.parametrize(
    ("state", "stands"), [(RunState.SUCCEEDED, False), (RunState.PENDING, True)], ids=["ended", "waiting"]
)
async def test_a_run_stands_in_open_runs_as_long_as_it_is_open(
    world: StoreWorld, state: RunState, stands: bool
) -> None:
    await world.own(0)
    job = await world.plant_job()
    run_id = await world.plant_run(job)
    await world.open_runs().stand([(0, 1, job.job_id, run_id)])
    await end(world, ending(run_id, state, stands_open=True))
    assert [row["run_id"] for row in await world.rows("open_runs")] == ([run_id] if stands else [])
