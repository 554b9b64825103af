"""The values by which a dispatcher proves its right to write: (shard, term), and the buckets that it covers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.buckets import NO_END
from core.states import TermState


@dataclass(frozen=True, slots=True)
class TermRow:
    """One tenure of a shard over the buckets [from_bucket, to_bucket), as the row in `shard_terms` says it."""

    shard: int
    term: int
    from_bucket: int
    to_bucket: int
    owner: str
    state: TermState
    opened_us: int = 0
    reason: str = ""

    @property
    def has_end(self) -> bool:
        return self.to_bucket != NO_END

    def covers(self, bucket: int) -> bool:
        return self.from_bucket <= bucket < self.to_bucket

    @property
    def key(self) -> tuple[int, int]:
        return self.shard, self.term


@dataclass(frozen=True, slots=True)
class FenceView:
    """What a fenced statement saw of one term row, returned beside its counts so that "0 rows" is never ambiguous."""

    shard: int
    term: int
    from_bucket: int
    to_bucket: int
