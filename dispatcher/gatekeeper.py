"""The gate loop: way is made for runs whose job cancels the others, and nobody waits behind a gate that is open.

Woken by runs that have something in their way, and by a slow tick. For a job under CANCEL_OTHER the older runs are
canceled by a statement that follows from rows: it is repeated at every tick, so that a crash after the new run was made
costs a tick. Runs of the other policies are tried again when a run of their job ends; the tick is the net below, for
ends that this memory never heard of.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from core.errors import OutcomeUnknown, Unavailable
from core.store.gates import GateKeeper, MadeWay, WaitingKey
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.fence_watch import FenceWatch
from dispatcher.renewals import request_cancel
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

_TICK_S = 1.0


class GateLoop:
    """Looks after the runs that wait behind their gates."""

    def __init__(self, runtime: Runtime, memory: Memory, store: GateKeeper, watch: FenceWatch) -> None:
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._watch = watch
        self._looked_s = runtime.clock.monotonic_s()

    async def run(self) -> None:
        """For ever: make way for whoever asks for it; look at all that sleep once a tick."""
        clock = self._runtime.clock
        while True:
            try:
                if clock.monotonic_s() - self._looked_s >= _TICK_S:
                    self._looked_s = clock.monotonic_s()
                    await self.look()
                await self.make_way()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("runs behind their gates wait for the database: %s", error)
                await clock.sleep(self._runtime.settings.tick_s)
            await self._memory.wakes.gate.wait(clock, _TICK_S)

    async def look(self) -> None:
        """Try those again whose way is free, or that are no longer what they were."""
        runs = self._memory.gates.sleepers(self._runtime.settings.batch_limit)
        if not runs:
            return
        blocked = await self._store.blocked(_keys(runs), now_us=self._runtime.clock.now_us())
        for position, run in enumerate(runs):
            if position not in blocked:
                self._memory.run_ended(run.job_id)

    async def make_way(self) -> None:
        """Cancel what is older than the newest run of each job that asks for it."""
        while runs := self._memory.gates.take_to_make_way(self._runtime.settings.batch_limit):
            clock = self._runtime.clock
            sent_s = clock.monotonic_s()
            try:
                done = await self._store.make_way(_keys(runs), now_us=clock.now_us())
            except (Unavailable, OutcomeUnknown):
                for run in runs:
                    self._memory.gates.look_at(run)
                raise
            asked = [(run.shard, run.term) for run in runs]
            self._watch.note(asked, done.fences, sent_s=sent_s, kind=RefusedWrite.CANCEL)
            self._follow(done)

    def _follow(self, done: MadeWay) -> None:
        for run_id in done.ended:
            self._memory.canceled(run_id)
        for run_id in done.requested:
            live = self._memory.attempts.get(run_id)
            if live is not None and not live.cancel_requested:
                request_cancel(live)


def _keys(runs: Sequence[WaitingRun]) -> list[WaitingKey]:
    return [WaitingKey(run.shard, run.term, run.run_id) for run in runs]
