"""Which starts count for which figure: by when they were due, and by what their shard went through. Pure.

Called by the cases of shards on the move. All instants are microseconds of the machine's one clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

US = 1_000_000
# Around a boundary: what was due so long before it, and so long after.
BOUNDARY_BEFORE_US = 1 * US
BOUNDARY_AFTER_US = 2 * US


class Late(Protocol):
    """A start of a handler, as far as it matters here."""

    @property
    def shard(self) -> int: ...
    @property
    def due_us(self) -> int: ...
    @property
    def late_ms(self) -> float: ...


@dataclass(frozen=True)
class Span:
    """A stretch of time, [from_us, to_us); with `shard` it is about that shard alone."""

    from_us: int
    to_us: int
    shard: int | None = None

    def holds(self, start: Late) -> bool:
        """Whether what started was due within it."""
        return self.from_us <= start.due_us < self.to_us and self.shard in (None, start.shard)


def late_within(starts: Iterable[Late], spans: Sequence[Span]) -> list[float]:
    """Lateness in milliseconds of what was due within any of the spans, each start once."""
    anywhere = [span for span in spans if span.shard is None]
    of_shard: dict[int, list[Span]] = {}
    for span in spans:
        if span.shard is not None:
            of_shard.setdefault(span.shard, []).append(span)
    return [
        start.late_ms
        for start in starts
        if any(span.holds(start) for span in (*anywhere, *of_shard.get(start.shard, ())))
    ]


def boundary_span(shard: int, boundary: int, width_us: int) -> Span:
    """Where a move of the shard at that bucket could be felt."""
    at_us = boundary * width_us
    return Span(at_us - BOUNDARY_BEFORE_US, at_us + BOUNDARY_AFTER_US, shard)


def evening(owners: Mapping[int, str], dispatchers: Collection[str]) -> dict[str, list[int]]:
    """The fewest moves (target -> shards) after which no dispatcher has two shards more than another."""
    counts = Counter(dict.fromkeys(dispatchers, 0))
    counts.update(owner for owner in owners.values() if owner in counts)
    held = dict(owners)
    moves: dict[str, list[int]] = {}
    while True:
        most, least = max(sorted(counts), key=counts.__getitem__), min(sorted(counts), key=counts.__getitem__)
        if counts[most] - counts[least] < 2:
            return moves
        shard = max(shard for shard, owner in held.items() if owner == most)
        held[shard] = least
        counts[most] -= 1
        counts[least] += 1
        moves.setdefault(least, []).append(shard)
