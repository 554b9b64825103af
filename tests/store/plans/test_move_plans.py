"""What PostgreSQL makes of the statements about moves and rules: keys and ranges, however many moves have ended."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.plans import ROWS, Lookup, both_modes, check, crowd, each_of
from tests.support.store_world import NOW_US, StoreWorld

ID = UUID(int=7)
MOVES = f"""
    INSERT INTO shard_moves (move_id, shard, from_owner, from_term, to_dispatcher, cause, state, author, reason,
                             request_id, requested_us, ended_us)
    SELECT gen_random_uuid(), n, 'a', 1, 'b', 2, CASE WHEN n % 500 = 0 THEN 2 ELSE 4 END, '', '', '',
           {NOW_US} - n, CASE WHEN n % 500 = 0 THEN 0 ELSE n END
    FROM generate_series(1, {ROWS}) AS n"""
RULES = f"INSERT INTO placement_rules SELECT 2, n::text, '', '', 0 FROM generate_series(1, {ROWS}) AS n"


@pytest.fixture
async def crowded(world: StoreWorld) -> StoreWorld:
    """Many moves of which few are open, and many rules."""
    return await crowd(world, besides=(MOVES, RULES))


FOUND: list[Lookup] = [
    ("get_move", {"move_id": ID}, "shard_moves", ("move_id =",)),
    ("find_open_move", {"shard": 500}, "shard_moves", ("shard =",)),
    (
        "list_moves",
        {"before_us": NOW_US, "before_id": ID, "row_limit": 100},
        "shard_moves",
        ("requested_us", "move_id"),
    ),
    (
        "list_moves_of_shard",
        {"shard": 7, "before_us": NOW_US, "before_id": ID, "row_limit": 100},
        "shard_moves",
        ("shard =", "requested_us", "move_id"),
    ),
    ("list_moves_since", {"since_us": NOW_US - 60, "row_limit": 100}, "shard_moves", ("requested_us >=",)),
    ("list_old_moves", {"before_us": NOW_US - 4_000, "row_limit": 100}, "shard_moves", ("requested_us <",)),
    ("delete_moves", {"move_ids": [ID]}, "shard_moves", ("move_id = ANY",)),
    (
        "advance_moves",
        {
            "move_ids": [ID],
            "old_states": [1],
            "new_states": [2],
            "errors": [""],
            **{name: [0] for name in ("boundaries", "new_terms", "ordered", "splits", "ends")},
        },
        "shard_moves",
        ("move_id =",),
    ),
    ("find_placement_rule", {"kind": 2, "subject": "5"}, "placement_rules", ("kind =", "subject =")),
]


@both_modes
@each_of(FOUND)
async def test_rows_are_found_by_their_keys(crowded: StoreWorld, mode: str, lookup: Lookup) -> None:
    await check(crowded, lookup, mode)


async def test_open_moves_are_found_without_those_that_have_ended(crowded: StoreWorld) -> None:
    """The index holds the open ones alone, in the order that is asked for."""
    plan = await crowded.eye.fetch(
        "EXPLAIN SELECT move_id FROM shard_moves m WHERE m.ended_us = 0 ORDER BY m.shard LIMIT 1000"
    )
    assert "shard_moves_open" in plan[1][0]
