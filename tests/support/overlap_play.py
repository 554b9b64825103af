"""The play of interleavings.py with jobs whose runs must not overlap: triggers, leases, adoption, making way beside it.

An owner does what a dispatcher does one after the other (its batches of firing, its leases) one after the other, and
everything else at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from core.ids import trigger_run_id
from core.policy import Overlap
from core.states import DueKind, RunCause, RunState
from core.store.gates import WaitingKey
from core.store.landing import Landing, land
from core.store.leases import LeaseOrder
from tests.support.interleavings import FAR_US, SHARD, Act, Owner, Play
from tests.support.store_world import NOW_US, grant

POLICIES = (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER)
EVERYTHING = [(UUID(int=0), UUID(int=2**128 - 1))]

# Runs that were started and have not ended, by job: more than one is an overlap.
STARTED_TOGETHER = """
SELECT job_id, count(*) FROM runs WHERE state = 2 OR (state = 1 AND attempt > 0) GROUP BY job_id HAVING count(*) > 1
"""
OPEN = "SELECT 1 FROM runs WHERE state IN (1, 2)"


@dataclass
class OverlapPlay(Play):
    """Few jobs, so that their runs meet."""

    firing_turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    leasing_turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    triggers: int = 0

    def acts(self, owner: Owner) -> list[tuple[int, Act]]:
        return [
            (1 if len(self.chains) < len(POLICIES) else 0, self.land),
            (1, lambda: self.claim(owner)),
            (4, lambda: self.decide(owner)),
            (6, lambda: self.fire(owner)),
            (6, lambda: self.lease(owner)),
            (2, lambda: self.end(owner)),
            (2, lambda: self.adopt(owner)),
            (3, lambda: self.make_way(owner)),
            (3, self.trigger),
            (2, lambda: self.finish_buckets(owner)),
        ]

    async def land(self) -> None:
        await super().land()
        chain = list(self.chains.values())[-1]
        chain.overlap, chain.times = self.random.choice(POLICIES), 12

    async def trigger(self) -> None:
        """A run on request that obeys its job's policy: it cannot start but through its gate."""
        if not self.chains:
            return
        chain = self.random.choice(list(self.chains.values()))
        self.triggers += 1
        at_us = max(self.now_us, NOW_US)
        run_id = trigger_run_id("default", f"r-{self.triggers}", chain.job.hash16, at_us)
        async with self.eye:
            values: dict[str, Any] = {
                "run_id": run_id,
                "state": RunState.PENDING,
                "attempt": 0,
                "home_term": 0,
                "cause": int(RunCause.TRIGGER),
                "not_before_us": at_us,
                "gated": True,
            }
            await self.world.plant_run(chain.job, scheduled_for_us=at_us, **values)
        row = Landing(SHARD, self.world.scale.bucket_of(at_us), at_us, run_id, DueKind.RUN, chain.job.job_id, 1, at_us)
        await self.world.database.transaction(lambda tx: land(tx, row))
        self.done["triggered"] += 1

    async def fire(self, owner: Owner) -> None:
        async with self.firing_turns[owner.name]:
            await super().fire(owner)

    async def lease(self, owner: Owner) -> None:
        """Lease whatever waits under its terms, some of it as it believes; its gate sorts out the rest."""
        async with self.leasing_turns[owner.name]:
            waiting = await self._waiting(owner)
            orders = [
                LeaseOrder(
                    SHARD, run["home_term"], run["run_id"], run["attempt"] + 1, grant(owner.name, FAR_US), run["gated"]
                )
                for run in waiting
                if self.random.random() < 0.8
            ]
            if not orders:
                return
            done = await self.world.leases(owner.name).lease(orders, now_us=self.now_us)
            self._note(owner, done.fences, [order.term for order in orders], len(done.leased))
            self.done["kept back"] += len(done.blocked)
            owner.leased += [(orders[n].term, orders[n].run_id, orders[n].attempt) for n in done.leased]

    async def make_way(self, owner: Owner) -> None:
        """For the newest waiting run of each job that cancels the others."""
        newest: dict[UUID, Any] = {}
        for run in await self._waiting(owner):
            if self.chains[run["job_id"]].overlap is Overlap.CANCEL_OTHER and run["gated"] and run["attempt"] == 0:
                newest[run["job_id"]] = max(
                    run, newest.get(run["job_id"], run), key=lambda r: (r["due_at_us"], r["run_id"])
                )
        keys = [WaitingKey(SHARD, run["home_term"], run["run_id"]) for run in newest.values()]
        if keys:
            done = await self.world.gates(owner.name).make_way(keys, now_us=self.now_us)
            self.done["canceled"] += len(done.ended) + len(done.requested)

    async def adopt(self, owner: Owner) -> None:
        """Take home the open runs of the terms before."""
        for term in list(owner.held.values()):
            store = self.world.open_runs(owner.name)
            foreign = [run for run in await store.find(SHARD, EVERYTHING) if 0 < run.home_term < term.term]
            if foreign:
                _, runs = await store.adopt(foreign, shard=SHARD, term=term.term, lease_until_us=FAR_US)
                leased = [(run.home_term, run.run_id, run.attempt) for run in runs if run.state is RunState.LEASED]
                owner.leased += leased

    async def finish(self) -> None:
        last = self.owners[0]
        for owner in self.owners:
            owner.decided.clear()
        steps: list[Callable[[Owner], Awaitable[None]]] = [
            *(self.claim, self.decide, self.fire, self.adopt, self.make_way, self.lease, self.end, self.finish_buckets)
        ]
        for _ in range(300):
            for step in steps:
                await step(last)
            if not await self.world.due(SHARD) and not await self.world.eye.fetch(OPEN):
                return
            self.now_us += 1_000_000
        raise AssertionError(f"the play does not end: {await self.world.eye.fetch(OPEN)}")

    async def _waiting(self, owner: Owner) -> list[Any]:
        async with self.eye:
            query = "SELECT * FROM runs WHERE state = 1 AND not_before_us = 0 AND home_term = ANY($1::bigint[])"
            return list(await self.world.eye.fetch(query, list(owner.held)))
