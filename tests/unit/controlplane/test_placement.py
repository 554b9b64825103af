"""Placement: even, with as few moves as there can be, and the same on every replica."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.placement import place

SHARDS = list(range(16))


def test_shares_differ_by_at_most_one() -> None:
    assert sorted(Counter(place(SHARDS, ["a", "b", "c"], {}).values()).values()) == [5, 5, 6]


def test_nobody_is_given_nothing() -> None:
    assert place(SHARDS, [], dict.fromkeys(SHARDS, "a")) == {}


def test_an_even_spread_is_left_alone() -> None:
    present = {shard: "a" if shard % 2 else "b" for shard in SHARDS}
    assert place(SHARDS, ["b", "a"], present) == present


def test_who_joins_gets_its_share_and_no_shard_moves_between_the_others() -> None:
    present = {shard: "a" if shard < 8 else "b" for shard in SHARDS}
    placed = place(SHARDS, ["a", "b", "c"], present)
    moved = {shard for shard in SHARDS if placed[shard] != present[shard]}
    assert {placed[shard] for shard in moved} == {"c"}
    assert len(moved) == 5


def test_who_leaves_costs_its_own_shards_only() -> None:
    present = {shard: "abc"[shard % 3] for shard in SHARDS}
    placed = place(SHARDS, ["a", "c"], present)
    assert all(placed[shard] == present[shard] for shard in SHARDS if present[shard] != "b")
    assert sorted(Counter(placed.values()).values()) == [8, 8]


def test_there_may_be_more_dispatchers_than_shards() -> None:
    assert set(Counter(place([0, 1], ["a", "b", "c"], {}).values()).values()) == {1}


@settings(deadline=None)
@given(
    st.integers(1, 64),
    st.sets(st.sampled_from("abcdefg"), min_size=1),
    st.dictionaries(st.integers(0, 63), st.sampled_from("abcdefghi")),
)
def test_always_even_deterministic_and_with_no_needless_move(
    count: int, dispatchers: set[str], present: dict[int, str]
) -> None:
    shards = list(range(count))
    placed = place(shards, dispatchers, present)
    assert sorted(placed) == shards
    assert placed == place(list(reversed(shards)), sorted(dispatchers, reverse=True), dict(reversed(present.items())))
    shares = Counter(dict.fromkeys(dispatchers, 0))
    shares.update(placed.values())
    assert max(shares.values()) - min(shares.values()) <= 1
    assert place(shards, dispatchers, placed) == placed
    # As many stay as can: each keeps up to its share, and the larger shares go to those who hold most.
    held = sorted((sum(present.get(s) == d for s in shards) for d in dispatchers), reverse=True)
    base, larger = divmod(count, len(dispatchers))
    most = sum(min(has, base + (n < larger)) for n, has in enumerate(held))
    assert sum(placed[shard] == present.get(shard) for shard in shards) == most
