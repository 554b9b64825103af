"""What PostgreSQL makes of the statements about terms: every row is found by its shard, however long the history is."""

from __future__ import annotations

import pytest

from tests.support.plans import ROWS, both_modes, conditions, crowd
from tests.support.splits import split_call
from tests.support.store_world import OTHER, OWNER, StoreWorld

TERMS = f"""
    INSERT INTO shard_terms SELECT 1 + n % 20, 2 + n / 20, 0, 1, 'x', gen_random_uuid(), 2, 0, ''
    FROM generate_series(1, {ROWS}) AS n"""


@pytest.fixture
async def aged(world: StoreWorld) -> StoreWorld:
    """Shards whose terms have changed hands hundreds of times."""
    await world.own(0)
    return await crowd(world, besides=(TERMS,))


@both_modes
async def test_newest_terms_are_found(aged: StoreWorld, mode: str) -> None:
    found = (await conditions(aged, "list_newest_terms", mode, shards=[0, 1]))["shard_terms"]
    assert len(found) == 2
    assert all("shard" in condition for condition in found)


@both_modes
async def test_a_split_and_a_close_find_their_rows(aged: StoreWorld, mode: str) -> None:
    term = (await aged.terms.history(0))[0]
    cut = split_call(aged, term, 10)
    found = (await conditions(aged, cut.name, mode, **cut.params))["shard_terms"]
    assert all("shard" in condition for condition in found)
    params = {**cut.params, "next_terms": [2], "owner": OTHER}
    found = (await conditions(aged, "close_drained_terms", mode, **params))["shard_terms"]
    assert all("shard" in condition and "term" in condition for condition in found)


@both_modes
async def test_the_range_before_is_found(aged: StoreWorld, mode: str) -> None:
    params = {"owner": OWNER, "fence_shards": [0], "fence_terms": [1]}
    params |= {"shards": [0], "terms": [1], "olds": [0], "news": [1]}
    for statement in ("raise_floors", "raise_watermarks", "raise_open_from_marks"):
        found = (await conditions(aged, statement, mode, **params))["shard_terms"]
        assert len(found) == 2
        assert all("shard" in condition for condition in found)
