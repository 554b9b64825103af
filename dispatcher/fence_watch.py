"""What fenced statements tell about our terms: proof that they hold, or a refusal.

Every caller of a fenced statement hands in the terms it wrote under and the term rows that the statement saw. A term
that was not seen is refused: it is counted, nothing more is tried under it, and ownership reads the terms again by key
before anything is concluded (rule of ownership 7). A term whose range ends earlier than we believed was split: what is
due below the boundary stays ours, the rest is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from core.fence import FenceView
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.holdings import Holdings, Key
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)


class FenceWatch:
    """Counts refusals and stops acting under refused terms."""

    def __init__(self, runtime: Runtime, memory: Memory) -> None:
        self._runtime = runtime
        self._memory = memory

    @property
    def holdings(self) -> Holdings:
        return self._memory.holdings

    def note(
        self, asked: Iterable[Key], seen: Mapping[Key, FenceView], *, sent_s: float, kind: RefusedWrite
    ) -> set[Key]:
        """Learn from one statement sent at `sent_s`; returns the terms that were refused.

        `asked` may name a term once for each row that was to be written: each is a refused write.
        """
        for split, to_bucket in self._memory.holdings.note(seen.values(), sent_s):
            log.info("shard %d: term %d was split at bucket %d", split.shard, split.term, to_bucket)
            self._memory.cut(split, to_bucket)
        refused: set[Key] = set()
        writes = 0
        for key in asked:
            if key not in seen:
                refused.add(key)
                writes += 1
        if refused:
            self._runtime.metrics.refused(kind, writes)
            for key in refused:
                held = self._memory.holdings.get(key)
                if held is not None:
                    held.acting = False
            self._memory.wakes.own.set()
        return refused

    def outside(self, kind: RefusedWrite, writes: int) -> None:
        """So many rows were refused for their bucket alone: the term holds, but no longer there."""
        if writes:
            self._runtime.metrics.refused(kind, writes)
