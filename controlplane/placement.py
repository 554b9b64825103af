"""Which dispatcher should own which shard: an even spread with as few moves as there can be. Pure and deterministic.

The same input gives the same answer on every replica, so that a change of leader moves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def place(shards: Sequence[int], dispatchers: Collection[str], present: Mapping[int, str]) -> dict[int, str]:
    """A dispatcher for each shard; shares differ by at most one.

    `present` says where a shard is, or is on its way to, if it may stay there; entries that name no one of
    `dispatchers` are shards without a home. Empty when there are no dispatchers.
    """
    if not dispatchers:
        return {}
    held: dict[str, list[int]] = {dispatcher: [] for dispatcher in sorted(dispatchers)}
    homeless: list[int] = []
    for shard in sorted(shards):
        held.get(present.get(shard, ""), homeless).append(shard)
    shares = _shares(len(shards), held)
    placed: dict[int, str] = {}
    for dispatcher, kept in held.items():
        placed.update(dict.fromkeys(kept[: shares[dispatcher]], dispatcher))
        homeless += kept[shares[dispatcher] :]
        shares[dispatcher] -= min(len(kept), shares[dispatcher])
    for shard in sorted(homeless):
        roomiest = min(shares, key=lambda each: (-shares[each], each))
        placed[shard] = roomiest
        shares[roomiest] -= 1
    return placed


def _shares(shard_count: int, held: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """How many shards each is to have. The larger shares go to those that hold most: fewer shards move."""
    base, larger = divmod(shard_count, len(held))
    by_holding = sorted(held, key=lambda each: (-len(held[each]), each))
    return {dispatcher: base + (position < larger) for position, dispatcher in enumerate(by_holding)}
