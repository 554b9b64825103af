"""The terms this dispatcher holds, as it believes: ranges of buckets a shard, with their marks. No I/O.

Ownership fills and empties it; everything that acts asks it which term covers a bucket. A belief that is wrong costs
nothing but a refused statement: SQL decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.fence import FenceView, TermRow
from core.store.marks import Marks

Key = tuple[int, int]


@dataclass(slots=True)
class HeldTerm:
    """One held range; buckets [from_bucket, to_bucket).

    `acting` is false while nothing may be written under it: a refusal is being looked into, or it is being given up.
    """

    shard: int
    term: int
    from_bucket: int
    to_bucket: int
    floor: int
    watermark: int
    open_from_us: int
    # Monotonic seconds at which SQL was last seen to hold this term for us.
    proven_s: float
    acting: bool = True
    # Its runs are on their way to a later term of ours: it is neither acted under nor adopted into any more.
    leaving: bool = False
    # A run that is made with scheduled_for below this stands in open_runs from its birth. At least open_from_us.
    stand_before_us: int = 0
    # How often memory may have missed an open run (an answer was lost), and how often it had no room for one.
    doubts: int = 0
    overflows: int = 0
    # Monotonic seconds of the last doubt: the write may still be under way in the server for a while.
    doubted_s: float = float("-inf")
    # Both counts, as they stood before the last adoption that was completed.
    resolved: tuple[int, int] | None = None
    # Monotonic seconds of the claim.
    since_s: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether memory holds every open run that is at home here."""
        return self.resolved == (self.doubts, self.overflows)

    @property
    def doubtful(self) -> bool:
        """Whether open runs may be missing that memory has room for."""
        return self.resolved is None or self.resolved[0] != self.doubts

    @property
    def overflowed(self) -> bool:
        """Whether some waiting runs are in SQL alone, for want of room."""
        return self.resolved is not None and self.resolved[1] != self.overflows

    @property
    def key(self) -> Key:
        return self.shard, self.term

    def covers(self, bucket: int) -> bool:
        return self.from_bucket <= bucket < self.to_bucket


class Holdings:
    """Ranges by shard. A shard may be held in several ranges, under several terms."""

    def __init__(self) -> None:
        self._terms: dict[Key, HeldTerm] = {}
        self._by_shard: dict[int, list[HeldTerm]] = {}

    def __iter__(self) -> Iterator[HeldTerm]:
        return iter(list(self._terms.values()))

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def shards(self) -> set[int]:
        return set(self._by_shard)

    def get(self, key: Key) -> HeldTerm | None:
        return self._terms.get(key)

    def of_shard(self, shard: int) -> list[HeldTerm]:
        return self._by_shard.get(shard, [])

    def covering(self, shard: int, bucket: int) -> HeldTerm | None:
        """The acting term that covers `bucket` of `shard`, if we hold one."""
        for held in self._by_shard.get(shard, ()):
            if held.acting and held.covers(bucket):
                return held
        return None

    def add(self, row: TermRow, marks: Marks, proven_s: float) -> HeldTerm:
        """Take up a term whose claim has committed."""
        held = HeldTerm(
            row.shard,
            row.term,
            row.from_bucket,
            row.to_bucket,
            marks.floor,
            marks.watermark,
            marks.open_from_us,
            proven_s,
            stand_before_us=marks.open_from_us,
            since_s=proven_s,
        )
        self._terms[held.key] = held
        self._by_shard.setdefault(row.shard, []).append(held)
        return held

    def drop(self, key: Key) -> HeldTerm | None:
        """Forget a term; the others of its shard stay."""
        held = self._terms.pop(key, None)
        if held is not None:
            left = [other for other in self._by_shard[held.shard] if other is not held]
            if left:
                self._by_shard[held.shard] = left
            else:
                del self._by_shard[held.shard]
        return held

    def note(self, views: Iterable[FenceView], seen_s: float) -> list[tuple[HeldTerm, int]]:
        """Learn from the term rows that a statement saw: they are proven.

        Returns those whose range ends earlier than believed, with that end: they were split.
        """
        shorter = []
        for view in views:
            held = self._terms.get((view.shard, view.term))
            if held is not None:
                held.proven_s = max(held.proven_s, seen_s)
                if view.to_bucket < held.to_bucket:
                    shorter.append((held, view.to_bucket))
        return shorter

    def learn(self, marks: Mapping[int, Marks]) -> None:
        """Believe these marks of shards, just read: another owner of the shard may have moved them."""
        for shard, stands in marks.items():
            for held in self.of_shard(shard):
                held.floor = max(held.floor, stands.floor)
                held.watermark = max(held.watermark, stands.watermark)
                held.open_from_us = max(held.open_from_us, stands.open_from_us)
                held.stand_before_us = max(held.stand_before_us, stands.open_from_us)
