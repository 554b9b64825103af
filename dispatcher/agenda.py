"""The due rows this dispatcher has in memory, in order of time. No I/O.

Discovery fills it from scans, ahead of time; firing empties it. A row is in one of three places: waiting (in the heap),
acting (inside a statement), or gone. Rows that are consumed while a scan is under way are remembered until that scan
ends, since its snapshot may be older than their end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from core.store.discovery import DueRow, RowKey


def key_of(row: DueRow) -> RowKey:
    """The row's primary key."""
    return (row.shard, row.bucket, row.due_at_us, row.id)


class Agenda:
    """A heap of due rows by due_at, with every row at most once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, DueRow]] = []
        self._known: set[RowKey] = set()
        self._consumed: set[RowKey] = set()
        self._scanning = False
        self._counter = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_us(self) -> int | None:
        """When the first row is due, or None when nothing waits."""
        return self._heap[0][0] if self._heap else None

    def knows(self, key: RowKey) -> bool:
        """Whether the row with this key is in memory."""
        return key in self._known

    def begin_scan(self) -> None:
        """A scan is about to read: remember what is consumed from here on."""
        self._scanning = True
        self._consumed.clear()

    def end_scan(self, rows: Iterable[DueRow]) -> int:
        """Take up what the scan found; returns how many rows were new."""
        found = 0
        for row in rows:
            if key_of(row) not in self._consumed:
                found += self.add(row)
        self._scanning = False
        self._consumed.clear()
        return found

    def add(self, row: DueRow) -> bool:
        """Take up one row; false when it is known already."""
        key = key_of(row)
        if key in self._known:
            return False
        self._known.add(key)
        self._counter += 1
        heapq.heappush(self._heap, (row.due_at_us, self._counter, row))
        return True

    def take_due(self, now_us: int, limit: int) -> list[DueRow]:
        """Take up to `limit` rows that are due by `now_us`, earliest first, for a statement. They stay known."""
        taken: list[DueRow] = []
        while self._heap and len(taken) < limit and self._heap[0][0] <= now_us:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def done(self, row: DueRow) -> None:
        """The row is gone from `due`, or is somebody else's."""
        key = key_of(row)
        self._known.discard(key)
        if self._scanning:
            self._consumed.add(key)

    def put_back(self, row: DueRow) -> None:
        """The row was not consumed and is to be tried again."""
        self.postpone(row, row.due_at_us)

    def postpone(self, row: DueRow, until_us: int) -> None:
        """Nothing can be done about the row now: keep it away from the due loop until `until_us`."""
        self._counter += 1
        heapq.heappush(self._heap, (until_us, self._counter, row))

    def drop_uncovered(self, shard: int, low: int, high: int) -> None:
        """Forget waiting rows of `shard` in buckets [low, high): the range is no longer ours."""
        kept = [e for e in self._heap if not (e[2].shard == shard and low <= e[2].bucket < high)]
        if len(kept) < len(self._heap):
            for entry in self._heap:
                row = entry[2]
                if row.shard == shard and low <= row.bucket < high:
                    self._known.discard(key_of(row))
            heapq.heapify(kept)
            self._heap = kept
