"""Plays a dispatcher that owns shards by SQL and carries out what the plan orders, step by step as a test lets it.

It fires nothing. What a real owner needs seconds for (a boundary that passes, buckets that are finished) it does at
once, by raising the marks of whoever owned the shard before.
"""

from __future__ import annotations

import asyncio
from typing import Any

from core.buckets import BucketScale
from core.clock import SystemClock
from core.coord.layout import Assignment, Owner
from core.errors import OutcomeUnknown, Unavailable
from core.fence import TermRow
from core.rand import SystemRand
from core.states import TermState
from core.store.database import Database
from core.store.marks import MarkKeeper, Raise
from core.store.terms import Claim, Drained, Split, Terms
from tests.support.played_dispatcher import Dispatcher

_EVERY_S = 0.05
_BUCKETS_AHEAD = 2


class PlayedOwner(Dispatcher):
    """`splits` and `finishes` say whether it does these steps of a hand-off to itself now; `claims`, the rest."""

    def __init__(
        self, etcd: str, cluster: str, dispatcher_id: str, database: Database, shards: int, **member: Any
    ) -> None:
        super().__init__(etcd, cluster, dispatcher_id, **member)
        self.claims = self.splits = self.finishes = True
        self.lives = False
        self._database = database
        self._terms = Terms(database)
        self._shards = list(range(shards))
        self._scale = BucketScale(5_000)
        self._rand = SystemRand()
        self._owning: asyncio.Task[None] | None = None

    async def join(self) -> PlayedOwner:
        await super().join()
        self.lives, self._owning = True, asyncio.ensure_future(self._own())
        return self

    async def die(self) -> None:
        """Fall silent and do nothing more; etcd takes note of it."""
        await self.stop()
        self.coord.withdraw(self.dispatcher_id)
        await self.coord.settled()

    async def stop(self) -> None:
        """Fall silent and do nothing more; to etcd it lives on."""
        self.lives = False
        await self.silence()
        if self._owning is not None:
            self._owning.cancel()
            await asyncio.gather(self._owning, return_exceptions=True)

    async def leave(self) -> None:
        await self.stop()
        await super().leave()

    async def shards(self) -> set[int]:
        """The shards that it owns from now on, by SQL."""
        rows = await self._terms.newest(self._shards)
        last = {row.shard: row for row in sorted(_opened(rows), key=lambda row: row.from_bucket)}
        return {shard for shard, row in last.items() if row.owner == self.dispatcher_id}

    async def _own(self) -> None:
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(_EVERY_S)
            await asyncio.sleep(_EVERY_S)

    async def step(self) -> None:
        """Carry out what stands in the plan, as far as it is let, and finish hand-offs to itself."""
        rows = await self._terms.newest(self._shards)
        plan = self.coord.plan()
        for order in () if plan is None else plan.assignments:
            if order.dispatcher_id == self.dispatcher_id:
                await self._obey(order, [row for row in rows if row.shard == order.shard])
        if self.finishes:
            for shard in self._shards:
                await self._finish(_opened(row for row in rows if row.shard == shard))

    async def _obey(self, order: Assignment, rows: list[TermRow]) -> None:
        if order.replaces_term == 0:
            if not rows and self.claims:
                await self._claim(Claim(order.shard, None), "first claim")
            return
        for row in _opened(rows):
            if (row.term, row.owner) != (order.replaces_term, order.replaces_owner) or row.owner == self.dispatcher_id:
                continue
            if order.seize:
                if self.claims:
                    await self._claim(Claim(row.shard, row), "takeover")
            elif self.splits:
                await self._split(row, order)

    async def _claim(self, claim: Claim, reason: str) -> None:
        now_us = SystemClock().now_us()
        won = await self._terms.claim(
            [claim], owner=self.dispatcher_id, op_id=self._rand.uuid(), now_us=now_us, reason=reason
        )
        self._publish(won)

    async def _split(self, row: TermRow, order: Assignment) -> None:
        now_us = SystemClock().now_us()
        # Hand-offs that are finished at once leave the floor ahead of the time.
        floor = (await MarkKeeper(self._database, "").read([row.shard]))[row.shard].floor
        boundary = max(self._scale.bucket_of(now_us) + _BUCKETS_AHEAD, floor + 1)
        split = Split(row.shard, row, boundary, order.residency_us, order.planned_move)
        self._publish(
            await self._terms.split(
                [split], owner=self.dispatcher_id, op_id=self._rand.uuid(), now_us=now_us, reason="move"
            )
        )

    def _publish(self, won: list[TermRow]) -> None:
        for row in won:
            self.coord.publish_owner(Owner(row.shard, row.term, row.from_bucket, self.dispatcher_id))

    async def _finish(self, opened: list[TermRow]) -> None:
        """Finish the buckets before the boundary in the name of their owner, and close its term."""
        if len(opened) != 2 or opened[1].owner != self.dispatcher_id:
            return
        before, after = opened
        shard, keeper = before.shard, MarkKeeper(self._database, before.owner)
        marks = (await keeper.read([shard]))[shard]
        for raise_mark, old in ((keeper.raise_floors, marks.floor), (keeper.raise_watermarks, marks.watermark)):
            if old < before.to_bucket:
                await raise_mark([Raise(shard, before.term, old, before.to_bucket)])
        await self._terms.close_drained(
            [Drained(before, after.term)],
            owner=self.dispatcher_id,
            op_id=self._rand.uuid(),
            now_us=SystemClock().now_us(),
        )


def _opened(rows: Any) -> list[TermRow]:
    return sorted((row for row in rows if row.state is TermState.OPEN), key=lambda row: row.from_bucket)
