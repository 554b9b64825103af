"""The play of overlap_play.py with a shard that is handed off, again and again: two owners act on it at the same time.

The present owner's term is split at a boundary near by; the owner before it fires, leases and finishes what lies below
while the next one fires from there on; once the watermark is there the runs come home and the term is closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.fence import TermRow
from core.states import RunState, TermState
from core.store.terms import Drained, Split
from tests.support.interleavings import FAR_US, SHARD, Act, Owner
from tests.support.overlap_play import EVERYTHING, OverlapPlay


@dataclass
class SharedShardPlay(OverlapPlay):
    """Shards change hands by hand-off alone, after the first claim."""

    def acts(self, owner: Owner) -> list[tuple[int, Act]]:
        kept = [(weight, act) for weight, act in super().acts(owner) if act.__name__ != "<lambda>"]
        return [
            *kept,
            (2, lambda: self.hand_off(owner)),
            (4, lambda: self.decide(owner)),
            (6, lambda: self.fire(owner)),
            (8, lambda: self.lease(owner)),
            (2, lambda: self.end(owner)),
            (2, lambda: self.make_way(owner)),
            (4, lambda: self.finish_buckets(owner)),
            (2, lambda: self.close(owner)),
        ]

    async def hand_off(self, owner: Owner) -> None:
        """Be the first owner, or take the shard from a boundary on."""
        opened = await self._opened()
        if not opened:
            await self.claim(owner)
        elif len(opened) == 1 and opened[0].owner != owner.name:
            boundary = self.world.scale.bucket_of(self.now_us) + self.random.randint(1, 2)
            split = Split(SHARD, opened[0], boundary)
            won = await self.world.terms.split(
                [split], owner=owner.name, op_id=self.world.rand.uuid(), now_us=self.now_us, reason="play"
            )
            self.done["splits"] += len(won)
            owner.held |= {term.term: term for term in won}

    async def close(self, owner: Owner) -> None:
        """Take the runs of the range before home once it is drained, then close it."""
        mine = max(owner.held.values(), key=lambda term: term.from_bucket, default=None)
        before = [term for term in await self._opened() if mine is not None and term.to_bucket == mine.from_bucket]
        if mine is None or not before:
            return
        marks = (await self.world.marks(owner.name).read([SHARD]))[SHARD]
        if marks.watermark < mine.from_bucket:
            return
        await self.bring_home(owner, mine)
        closed = await self.world.terms.close_drained(
            [Drained(before[0], mine.term)], owner=owner.name, op_id=self.world.rand.uuid(), now_us=self.now_us
        )
        self.done["closed"] += len(closed)

    async def bring_home(self, owner: Owner, mine: TermRow) -> None:
        """Adopt every open run of the shard that is at home elsewhere."""
        store = self.world.open_runs(owner.name)
        foreign = [run for run in await store.find(SHARD, EVERYTHING) if run.home_term not in (0, mine.term)]
        if foreign:
            _, runs = await store.adopt(foreign, shard=SHARD, term=mine.term, lease_until_us=FAR_US)
            leased = [(run.home_term, run.run_id, run.attempt) for run in runs if run.state is RunState.LEASED]
            owner.leased += leased

    async def finish(self) -> None:
        """Both owners go on until nothing is due or open any more."""
        for owner in self.owners:
            owner.decided.clear()
        for _ in range(400):
            for owner in self.owners:
                held = {term.term: term for term in await self._opened() if term.owner == owner.name}
                owner.held = held
                steps = (self.decide, self.fire, self.make_way, self.lease, self.end, self.finish_buckets, self.close)
                for step in steps:
                    await step(owner)
            if not await self.world.due(SHARD) and not await self._open_runs():
                return
            self.now_us += 1_000_000
        raise AssertionError(f"the play does not end: {await self._open_runs()}")

    async def _opened(self) -> list[TermRow]:
        return [term for term in await self.world.terms.newest([SHARD]) if term.state is TermState.OPEN]

    async def _open_runs(self) -> list[object]:
        async with self.eye:
            return list(await self.world.eye.fetch("SELECT run_id, home_term, state FROM runs WHERE state IN (1, 2)"))
