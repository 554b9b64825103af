"""Redirects: workers learn at once where the runs that they work on have moved.

Two things end this process's answering for an attempt while its worker goes on: its term was closed or replaced
(`leave`, called by ownership), or the new owner of a shard took the run home while our term still drains. The second
is seen by looking at the rows of the attempts under every term that has an end. What is to be said follows from the
run's row alone (rule of ownership 13): a run that has ended is nobody's to redirect, and where its new owner is not
known yet, it is tried again for a while. A worker whose stream is gone learns it from whoever it asks.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.buckets import NO_END
from core.coord.layout import Owner
from core.errors import OutcomeUnknown, Unavailable
from core.states import OPEN_RUN_STATES, RunState
from core.store.completion import Completion, RunHolding
from core.tasks import Wake
from dispatcher.attempts import Holder, LiveAttempt
from dispatcher.holdings import Key
from dispatcher.renewals import request_cancel
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# A lease later the attempt is lost or its worker has asked by itself.
_TOLD_WITHIN_LEASES = 1.0
_STEP_S = 0.5


@dataclass(frozen=True, slots=True)
class _Parting:
    """An attempt that left memory, and its worker, who is to be told until `until_s` (monotonic)."""

    run_id: UUID
    attempt: int
    token_hash: bytes
    holder: Holder
    until_s: float


class Redirects:
    """Tells workers whom to talk to from now on.

    `address_of` names a dispatcher's address, "" where it is unknown; `published` the owner of a shard, by etcd.
    """

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        store: Completion,
        address_of: Callable[[str], str],
        published: Callable[[int], Owner | None],
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._address_of = address_of
        self._published = published
        self._partings: dict[UUID, _Parting] = {}
        self._doubted: dict[UUID, LiveAttempt] = {}
        self._wake = Wake()

    def leave(self, key: Key) -> None:
        """A term of ours was closed or replaced: forget its attempts, and tell their workers where they are at home."""
        self._part(self._memory.attempts.drop_term(*key))

    def address_for(self, holding: RunHolding) -> str:
        """Where a run is at home; "" where that is here, or not known."""
        return self._address_of(holding.owner)

    def elsewhere(self, live: LiveAttempt) -> str:
        """Where an attempt's shard has gone under a later term, by etcd, while no row can be read here; else "".

        It only says whom to ask: who is asked judges by the row. Without it the worker would go on asking here, where
        nothing can be acknowledged, until its lease has ended.
        """
        held, owner = self._memory.holdings.get(live.key), self._published(live.shard)
        since_s = self._runtime.clock.monotonic_s() - self._runtime.settings.adoption_margin_s
        if held is not None and held.proven_s >= since_s:
            return ""
        return "" if owner is None or owner.term <= live.term else self._address_of(owner.dispatcher_id)

    async def run(self) -> None:
        """For ever, a few times a second while anything moves."""
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("redirecting workers waits for the database: %s", error)
            # Heartbeats under a term with an end are acknowledged only while the home was seen within the margin.
            await self._wake.wait(self._runtime.clock, min(_STEP_S, self._runtime.settings.adoption_margin_s / 4))

    async def step(self) -> None:
        """Look once at what may have been taken home by another owner, and at what left."""
        await self._look_at_ending_terms()
        await self._tell()

    # --- attempts that are no longer ours ---

    def _part(self, gone: Iterable[LiveAttempt]) -> None:
        until_s = self._runtime.clock.monotonic_s() + _TOLD_WITHIN_LEASES * self._runtime.settings.attempt_lease_s
        for live in gone:
            if live.holder is not None:
                parting = _Parting(live.run_id, live.attempt, live.token_hash, live.holder, until_s)
                self._partings[live.run_id] = parting
        if self._partings:
            self._wake.set()

    async def _tell(self) -> None:
        now_s = self._runtime.clock.monotonic_s()
        self._partings = {i: p for i, p in self._partings.items() if p.until_s > now_s and not p.holder.closed}
        partings = list(self._partings.values())
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(partings), limit):
            await self._tell_of(partings[start : start + limit])

    async def _tell_of(self, partings: Sequence[_Parting]) -> None:
        holdings = await self._store.holdings([parting.run_id for parting in partings])
        said: dict[Holder, list[pb.Acknowledgement]] = {}
        for parting in partings:
            holding = holdings.get(parting.run_id)
            address = ""
            if holding is not None and _is_open_still(parting, holding) and not self._is_at_home(holding):
                address = self.address_for(holding)
                if not address:
                    continue
            if self._partings.get(parting.run_id) is parting:
                del self._partings[parting.run_id]
            if address:
                said.setdefault(parting.holder, []).append(_redirect(parting, address))
        for holder, items in said.items():
            holder.acknowledge(items)

    def _is_at_home(self, holding: RunHolding) -> bool:
        return self._memory.holdings.get((holding.shard, holding.home_term)) is not None

    # --- attempts whose term comes to its end ---

    async def _look_at_ending_terms(self) -> None:
        """See which of the attempts under terms with an end are at home there still, and so of those in doubt."""
        ending = {held.key for held in self._memory.holdings if held.to_bucket != NO_END}
        doubted, self._doubted = self._doubted, {}
        if not ending and not doubted:
            return
        watched = [a for a in self._memory.attempts if not a.ending and (a.key in ending or a.run_id in doubted)]
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(watched), limit):
            part = watched[start : start + limit]
            sent_s = self._runtime.clock.monotonic_s()
            holdings = await self._store.holdings([live.run_id for live in part])
            for live in part:
                if self._memory.attempts.get(live.run_id) is live and not live.ending:
                    self.follow(live, holdings.get(live.run_id), sent_s)

    def doubt(self, live: LiveAttempt) -> None:
        """A write for this attempt was refused though its term holds, or that is held no more: look at its row soon."""
        self._doubted[live.run_id] = live
        self._wake.set()

    def follow(self, live: LiveAttempt, holding: RunHolding | None, sent_s: float) -> None:
        """Let memory follow the row as it was read after `sent_s`: a lease, a cancel, a lost ending, a move."""
        over = live.lease_until_us <= self._runtime.clock.now_us()
        if holding is not None and live.attempt > holding.attempt and not over:
            return  # read before it was leased, surely not a whole lease ago
        if holding is None or holding.state is not RunState.LEASED or holding.attempt != live.attempt:
            self._memory.attempts.remove(live)
            self._memory.readings.outdate(live.run_id)
            self._memory.run_ended(live.job_id)
            if holding is not None and holding.state in OPEN_RUN_STATES:
                self._memory.doubt([live.key], self._runtime.clock.monotonic_s())
            return
        if holding.home_term != live.term and not self._is_at_home(holding):
            self._memory.attempts.remove(live)
            self._memory.readings.outdate(live.run_id)
            self._part([live])
            return
        live.term = holding.home_term
        live.home_proven_s = max(live.home_proven_s, sent_s)
        live.sql_lease_until_us = max(live.sql_lease_until_us, holding.lease_until_us)
        if not live.lease_fixed:
            # Whoever extended it in SQL may have said so to the worker.
            live.lease_until_us = max(live.lease_until_us, holding.lease_until_us)
        if holding.cancel_requested_us and not live.cancel_requested:
            request_cancel(live)


def _is_open_still(parting: _Parting, holding: RunHolding) -> bool:
    same = holding.token_hash is not None and hmac.compare_digest(holding.token_hash, parting.token_hash)
    return holding.state is RunState.LEASED and holding.attempt == parting.attempt and same


def _redirect(parting: _Parting, address: str) -> pb.Acknowledgement:
    return pb.Acknowledgement(
        run_id=str(parting.run_id), attempt=parting.attempt, verdict=pb.VERDICT_REDIRECT, owner_address=address
    )
