"""The checker finds defects planted into statements: single writers play owners, old and new, against a real database.

Each scenario runs twice: with the defect the history must break the named invariant, without it none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import asyncpg
import pytest

from core.clock import US_PER_S
from core.fence import TermRow
from core.states import AttemptOutcome, RunState
from core.store.completion import Ending
from core.store.leases import LeaseOrder
from core.store.marks import Raise
from core.store.terms import Claim, Drained, Split
from tests.support.history_room import judged
from tests.support.planted_trials import Trial, trials_of
from tests.support.store_world import NOW_US, OTHER, StoreWorld, fire_chain, grant

Scenario = Callable[[StoreWorld], Awaitable[None]]
TOKEN, WIDTH_US = b"token", 5 * US_PER_S


async def fired(world: StoreWorld, *, leased: bool = True) -> tuple[Ending, int]:
    """A run, fired and leased under term 1 of shard 0; returns how its worker would end it, and when its lease ends."""
    term = await world.own(0)
    job = await world.plant_job()
    row = await world.plant_occurrence(job)
    lease = grant(until_us=NOW_US * 2) if leased else None
    await world.firing().fire_chains([fire_chain(world, job, row, term, lease=lease)], now_us=NOW_US)
    run_id = job.run_id(NOW_US)
    ending = Ending(0, 1, run_id, 1, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, token_hash=TOKEN, result=b"x")
    return ending, NOW_US * 2


def to_retry(world: StoreWorld, ending: Ending, at_us: int) -> Ending:
    return replace(
        ending,
        state=RunState.PENDING,
        outcome=AttemptOutcome.FAILED,
        result=None,
        retry_at_us=at_us,
        retry_bucket=world.scale.bucket_of(at_us),
    )


async def split_at_next(world: StoreWorld) -> None:
    """Term 1 of shard 0 is OWNER's up to the coming bucket, term 2 is OTHER's from there."""
    term = (await world.terms.history(0))[0]
    async with world.eye.transaction():
        await world.split(term, world.bucket + 1)


# ---- the scenarios ----


async def an_owner_takes_a_result_after_it_was_passed_over(world: StoreWorld) -> None:
    ending, _ = await fired(world)
    await world.take_over((await world.terms.history(0))[0])
    await world.completion().end([ending], now_us=NOW_US)


async def an_owner_fires_what_lies_at_the_boundary(world: StoreWorld) -> None:
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job, NOW_US + WIDTH_US)
    await split_at_next(world)
    await world.firing().fire_chains([fire_chain(world, job, row, term)], now_us=NOW_US + WIDTH_US)


async def somebody_claims_a_shard_as_if_nobody_had_it(world: StoreWorld) -> None:
    await world.own(0)
    await claim(world, Claim(0, None))


async def a_claim_names_a_term_as_it_was_before_its_split(world: StoreWorld) -> None:
    term = await world.own(0)
    await split_at_next(world)
    await claim(world, Claim(0, term))


async def a_shard_is_handed_off(world: StoreWorld) -> None:
    term = await world.own(0)
    await split(world, term, world.bucket + 1, OTHER)


async def a_shard_is_handed_on_before_it_has_arrived(world: StoreWorld) -> None:
    await a_shard_is_handed_off(world)
    await split(world, (await world.terms.history(0))[1], world.bucket + 2, "dispatcher-c")


async def the_new_owner_closes_too_soon(world: StoreWorld) -> None:
    await a_shard_is_handed_off(world)
    before, after = await world.terms.history(0)
    await world.terms.close_drained([Drained(before, after.term)], owner=OTHER, op_id=world.rand.uuid(), now_us=NOW_US)


async def split(world: StoreWorld, term: TermRow, boundary: int, owner: str) -> None:
    wish = Split(0, term, boundary)
    await world.terms.split([wish], owner=owner, op_id=world.rand.uuid(), now_us=NOW_US, reason="move")


async def claim(world: StoreWorld, wish: Claim) -> None:
    await world.terms.claim([wish], owner="dispatcher-c", op_id=world.rand.uuid(), now_us=NOW_US, reason="takeover")


async def an_owner_reaps_what_came_home_to_another(world: StoreWorld) -> None:
    ending, until_us = await fired(world)
    await split_at_next(world)
    (found,) = await world.open_runs(OTHER).find(0, [(ending.run_id, type(ending.run_id)(int=ending.run_id.int + 1))])
    await world.open_runs(OTHER).adopt([found], shard=0, term=2, lease_until_us=until_us + US_PER_S)
    lost = replace(to_retry(world, ending, NOW_US + US_PER_S), token_hash=None, lease_until_us=until_us)
    await world.completion().end([replace(lost, outcome=AttemptOutcome.LOST)], now_us=until_us)


async def an_attempt_fails_and_is_retried(world: StoreWorld) -> None:
    ending, _ = await fired(world)
    await world.completion().end([to_retry(world, ending, NOW_US + US_PER_S)], now_us=NOW_US)


async def a_retry_lands_where_the_floor_has_passed(world: StoreWorld) -> None:
    ending, _ = await fired(world)
    await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 2)])
    await world.completion().end([to_retry(world, ending, NOW_US + US_PER_S)], now_us=NOW_US + 2 * WIDTH_US)


async def a_word_about_an_attempt_comes_twice(world: StoreWorld) -> None:
    ending, _ = await fired(world)
    await world.completion().end([ending], now_us=NOW_US)
    failed = replace(ending, state=RunState.FAILED, outcome=AttemptOutcome.FAILED, result=None)
    await world.completion().end([failed], now_us=NOW_US + 1)


async def a_leased_run_is_leased_to_another_worker(world: StoreWorld) -> None:
    ending, _ = await fired(world)
    order = LeaseOrder(0, 1, ending.run_id, 2, replace(grant("worker-2"), token_hash=b"another"))
    await world.leases().lease([order], now_us=NOW_US)


async def the_new_owner_finishes_buckets_of_the_old_one(world: StoreWorld) -> None:
    await world.own(0)
    job = await world.plant_job()
    await world.plant_occurrence(job)
    await split_at_next(world)
    step = Raise(0, 2, world.bucket, world.bucket + 2)
    await world.marks(OTHER).raise_floors([step])
    await world.marks(OTHER).raise_watermarks([step])


SCENARIOS: list[tuple[str, Scenario, str]] = [
    ("no_term_check", an_owner_takes_a_result_after_it_was_passed_over, "VALID_TERM"),
    ("end_included", an_owner_fires_what_lies_at_the_boundary, "VALID_TERM"),
    ("claim_names_nothing", somebody_claims_a_shard_as_if_nobody_had_it, "TERMS_TILE"),
    ("claim_names_no_range", a_claim_names_a_term_as_it_was_before_its_split, "TERMS_TILE"),
    ("boundary_one_too_far", a_shard_is_handed_off, "TERMS_TILE"),
    ("split_twice", a_shard_is_handed_on_before_it_has_arrived, "TERMS_TILE"),
    ("closed_undrained", the_new_owner_closes_too_soon, "TERMS_TILE"),
    ("reaped_by_anyone", an_owner_reaps_what_came_home_to_another, "ONE_LEASE"),
    ("retry_lands_twice", an_attempt_fails_and_is_retried, "ONE_DUE_ROW"),
    ("retry_lands_anywhere", a_retry_lands_where_the_floor_has_passed, "ABOVE_FLOOR"),
    ("ended_runs_end_again", a_word_about_an_attempt_comes_twice, "ENDED_STAYS"),
    ("leased_over", a_leased_run_is_leased_to_another_worker, "ONE_LEASE"),
    ("finished_before_its_turn", the_new_owner_finishes_buckets_of_the_old_one, "BELOW_WATERMARK"),
]


@trials_of(SCENARIOS)
async def test_it_is_found_where_it_was_planted_and_there_alone(
    world: StoreWorld, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, trial: Trial[Scenario]
) -> None:
    trial.plant(monkeypatch)
    await trial.play(world)
    trial.check(await judged(observer))
