"""Buckets: fixed-width slices of time, counted from the epoch. Pure.

bucket = floor(instant / width). The width is fixed for a cluster's life (table `cluster`), 5 s unless told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

# Stands for "without end" in shard_terms.to_bucket; no instant before the year 2200 reaches it at any allowed width.
NO_END = 2**62


@dataclass(frozen=True, slots=True)
class BucketScale:
    """Maps instants (microseconds) to buckets and back. `width_ms` is in [100, 3_600_000]."""

    width_ms: int

    def __post_init__(self) -> None:
        if not 100 <= self.width_ms <= 3_600_000:
            raise ValueError(f"bucket width must be within 100 ms and 1 h, not {self.width_ms} ms")

    @property
    def width_us(self) -> int:
        return self.width_ms * 1000

    def bucket_of(self, instant_us: int) -> int:
        """The bucket that holds `instant_us`."""
        return instant_us // self.width_us

    def start_us(self, bucket: int) -> int:
        """The first instant of `bucket`."""
        return bucket * self.width_us
