"""The due loop: at its time a due row becomes a run, leased to a credit if there is one.

It sleeps until the first row in memory is due, takes everything that is, has it drafted (drafting.py: decisions and
credits), writes one statement a kind, and delivers. A lone run leaves at once; while a statement is under way the next
crowd gathers.
It never fires early: `now` is a lower bound of the database's time, and a suspected jump of that clock holds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from core.errors import OutcomeUnknown, Unavailable
from core.states import DueKind, SkipReason
from core.store.decisions import FireChain, Fired, FireRun, MadeRun
from core.store.discovery import DueRow
from core.store.firing import Firing
from core.store.job_lookup import JobLookup
from core.telemetry.dispatcher_metrics import RefusedWrite, Stage
from core.telemetry.health import Pulse
from core.telemetry.tracing import RunRef
from dispatcher.delivery import Delivery
from dispatcher.drafting import Draft, Drafting
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# After the database refused a batch: how long the due loop rests before it tries again.
_TROUBLE_WAIT_S = 0.1


class DueLoop:
    """Fires what is due. One batch at a time: one writer a dispatcher and shard."""

    def __init__(
        self, runtime: Runtime, memory: Memory, firing: Firing, lookup: JobLookup, delivery: Delivery, watch: FenceWatch
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._firing = firing
        self._lookup = lookup
        self._delivery = delivery
        self._drafting = Drafting(runtime, memory, delivery)
        self._watch = watch
        # Told of rows that landed behind the end of a range of ours; set when the loops are built.
        self.landed_after: Callable[[int], None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._pulse: Pulse | None = None
        self._troubled = False
        # When a pass last ended, however it ended: it does not stand still.
        self.passed_s = runtime.clock.monotonic_s()

    def watch(self, pulse: Pulse) -> None:
        """Let readiness follow this loop: it beats when what was due is fired, or nothing is."""
        self._pulse = pulse

    async def run(self) -> None:
        """For ever: fire, then sleep until the next row is due, a hint comes, or the tick."""
        clock, failpoints = self._runtime.clock, self._runtime.failpoints
        while True:
            if wait_s := failpoints.pass_by("due.before"):
                await clock.sleep(wait_s)
            fired = await self.step()
            self.passed_s = clock.monotonic_s()
            if not fired:
                await self._memory.wakes.fire.wait(clock, self._sleep_s())

    async def quiet(self) -> None:
        """Wait until no batch is under way: what was taken before is settled."""
        await self._idle.wait()

    async def step(self) -> bool:
        """Fire one batch of what is due now; false when nothing was."""
        clock = self._runtime.clock
        if clock.holding:
            return False
        now_us = clock.now_us()
        rows = self._memory.agenda.take_due(now_us, self._runtime.settings.batch_limit)
        self._troubled = False
        if rows:
            self._idle.clear()
            try:
                await self._fire(rows, now_us)
            finally:
                self._idle.set()
        if not self._troubled:
            self._drafting.presence.went_on(clock.now_us())
            if self._pulse is not None:
                self._pulse.beat()
        return bool(rows)

    def _sleep_s(self) -> float:
        tick_s = self._runtime.settings.tick_s
        next_us = self._memory.agenda.next_due_us
        if next_us is None or self._runtime.clock.holding:
            return tick_s
        return min(tick_s, max(0.0, (next_us - self._runtime.clock.now_us()) / 1_000_000))

    async def _fire(self, rows: Sequence[DueRow], now_us: int) -> None:
        held = self._covered(rows)
        try:
            await self._memory.jobs.load((r.job_id, r.job_version) for r in held)
        except (Unavailable, OutcomeUnknown) as error:
            await self._rest(list(held), error)
            return
        drafts = self._drafting.draft(held, now_us)
        writes = (self._write(part, now_us) for part in drafts.parts)
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        if drafts.errors:
            await self._record_errors(list(drafts.errors.values()))

    async def _rest(self, rows: Sequence[DueRow], error: Exception) -> None:
        log.warning("firing waits for the database: %s", error)
        self._troubled = True
        for row in rows:
            self._memory.agenda.put_back(row)
        await self._runtime.clock.sleep(_TROUBLE_WAIT_S)

    def _covered(self, rows: Sequence[DueRow]) -> dict[DueRow, HeldTerm]:
        covered = {}
        for row in rows:
            held = self._memory.holdings.covering(row.shard, row.bucket)
            if held is None:
                self._memory.agenda.done(row)
            else:
                covered[row] = held
        return covered

    # --- writing, and what follows ---

    async def _write(self, batch: list[Draft], now_us: int) -> None:
        clock = self._runtime.clock
        sent_s = clock.monotonic_s()
        try:
            fired = await self._statement(batch, now_us)
        except (Unavailable, OutcomeUnknown) as error:
            for draft in batch:
                if draft.drawn is not None:
                    self._delivery.give_back(draft.drawn, in_doubt=isinstance(error, OutcomeUnknown))
            if isinstance(error, OutcomeUnknown):  # runs may have been made that this memory does not hold
                self._memory.doubt(((d.row.shard, d.item.key.term) for d in batch), clock.monotonic_s())
            await self._rest([d.row for d in batch], error)
            return
        committed_us = clock.now_us()
        asked = [(d.row.shard, d.item.key.term) for d in batch]
        self._watch.note(asked, fired.fences, sent_s=sent_s, kind=RefusedWrite.FIRE)
        beyond = [d for d in batch if self._is_outside(d, fired)]
        self._watch.outside(RefusedWrite.FIRE, len(beyond))
        self._runtime.metrics.fired(len(fired.consumed))
        self._memory.fires.count(batch[position].row for position in fired.consumed)
        late_us = [committed_us - run.due_at_us for run in fired.made.values()]
        self._runtime.metrics.lateness(Stage.FIRE, late_us)
        for position, draft in enumerate(batch):
            self._settle(draft, position, fired, now_us, committed_us)

    @staticmethod
    def _is_outside(draft: Draft, fired: Fired) -> bool:
        """Whether the term holds, but was split below the row: refused, and not ours any more."""
        view = fired.fences.get((draft.row.shard, draft.item.key.term))
        return view is not None and not view.from_bucket <= draft.row.bucket < view.to_bucket

    async def _statement(self, batch: list[Draft], now_us: int) -> Fired:
        chains = [d.item for d in batch if isinstance(d.item, FireChain)]
        if chains:
            return await self._firing.fire_chains(chains, now_us=now_us)
        return await self._firing.fire_runs([d.item for d in batch if isinstance(d.item, FireRun)], now_us=now_us)

    def _settle(self, draft: Draft, position: int, fired: Fired, began_us: int, committed_us: int) -> None:
        memory, row = self._memory, draft.row
        memory.agenda.done(row)
        made = fired.made.get(position)
        if draft.drawn is not None and (made is None or draft.job is None or made.attempt == 0):
            self._delivery.give_back(draft.drawn)
        if position not in fired.consumed:
            # Fence lost, job edited, or row gone: forget what was believed; the next scan shows what stands.
            memory.jobs.forget([(row.job_id, row.job_version)])
            memory.landed.add(row.shard)
            memory.wakes.discover.set()
            return
        if isinstance(draft.item, FireChain):
            self._follow_chain(draft.item, row, fired.skipped.get(position))
        if made is not None and draft.job is not None:
            self._start(draft, draft.job, made, began_us, committed_us)
        elif isinstance(draft.item, FireRun):  # canceled while it waited for its time
            memory.readings.outdate(row.id)
            if memory.resting.pop(row.id, None) is not None:
                memory.run_ended(row.job_id)

    def _follow_chain(self, item: FireChain, row: DueRow, overlap: SkipReason | None) -> None:
        metrics = self._runtime.metrics
        if item.skipped is not None:
            metrics.skipped(item.skipped.reason, 1)
        if overlap is not None:
            metrics.skipped(overlap, 1)
        if item.next is None:
            return
        held = self._memory.holdings.get((item.key.shard, item.key.term))
        if held is None or item.next.due_at_us > self._runtime.clock.now_us() + 2 * self._runtime.scale.width_us:
            return  # a later scan finds it in time
        bucket = max(item.next.bucket, held.floor)
        following = DueRow(
            row.shard,
            bucket,
            item.next.due_at_us,
            row.id,
            DueKind.OCCURRENCE,
            row.job_id,
            row.job_version,
            item.next.scheduled_for_us,
            item.next.back_us,
            item.next.back_to_us,
        )
        if held.covers(bucket):
            self._memory.agenda.add(following)
        elif self.landed_after is not None:
            self.landed_after(row.shard)

    def _start(self, draft: Draft, job: JobVersion, made: MadeRun, began_us: int, committed_us: int) -> None:
        item = draft.item
        run_id = item.run.run_id if isinstance(item, FireChain) and item.run is not None else draft.row.id
        rested = self._memory.resting.pop(run_id, None)
        open_from_us = item.open_from_us if isinstance(item, FireChain) else 0
        stood_at_birth = made.scheduled_for_us < max(open_from_us, item.stand_before_us)
        waiting = WaitingRun(
            run_id=run_id,
            shard=draft.row.shard,
            term=item.key.term,
            attempt=made.attempt,
            uncounted=made.uncounted,
            scheduled_for_us=made.scheduled_for_us,
            due_at_us=draft.row.due_at_us if isinstance(item, FireRun) else made.due_at_us,
            job=job,
            trace=made.trace,
            payload=made.payload,
            progress=made.progress,
            stands_open=stood_at_birth or (rested is not None and rested.stands_open),
            gated=made.gated,
            cause=made.cause,
        )
        started = draft.drawn is not None and made.attempt > 0
        if draft.drawn is not None and started:
            self._delivery.deliver(waiting, made.attempt, draft.drawn, committed_us)
        else:
            self._memory.let_wait(waiting, blocked=made.blocked if isinstance(item, FireChain) else None)
        if self._runtime.tracing.enabled:
            coming = made.attempt if started else made.attempt + 1
            run = RunRef(run_id, job.namespace, job.name, waiting.shard, waiting.term, made.trace or job.trace)
            self._runtime.tracing.record_fire(
                run,
                attempt=coming,
                # A retry waits from the instant it was put off to.
                waits_from_us=min(waiting.scheduled_for_us if coming == 1 else waiting.due_at_us, began_us),
                due_us=waiting.due_at_us,
                began_us=began_us,
                committed_us=committed_us,
            )

    async def _record_errors(self, marks: list[tuple[int, int, UUID, str]]) -> None:
        broken = [(job_id, error) for _, _, job_id, error in marks if error]
        if broken:
            log.error("%d jobs are set aside, they cannot be read; first: job %s: %s", len(broken), *broken[0])
        try:
            await self._lookup.set_error(marks)
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("the jobs' errors were not recorded: %s", error)
