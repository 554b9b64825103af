"""The matching loop: runs that wait meet credits that came.

Woken by grants, by new waiting runs, and by its tick. Each pair is leased by one fenced statement a batch, one batch
after the other, then delivered. A run that its gate keeps back goes behind it again; one that is refused otherwise is
not tried again before its row was read. Runs that memory had no room for are read again from SQL once it has.
"""

from __future__ import annotations

import logging

from core.errors import OutcomeUnknown, Unavailable
from core.store.leases import LeaseOrder, Leases
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.delivery import Delivery, DrawnLease
from dispatcher.fence_watch import FenceWatch
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, Runtime
from dispatcher.session import WorkerSession

log = logging.getLogger(__name__)


class MatchLoop:
    """Leases waiting runs to credits."""

    def __init__(self, runtime: Runtime, memory: Memory, leases: Leases, delivery: Delivery, watch: FenceWatch) -> None:
        self._runtime = runtime
        self._memory = memory
        self._leases = leases
        self._delivery = delivery
        self._watch = watch
        self._sessions: set[WorkerSession] = set()

    def retire(self, worker_id: str) -> None:
        """The worker speaks on a new stream: what is sent on an older one would never arrive."""
        for session in self._sessions:
            if session.worker_id == worker_id:
                session.retire()

    def join(self, session: WorkerSession) -> None:
        """A worker's stream is there."""
        self._sessions.add(session)
        self._memory.routes.join(session)
        self._memory.wakes.match.set()

    def leave(self, session: WorkerSession) -> None:
        """Its stream is gone; what it runs goes on under its leases."""
        self._sessions.discard(session)
        self._memory.routes.leave(session)

    async def run(self) -> None:
        """For ever: match until nothing can be, tell sessions what waits, sleep."""
        while True:
            while await self.step():
                pass
            self._tell()
            await self._memory.wakes.match.wait(self._runtime.clock, self._runtime.settings.tick_s)

    async def step(self) -> bool:
        """Lease one batch; false when no waiting run met a credit."""
        routes = self._memory.routes
        pairs = routes.match(self._runtime.settings.batch_limit)
        if not pairs:
            return False
        memory, clock = self._memory, self._runtime.clock
        now_us = clock.now_us()
        drawn = [(run, self._delivery.draw_lease(taker, now_us)) for run, taker in pairs]
        memory.matching.update({run.run_id: run for run, _ in pairs})
        try:
            await self._lease(drawn, now_us)
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("matching waits for the database: %s", error)
            for _, lease in drawn:
                self._delivery.give_back(lease, in_doubt=isinstance(error, OutcomeUnknown))
            # Whatever became of it, the open runs of the terms are read again.
            memory.matching.clear()
            for run, _ in drawn:
                memory.gates.forget(run)
            memory.doubt(((run.shard, run.term) for run, _ in drawn), clock.monotonic_s())
            await clock.sleep(self._runtime.settings.tick_s)
        finally:
            memory.matching.clear()
        return True

    async def _lease(self, drawn: list[tuple[WaitingRun, DrawnLease]], now_us: int) -> None:
        orders = [
            LeaseOrder(run.shard, run.term, run.run_id, run.attempt + 1, lease.grant, run.gated) for run, lease in drawn
        ]
        sent_s = self._runtime.clock.monotonic_s()
        done = await self._leases.lease(orders, now_us=now_us)
        committed_us = self._runtime.clock.now_us()
        self._watch.note([(o.shard, o.term) for o in orders], done.fences, sent_s=sent_s, kind=RefusedWrite.LEASE)
        for position, (run, lease) in enumerate(drawn):
            if position in done.leased:
                self._memory.gates.started(run)
                self._delivery.deliver(run, run.attempt + 1, lease, committed_us)
                continue
            self._delivery.give_back(lease)
            if position in done.blocked and self._memory.holdings.get((run.shard, run.term)) is not None:
                self._memory.gates.kept_back(run)
                self._memory.open_gate(run.job_id)
            elif (run.shard, run.term) in done.fences:
                self._memory.refused(run)
            else:  # no longer ours
                self._memory.gates.forget(run)
                self._memory.run_ended(run.job_id)

    def _tell(self) -> None:
        routes, metrics = self._memory.routes, self._runtime.metrics
        free = 0
        for session in self._sessions:
            free += session.credits
            session.tell_demand(routes.demand(session) if routes.waiting else 0)
        metrics.set_waiting(routes.waiting, routes.oldest_due_us, routes.without_taker())
        metrics.set_workers(len(self._sessions), free)
