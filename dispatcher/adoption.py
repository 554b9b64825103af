"""Adoption: the open runs of the terms before come home to the new one: after a claim, and at the end of a hand-off.

Runs are re-homed in chunks while their workers go on; every leased run gets a full lease again, plus the margin within
which the old owner may still have acknowledged heartbeats. Runs that wait for a credit go to matching, those that wait
for others of their job behind their gate; runs that wait for a retry are only remembered, since their due row will
bring them. Also run now and then for terms that are held
already: it finds runs that memory lost (a write whose answer never came, a full waiting list).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from uuid import UUID

from core.clock import US_PER_S
from core.ids import run_id_ranges, shard_hashes
from core.states import RunState
from core.store.open_run_lists import OpenRun
from core.store.open_runs import OpenRuns
from core.telemetry.metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, RestingRun, Runtime

log = logging.getLogger(__name__)

# Also the number of job versions, payloads included, that are looked at together: below what Jobs keeps in any case.
_CHUNK = 200
# A statement whose answer was lost may still be at work in the server for so long (its own time limit, and some).
_IN_FLIGHT_LIMIT_S = 4.0


class Adoption:
    """Takes open runs of one shard into memory."""

    def __init__(self, runtime: Runtime, memory: Memory, open_runs: OpenRuns, watch: FenceWatch) -> None:
        self._runtime = runtime
        self._memory = memory
        self._open_runs = open_runs
        self._watch = watch
        # By shard. Of two passes side by side, for two terms of ours, one could take home what the other has found.
        self._passing: dict[int, asyncio.Lock] = {}

    async def adopt(self, held: HeldTerm, *, leaving: frozenset[int] = frozenset()) -> int:
        """Make `held` the home of every open run of its shard, and hold them all in memory; returns how many.

        Runs at home in the terms `leaving` stay there: while a shard is in two hands, the other one answers for them.
        Called without it once the term before ours can get no new run, so that every run of the shard comes home.
        Nothing comes home to a term that is being left itself. Raises Unavailable or OutcomeUnknown; running it again
        goes on where it stopped.
        """
        async with self._passing.setdefault(held.shard, asyncio.Lock()):
            return 0 if held.leaving else await self._adopt(held, leaving)

    async def _adopt(self, held: HeldTerm, leaving: frozenset[int]) -> int:
        counts = (held.doubts, held.overflows)
        rested = [run for run in self._memory.resting.values() if (run.shard, run.term) == held.key]
        settled = self._runtime.clock.monotonic_s() - held.doubted_s > _IN_FLIGHT_LIMIT_S
        hashes = await self._open_runs.peopled_hashes(shard_hashes(held.shard, self._runtime.cluster.shard_count))
        found = await self._open_runs.find(held.shard, run_id_ranges(hashes, held.open_from_us))
        found = [run for run in found if run.home_term not in leaving or _is_resting(run)]
        found.sort(key=lambda run: (run.due_at_us, run.run_id))
        count = 0
        for start in range(0, len(found), _CHUNK):
            count += await self._take_home(found[start : start + _CHUNK], held)
        self._wake_rested(rested, {run.run_id for run in found})
        await self._clear_ended(held)
        held.resolved = (counts[0] if settled else counts[0] - 1, counts[1])
        self._memory.wakes.match.set()
        return count

    def _wake_rested(self, rested: Sequence[RestingRun], found: Container[UUID]) -> None:
        """Forget runs that rest no more although nothing was fired here: the owner of their due row's bucket did."""
        for run in rested:
            if run.run_id not in found and self._memory.resting.get(run.run_id) is run:
                del self._memory.resting[run.run_id]

    async def adopt_named(self, held: HeldTerm, run_ids: Sequence[UUID]) -> int:
        """Make `held` the home of just these runs, before their turn: their workers speak of them (rule 13)."""
        return await self._take_home(await self._open_runs.named(held.shard, run_ids), held)

    async def _clear_ended(self, held: HeldTerm) -> None:
        ended = await self._open_runs.ended_standing(held.shard)
        if not ended:
            return
        sent_s = self._runtime.clock.monotonic_s()
        seen = await self._open_runs.clear([(held.shard, held.term, job_id, run_id) for job_id, run_id in ended])
        self._watch.note([held.key], seen, sent_s=sent_s, kind=RefusedWrite.STAND)

    async def _take_home(self, chunk: Sequence[OpenRun], held: HeldTerm) -> int:
        await self._memory.jobs.load((run.job_id, run.job_version) for run in chunk)
        foreign = [run for run in chunk if run.home_term != held.term and not _is_resting(run)]
        adopted = {run.run_id: run for run in await self._rehome(foreign, held)} if foreign else {}
        for run in chunk:
            if run.home_term == held.term or _is_resting(run):
                self._hold(run, held)
            elif run.run_id in adopted:  # otherwise it ended, or is no longer ours
                # Counted from the answer: the owner before may acknowledge heartbeats until the adoption commits.
                self._hold(adopted[run.run_id], held, lease_until_us=self._full_lease_us())
        return len(adopted)

    async def _rehome(self, chunk: Sequence[OpenRun], held: HeldTerm) -> list[OpenRun]:
        until_us = self._full_lease_us()
        sent_s = self._runtime.clock.monotonic_s()
        fences, adopted = await self._open_runs.adopt(chunk, shard=held.shard, term=held.term, lease_until_us=until_us)
        self._watch.note([held.key] * len(chunk), fences, sent_s=sent_s, kind=RefusedWrite.ADOPT)
        return adopted

    def _full_lease_us(self) -> int:
        """When a lease that the owner before acknowledged a moment ago can have ended."""
        margin_us = round(self._runtime.settings.adoption_margin_s * US_PER_S)
        return self._runtime.clock.now_us() + self._runtime.lease_us + margin_us

    def _hold(self, run: OpenRun, held: HeldTerm, *, lease_until_us: int = 0) -> None:
        # A run whose statement is under way may be taken up twice; its second lease is refused by compare-and-set.
        memory = self._memory
        if memory.attempts.get(run.run_id) is not None:
            return
        if memory.routes.holds(run.run_id) or memory.gates.holds(run.run_id):
            return
        if run.run_id in memory.matching or self._rests_still(run):
            return
        key = (run.job_id, run.job_version)
        job = memory.jobs.get(key)
        stands_open = run.scheduled_for_us < held.open_from_us
        still = RestingRun(run.run_id, run.shard, held.term, run.job_id, run.scheduled_for_us, stands_open, run.attempt)
        if _is_resting(run):
            memory.resting[run.run_id] = still
        elif not isinstance(job, JobVersion):
            if run.run_id not in memory.unreadable:
                log.error("run %s stays where it is: its job cannot be read", run.run_id)
                memory.unreadable[run.run_id] = still
            memory.jobs.forget([key])
        elif run.state is RunState.LEASED:
            self._hold_leased(run, job, stands_open, lease_until_us)
        else:
            memory.unreadable.pop(run.run_id, None)
            memory.let_wait(_waiting(run, job, stands_open))

    def _rests_still(self, run: OpenRun) -> bool:
        """Whether memory knows that the run waits for its retry, and its row is not newer than that.

        In two hands, the retry of a run that rests here may have been fired by the other owner.
        """
        resting = self._memory.resting.get(run.run_id)
        if resting is None:
            return False
        went_on = run.attempt > resting.attempt or (run.attempt == resting.attempt and run.state is RunState.PENDING)
        if went_on and not _is_resting(run):
            del self._memory.resting[run.run_id]
            return False
        return True

    def _hold_leased(self, run: OpenRun, job: JobVersion, stands_open: bool, lease_until_us: int) -> None:
        if run.token_hash is None:
            return
        self._memory.unreadable.pop(run.run_id, None)
        live = LiveAttempt(
            run_id=run.run_id,
            shard=run.shard,
            term=run.home_term,
            attempt=run.attempt,
            uncounted=run.uncounted,
            token_hash=run.token_hash,
            worker=run.worker,
            job=job,
            scheduled_for_us=run.scheduled_for_us,
            due_at_us=run.due_at_us,
            started_us=run.started_us,
            lease_until_us=max(run.lease_until_us, lease_until_us),
            sql_lease_until_us=run.lease_until_us,
            trace=run.trace,
            payload=run.payload,
            progress=run.progress,
            cancel_requested=run.cancel_requested_us > 0,
            stands_open=stands_open,
        )
        self._memory.attempts.add(live)
        if self._memory.unsent.pop(run.token_hash, None) is not None:
            self._memory.attempts.mark_unsent(live)


def _is_resting(run: OpenRun) -> bool:
    return run.state is RunState.PENDING and run.not_before_us > 0


def _waiting(run: OpenRun, job: JobVersion, stands_open: bool) -> WaitingRun:
    return WaitingRun(
        run_id=run.run_id,
        shard=run.shard,
        term=run.home_term,
        attempt=run.attempt,
        uncounted=run.uncounted,
        scheduled_for_us=run.scheduled_for_us,
        due_at_us=run.due_at_us,
        job=job,
        trace=run.trace,
        payload=run.payload,
        progress=run.progress,
        stands_open=stands_open,
        gated=run.gated,
        cause=run.cause,
    )
