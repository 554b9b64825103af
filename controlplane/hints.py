"""Tells the owner of a shard that something landed in it, or that a run was canceled. Hints only.

The API hands a hint over and never waits for it: what is pending is bounded, and sorted by owner when it is sent. A
hint that is lost, late or sent to a wrong owner costs a tick of the due loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from core.clock import Clock
from core.coord.ports import CoordView
from core.hint_post import HintPost
from core.tasks import Wake

_PENDING_RUNS = 10_000
_IDLE_TICK_S = 5.0


class HintSink(Protocol):
    """Where the API leaves its hints; no call waits."""

    def landed(self, shard: int) -> None:
        """A due row landed in `shard`."""
        ...

    def canceled(self, shard: int, run_id: UUID) -> None:
        """The cancel of a run of `shard` was written."""
        ...


class Hints:
    """Implements HintSink over a post to the dispatchers."""

    def __init__(self, coord: CoordView, clock: Clock) -> None:
        self._coord = coord
        self._clock = clock
        self._post = HintPost(coord, clock)
        self._landed: set[int] = set()
        self._canceled: dict[UUID, int] = {}
        self._wake = Wake()

    def landed(self, shard: int) -> None:
        self._landed.add(shard)
        self._wake.set()

    def canceled(self, shard: int, run_id: UUID) -> None:
        if len(self._canceled) < _PENDING_RUNS:
            self._canceled[run_id] = shard
            self._wake.set()

    async def run(self) -> None:
        """Send for ever; the connections are closed when this is cancelled."""
        await asyncio.gather(self._sort(), self._post.run())

    async def _sort(self) -> None:
        while True:
            await self._wake.wait(self._clock, _IDLE_TICK_S)
            self._address()

    def _address(self) -> None:
        """Put what is pending into the post, to the owner's address; what has no known owner is dropped."""
        landed, self._landed = self._landed, set()
        canceled, self._canceled = self._canceled, {}
        by_owner: dict[str, tuple[list[int], list[UUID]]] = {}
        owners = self._coord.owners()
        for shard in landed:
            if shard in owners:
                by_owner.setdefault(owners[shard].dispatcher_id, ([], []))[0].append(shard)
        for run_id, shard in canceled.items():
            if shard in owners:
                by_owner.setdefault(owners[shard].dispatcher_id, ([], []))[1].append(run_id)
        for owner, (shards, run_ids) in by_owner.items():
            address = self._post.address_of(owner)
            if address is not None:
                self._post.put(address, landed=shards, canceled=run_ids)
