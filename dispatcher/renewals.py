"""Heartbeats: leases are extended in memory at once, in SQL in batches and only when half of SQL's own is used up.

A heartbeat is acknowledged only while the attempt's term was proven not longer ago than the adoption margin, since a
successor adds that margin to every lease it adopts (rule of ownership 14). Under a term that has an end, a successor
adopts while the term is still ours: there the attempt's own home must have been seen within the margin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.buckets import NO_END
from core.errors import OutcomeUnknown, Unavailable
from core.jobspec import MAX_PROGRESS_BYTES
from core.store.leases import Leases, Renewal
from core.tasks import Wake
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.fence_watch import FenceWatch
from dispatcher.runtime import Memory, Runtime
from dispatcher.session import WorkerSession

log = logging.getLogger(__name__)


class RenewalLoop:
    """Answers heartbeats and keeps SQL's leases long enough."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        leases: Leases,
        watch: FenceWatch,
        doubt: Callable[[LiveAttempt], None],
        elsewhere: Callable[[LiveAttempt], str],
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._leases = leases
        self._watch = watch
        # Told of each attempt whose renewal was refused though its term holds, or whose term is held no more.
        self._doubt = doubt
        # Names the address of whoever may answer for an attempt whose row cannot be read here, or "".
        self._elsewhere = elsewhere
        self._wanted: dict[UUID, LiveAttempt] = {}
        self._wake = Wake()

    def heartbeat(self, session: WorkerSession, frame: pb.Heartbeats) -> list[pb.Heartbeat]:
        """Extend what is ours and answer; returns the items that are not, for judgement by their rows."""
        now_us = self._runtime.clock.now_us()
        proven_since_s = self._runtime.clock.monotonic_s() - self._runtime.settings.adoption_margin_s
        exceptions: list[pb.Acknowledgement] = []
        strangers: list[pb.Heartbeat] = []
        for item in frame.items:
            live = self._own(item)
            if live is None:
                strangers.append(item)
                exceptions.append(_retry(item))
                continue
            if live.ending or live.loss_unsettled or not self._is_proven(live, proven_since_s):
                exceptions.append(self._unproven(live, item))
                continue
            self._extend(live, item, session, now_us)
        session.reply_heartbeats(frame.sequence, exceptions)
        if self._wanted:
            self._wake.set()
        return strangers

    def _is_proven(self, live: LiveAttempt, since_s: float) -> bool:
        held = self._memory.holdings.get(live.key)
        if held is None or held.proven_s < since_s:
            return False
        return held.to_bucket == NO_END or live.home_proven_s >= since_s

    def _unproven(self, live: LiveAttempt, item: pb.Heartbeat) -> pb.Acknowledgement:
        if self._memory.holdings.get(live.key) is None:  # an answer came after its term was dropped
            self._doubt(live)
        address = "" if live.ending else self._elsewhere(live)
        return _redirect(item, address) if address else _retry(item)

    def _own(self, item: pb.Heartbeat) -> LiveAttempt | None:
        try:
            live = self._memory.attempts.get(UUID(item.ref.run_id))
        except ValueError:
            return None
        if live is None or live.attempt != item.ref.attempt or not live.proves(item.ref.token):
            return None
        return live

    def _extend(self, live: LiveAttempt, item: pb.Heartbeat, session: WorkerSession, now_us: int) -> None:
        live.holder = session
        live.sent_on, live.unsent = None, False
        if not live.lease_fixed:
            live.lease_until_us = max(live.lease_until_us, now_us + self._runtime.lease_us)
        if item.HasField("progress"):
            live.progress = item.progress[:MAX_PROGRESS_BYTES]
            live.progress_unsaved = True
        if live.progress_unsaved or live.sql_lease_until_us < now_us + self._runtime.lease_us // 2:
            self._wanted[live.run_id] = live
        if live.cancel_requested and not live.ending:
            session.cancel(live.run_id, live.attempt, "cancel requested")
        elif live.timed_out and not live.ending:
            session.cancel(live.run_id, live.attempt, "timed out")

    async def run(self) -> None:
        """For ever: write the wanted renewals in batches."""
        while True:
            try:
                while self._wanted:
                    await self._renew(self._take())
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("renewing leases waits for the database: %s", error)
            await self._wake.wait(self._runtime.clock, 1.0)

    def _take(self) -> list[LiveAttempt]:
        taken = []
        for run_id in list(self._wanted)[: self._runtime.settings.batch_limit]:
            live = self._wanted.pop(run_id)
            if self._memory.attempts.get(run_id) is live:
                taken.append(live)
        return taken

    async def _renew(self, batch: list[LiveAttempt]) -> None:
        if not batch:
            return
        renewals = [
            Renewal(
                a.shard,
                a.term,
                a.run_id,
                a.attempt,
                a.lease_until_us,
                a.progress if a.progress_unsaved else None,
            )
            for a in batch
        ]
        sent_s = self._runtime.clock.monotonic_s()
        try:
            done = await self._leases.renew(renewals)
        except (Unavailable, OutcomeUnknown):
            for live in batch:
                self._wanted.setdefault(live.run_id, live)
            raise
        self._watch.note([(a.shard, a.term) for a in batch], done.fences, sent_s=sent_s, kind=RefusedWrite.RENEW)
        for position, live in enumerate(batch):
            lease = done.leases.get(position)
            if lease is None:
                if live.key in done.fences:
                    self._doubt(live)
            else:
                live.home_proven_s = max(live.home_proven_s, sent_s)
                live.sql_lease_until_us = lease[0]
                # More may have been reported meanwhile.
                live.progress_unsaved = live.progress_unsaved and live.progress != renewals[position].progress
                if lease[1] and not live.cancel_requested:
                    request_cancel(live)


def request_cancel(live: LiveAttempt) -> None:
    """A cancel was requested: remember it, and tell the worker at once if it can be reached."""
    live.cancel_requested = True
    if live.holder is not None and not live.ending:
        live.holder.cancel(live.run_id, live.attempt, "cancel requested")


def _retry(item: pb.Heartbeat) -> pb.Acknowledgement:
    return pb.Acknowledgement(run_id=item.ref.run_id, attempt=item.ref.attempt, verdict=pb.VERDICT_RETRY)


def _redirect(item: pb.Heartbeat, address: str) -> pb.Acknowledgement:
    return pb.Acknowledgement(
        run_id=item.ref.run_id, attempt=item.ref.attempt, verdict=pb.VERDICT_REDIRECT, owner_address=address
    )
