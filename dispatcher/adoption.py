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
from collections.abc import Container, Sequence, Set
from uuid import UUID

from core.clock import US_PER_S
from core.ids import run_id_ranges, shard_hashes
from core.states import RunState
from core.store.open_run_lists import OpenRun
from core.store.open_runs import OpenRuns
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm, Key
from dispatcher.jobs import JobVersion
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, RestingRun, Runtime, Unassigned

log = logging.getLogger(__name__)

# Also the number of job versions, payloads included, that are looked at together: below what Jobs keeps in any case.
_CHUNK = 200
# How often a pass asks again for runs that somebody else took to another home under its hands.
_ROUNDS = 2
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
        # By shard, and another one: a worker's word does not wait for a pass, which may have thousands of runs to take.
        self._naming: dict[int, asyncio.Lock] = {}

    async def adopt(
        self,
        held: HeldTerm,
        *,
        leaving: frozenset[int] = frozenset(),
        waited: Sequence[Unassigned] = (),
    ) -> int:
        """Make `held` the home of every open run of its shard, and hold them all in memory; returns how many.

        Runs at home in the terms `leaving` stay there: while a shard is in two hands, the other one answers for them.
        Called without it once the term before ours can get no new run, so that every run of the shard comes home.
        Nothing comes home to a term that is being left itself. Of `waited`, which memory believed to wait before the
        call, those are forgotten that the rows do not know as open here. Raises Unavailable or OutcomeUnknown; running
        it again goes on where it stopped.
        """
        async with self._passing.setdefault(held.shard, asyncio.Lock()):
            if held.leaving:
                return 0
            async with self._naming.setdefault(held.shard, asyncio.Lock()):
                pass  # what is being taken home to a term that is left by now is there, and will be found
            with self._memory.readings.begin() as outdated:
                return await self._adopt(held, leaving, waited, outdated)

    async def _adopt(
        self,
        held: HeldTerm,
        leaving: frozenset[int],
        waited: Sequence[Unassigned],
        outdated: Set[UUID],
    ) -> int:
        counts = (held.doubts, held.overflows)
        rested = [run for run in self._memory.resting.values() if (run.shard, run.term) == held.key]
        settled = self._runtime.clock.monotonic_s() - held.doubted_s > _IN_FLIGHT_LIMIT_S
        hashes = await self._open_runs.peopled_hashes(shard_hashes(held.shard, self._runtime.cluster.shard_count))
        found = await self._open_runs.find(held.shard, run_id_ranges(hashes, held.open_from_us))
        found = [run for run in found if run.home_term not in leaving or _is_resting(run)]
        found.sort(key=lambda run: (run.due_at_us, run.run_id))
        count = 0
        for start in range(0, len(found), _CHUNK):
            count += await self._take_all_home(found[start : start + _CHUNK], held, leaving, outdated)
        ids = {run.run_id for run in found}
        self._wake_rested(rested, ids)
        await self._forget_ended([run for run in waited if run.run_id not in ids], held)
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
        """Make `held` the home of just these runs, before their turn: their workers speak of them (rule 13).

        Beside a pass for the same term either finds what the other has done. But no pass for the term after this one
        reads meanwhile, and one that is being left takes nothing more: that pass would not find what comes home here.
        """
        async with self._naming.setdefault(held.shard, asyncio.Lock()):
            with self._memory.readings.begin() as outdated:
                adopted, _ = await self._take_home(await self._open_runs.named(held.shard, run_ids), held, outdated)
        return len(adopted)

    async def settle_refused(self) -> None:
        """Read the rows of runs whose lease was refused: what is open still is taken up as it stands."""
        unsettled = self._memory.unsettled
        by_term: dict[Key, list[UUID]] = {}
        for run in unsettled.values():
            by_term.setdefault((run.shard, run.term), []).append(run.run_id)
        for key, run_ids in by_term.items():
            held = self._memory.holdings.get(key)
            for start in range(0, len(run_ids), _CHUNK):
                asked = {i: unsettled[i] for i in run_ids[start : start + _CHUNK] if i in unsettled}
                if held is not None:
                    await self.adopt_named(held, sorted(asked))
                for run_id, run in asked.items():
                    if unsettled.get(run_id) is run:
                        del unsettled[run_id]

    async def _forget_ended(self, unseen: Sequence[Unassigned], held: HeldTerm) -> None:
        """Forget runs that are believed to wait, and are open no more or at home elsewhere: no hint of it came."""
        if not unseen:
            return
        rows = {run.run_id: run for run in await self._open_runs.named(held.shard, [run.run_id for run in unseen])}
        still = {id(run) for run in self._memory.waiting_by_term().get(held.key, ())}
        for run in unseen:
            row = rows.get(run.run_id)
            ours = row is not None and self._memory.holdings.get((row.shard, row.home_term)) is not None
            if id(run) in still and not ours:
                self._memory.canceled(run.run_id)

    async def _clear_ended(self, held: HeldTerm) -> None:
        ended = await self._open_runs.ended_standing(held.shard)
        if not ended:
            return
        sent_s = self._runtime.clock.monotonic_s()
        seen = await self._open_runs.clear([(held.shard, held.term, job_id, run_id) for job_id, run_id in ended])
        self._watch.note([held.key], seen, sent_s=sent_s, kind=RefusedWrite.STAND)

    async def _take_all_home(
        self, chunk: Sequence[OpenRun], held: HeldTerm, leaving: frozenset[int], outdated: Set[UUID]
    ) -> int:
        """Take a chunk home, and what the owner before took to its own term under our hands; returns how many came."""
        adopted, missed = await self._take_home(chunk, held, outdated)
        for _ in range(_ROUNDS):
            if not missed or not held.acting or not self._is_served(held):
                break
            rows = [run for run in await self._open_runs.named(held.shard, missed) if run.home_term not in leaving]
            more, missed = await self._take_home(rows, held, outdated)
            adopted |= more
        return len(adopted)

    async def _take_home(
        self, chunk: Sequence[OpenRun], held: HeldTerm, outdated: Set[UUID]
    ) -> tuple[set[UUID], list[UUID]]:
        """Returns the runs that came home, and those that were refused: ended, or taken home elsewhere meanwhile."""
        await self._memory.jobs.load((run.job_id, run.job_version) for run in chunk)
        foreign = [run for run in chunk if run.home_term != held.term and not _is_resting(run)]
        adopted: dict[UUID, OpenRun] = {}
        if foreign and self._is_served(held):
            adopted = {run.run_id: run for run in await self._rehome(foreign, held)}
        if self._is_served(held):  # else these runs are for whoever has the shard now
            for run in chunk:
                if run.run_id in outdated:
                    continue
                if run.home_term == held.term or _is_resting(run):
                    self._hold(run, held)
                elif run.run_id in adopted:
                    # Counted from the answer: the owner before may acknowledge heartbeats until the adoption commits.
                    self._hold(adopted[run.run_id], held, lease_until_us=self._full_lease_us())
        return set(adopted), [run.run_id for run in foreign if run.run_id not in adopted]

    def _is_served(self, held: HeldTerm) -> bool:
        """Whether memory may hold runs under the term: it was neither dropped nor is it being left meanwhile."""
        return self._memory.holdings.get(held.key) is held and not held.leaving

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
