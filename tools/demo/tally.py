"""Counts starts as they come, so that each picture costs the same however long the demo has run."""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Sequence

from tools.demo.judge import Occurrence, quantile_us
from tools.demo.screen import StartRow

RECENT = 100


class Tally:
    """What has started so far, and where it was when it was seen."""

    def __init__(self) -> None:
        self.late_us: list[int] = []
        self.recent: deque[StartRow] = deque(maxlen=RECENT)
        # By worker, and by the dispatcher that owned the shard.
        self.ran: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.early = 0
        self.doubled = 0
        self._seen: set[Occurrence] = set()

    def add(self, rows: Sequence[StartRow]) -> None:
        """These have started."""
        for row in rows:
            occurrence = (row.start.job, row.start.scheduled_us)
            self.doubled += occurrence in self._seen
            self._seen.add(occurrence)
            self.early += row.start.late_us < 0
            self.ran[row.worker] += 1
            self.fired[row.dispatcher] += 1
            self.recent.append(row)
            insort(self.late_us, row.start.late_us)

    def quantile_us(self, share: float) -> int:
        """The lateness that `share` of the starts do not exceed."""
        return quantile_us(self.late_us, share)
