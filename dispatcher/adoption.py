"""Adoption: after a claim, the open runs of the terms before come home to the new one.

Runs are re-homed in chunks while their workers go on; every leased run gets a full lease again, plus the margin within
which the old owner may still have acknowledged heartbeats. Runs that wait for a credit go to matching, runs that wait
for a retry are only remembered, since their due row will bring them. Also run now and then for terms that are held
already: it finds runs that memory lost (a write whose answer never came, a full waiting list).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from core.clock import US_PER_S
from core.ids import run_id_ranges
from core.states import RunState
from core.store.leases import Leases, OpenRun
from core.telemetry.metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, RestingRun, Runtime

log = logging.getLogger(__name__)

_CHUNK = 500


class Adoption:
    """Takes open runs of one shard into memory."""

    def __init__(self, runtime: Runtime, memory: Memory, leases: Leases, watch: FenceWatch) -> None:
        self._runtime = runtime
        self._memory = memory
        self._leases = leases
        self._watch = watch

    async def adopt(self, held: HeldTerm) -> int:
        """Make `held` the home of every open run of its shard, and hold them all in memory; returns how many.

        Raises Unavailable or OutcomeUnknown; running it again goes on where it stopped.
        """
        ranges = run_id_ranges(held.shard, self._runtime.cluster.shard_count, held.open_from_us)
        found = await self._leases.open_runs(held.shard, ranges)
        own = [run for run in found if run.home_term == held.term]
        foreign = [run for run in found if run.home_term != held.term and not _is_resting(run)]
        resting = [run for run in found if run.home_term != held.term and _is_resting(run)]
        await self._memory.jobs.load((run.job_id, run.job_version) for run in found)
        count = 0
        for start in range(0, len(foreign), _CHUNK):
            chunk = foreign[start : start + _CHUNK]
            own.extend(await self._rehome(chunk, held))
            count += len(chunk)
        for run in (*own, *resting):
            self._hold(run, held)
        held.adopted = True
        self._memory.wakes.match.set()
        return count

    async def _rehome(self, chunk: Sequence[OpenRun], held: HeldTerm) -> list[OpenRun]:
        margin_us = round(self._runtime.settings.adoption_margin_s * US_PER_S)
        until_us = self._runtime.clock.now_us() + self._runtime.lease_us + margin_us
        sent_s = self._runtime.clock.monotonic_s()
        fences, adopted = await self._leases.adopt(chunk, shard=held.shard, term=held.term, lease_until_us=until_us)
        self._watch.note([held.key] * len(chunk), fences, sent_s=sent_s, kind=RefusedWrite.ADOPT)
        return adopted

    def _hold(self, run: OpenRun, held: HeldTerm) -> None:
        # A run whose statement is under way may be taken up twice; its second lease is refused by compare-and-set.
        memory = self._memory
        if memory.attempts.get(run.run_id) is not None or memory.routes.holds(run.run_id):
            return
        if run.run_id in memory.resting:
            return
        job = memory.jobs.get((run.job_id, run.job_version))
        stands_open = run.scheduled_for_us < held.open_from_us
        if _is_resting(run):
            memory.resting[run.run_id] = RestingRun(
                run.run_id, run.shard, held.term, run.job_id, run.scheduled_for_us, stands_open
            )
        elif not isinstance(job, JobVersion):
            log.error("run %s stays where it is: its job cannot be read", run.run_id)
        elif run.state is RunState.LEASED:
            self._hold_leased(run, job, stands_open)
        else:
            memory.routes.wait(_waiting(run, job, stands_open))

    def _hold_leased(self, run: OpenRun, job: JobVersion, stands_open: bool) -> None:
        if run.token_hash is None:
            return
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
            lease_until_us=run.lease_until_us,
            sql_lease_until_us=run.lease_until_us,
            trace=run.trace,
            payload=run.payload,
            progress=run.progress,
            cancel_requested=run.cancel_requested_us > 0,
            stands_open=stands_open,
        )
        self._memory.attempts.add(live)


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
    )
