"""The target's duties in hand-offs: to take over what the other one leaves undone, to bring runs home, to close.

core/handoff.py says what is due when; this carries it out, for every shard whose later range is ours, looking every
50 ms while there is one. It remembers nothing: a successor of ours reads the same rows and goes on. The owner before
the boundary needs no loop of its own: discovery and progress see the end of its range.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from core.clock import US_PER_S
from core.errors import OutcomeUnknown, Unavailable
from core.handoff import TICK_S, Duty, Handoff, phase_of, target_duty
from core.store.marks import MarkKeeper
from core.store.terms import Claim, Drained, Terms
from dispatcher.adoption import Adoption
from dispatcher.holdings import Key
from dispatcher.neighbours import Neighbours
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

_BATCH = 16
# Shards whose runs are brought home together: each takes a handful of statements, one after the other. More at once are
# ended sooner, and delay what is fired meanwhile (docs/performance.md has the figures).
_AT_ONCE = 2


class HandoffLoop:
    """Ends the hand-offs whose later range this dispatcher owns."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        neighbours: Neighbours,
        terms: Terms,
        marks: MarkKeeper,
        adoption: Adoption,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._neighbours = neighbours
        self._terms = terms
        self._marks = marks
        self._adoption = adoption
        # Waits until no batch of the due loop is under way; set when the loops are built.
        self.quiet: Callable[[], Awaitable[None]] | None = None

    async def run(self) -> None:
        """For ever: look at each tick while there is a hand-off, else wait for one."""
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("hand-offs wait for the database: %s", error)
                await self._runtime.clock.sleep(TICK_S)
            tick_s = TICK_S if self._mine() else self._runtime.settings.term_check_s
            await self._memory.wakes.handoff.wait(self._runtime.clock, tick_s)

    async def step(self) -> None:
        """Do what is due now in each hand-off to us."""
        if self._runtime.clock.holding:
            return
        bucket = self._runtime.scale.bucket_of(self._runtime.clock.now_us())
        active = [h for h in self._mine() if bucket >= h.boundary or self._neighbours.is_gone(h.before.owner)]
        if not active:
            return
        marks = await self._marks.read([h.shard for h in active])
        self._memory.holdings.learn(marks)
        duties: dict[Duty, list[Handoff]] = {}
        for handoff in active:
            phase = phase_of(handoff, bucket=bucket, watermark=marks[handoff.shard].watermark)
            duty = target_duty(
                handoff, phase, overdue=self._is_overdue(handoff), gone=self._neighbours.is_gone(handoff.before.owner)
            )
            duties.setdefault(duty, []).append(handoff)
        rest = duties.get(Duty.TAKE_OVER_REST, [])
        for start in range(0, len(rest), _BATCH):
            await self._take_over(rest[start : start + _BATCH])
        drained = duties.get(Duty.BRING_HOME, [])
        for start in range(0, len(drained), _AT_ONCE):
            outcomes = await asyncio.gather(
                *(self._end(each) for each in drained[start : start + _AT_ONCE]), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _end(self, handoff: Handoff) -> None:
        if await self._bring_home(handoff):
            await self._close(handoff)

    def _mine(self) -> list[Handoff]:
        holdings = self._memory.holdings
        return [h for h in self._memory.handoffs.values() if holdings.get(h.after.key) is not None]

    def _is_overdue(self, handoff: Handoff) -> bool:
        end_us = self._runtime.scale.start_us(handoff.boundary)
        return self._runtime.clock.now_us() >= end_us + round(self._runtime.settings.handoff_drain_s * US_PER_S)

    async def _take_over(self, late: Sequence[Handoff]) -> None:
        """Claim what is left before the boundary: its owner is gone, or did not get done in time."""
        await self._runtime.pass_by("target.before_take_over_rest")
        won = await self._terms.claim(
            [Claim(h.shard, h.before) for h in late],
            owner=self._runtime.dispatcher_id,
            op_id=self._runtime.rand.uuid(),
            now_us=self._runtime.clock.now_us(),
            reason="takeover",
        )
        await self._runtime.pass_by("target.after_take_over_rest")
        log.warning("took over what was left before the boundary in %d of %d shards", len(won), len(late))
        self._runtime.metrics.taken_over(len(won))
        shards = {row.shard for row in won}
        for handoff in late:
            if handoff.shard in shards:
                self._neighbours.changed(handoff.shard, handoff.before.owner)
        # What we won is taken up by ownership; what we did not win has changed.
        self._memory.wakes.own.set()

    async def _bring_home(self, handoff: Handoff) -> bool:
        """Adopt every open run of the term before; it can get no new one. False when our own term is lost."""
        held = self._memory.holdings.get(handoff.after.key)
        if held is None or not held.acting:
            return False
        await self._runtime.pass_by("target.before_rehome")
        if handoff.is_of_one_owner:
            await self._leave_own(handoff.before.key)
        await self._adoption.adopt(held)
        await self._runtime.pass_by("target.after_rehome")
        return held.acting

    async def _leave_own(self, key: Key) -> None:
        """Its runs change from one term of ours to another: nothing more is written under the first."""
        held = self._memory.holdings.get(key)
        if held is None:
            return
        held.acting, held.leaving = False, True
        if self.quiet is not None:
            await self.quiet()
        self._memory.forget_runs(*key)
        while any((run.shard, run.term) == key for run in self._memory.matching.values()):
            await self._runtime.clock.sleep(0.005)
        self._memory.forget_runs(*key)

    async def _close(self, handoff: Handoff) -> None:
        await self._runtime.pass_by("target.before_close")
        closed = await self._terms.close_drained(
            [Drained(handoff.before, handoff.after.term)],
            owner=self._runtime.dispatcher_id,
            op_id=self._runtime.rand.uuid(),
            now_us=self._runtime.clock.now_us(),
        )
        await self._runtime.pass_by("target.after_close")
        memory = self._memory
        if handoff.before.key in closed:
            log.info("shard %d: closed term %d, ours from bucket %d", *handoff.before.key, handoff.boundary)
            if memory.handoffs.get(handoff.shard) == handoff:
                del memory.handoffs[handoff.shard]
            memory.wakes.progress.set()
            self._neighbours.changed(handoff.shard, handoff.before.owner)
            if handoff.is_of_one_owner:  # an answer under the first term may have come in between
                memory.drop_term(*handoff.before.key)
                memory.doubt([handoff.after.key], self._runtime.clock.monotonic_s())
        memory.wakes.own.set()
