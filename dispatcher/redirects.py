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
from core.errors import OutcomeUnknown, Unavailable
from core.states import RunState
from core.store.completion import Completion, RunHolding
from core.tasks import Wake
from dispatcher.attempts import Holder, LiveAttempt
from dispatcher.holdings import Key
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# A lease later the attempt is lost or its worker has asked by itself.
_TOLD_WITHIN_LEASES = 1.0
_STEP_S = 0.25


@dataclass(frozen=True, slots=True)
class _Parting:
    """An attempt that left memory, and its worker, who is to be told until `until_s` (monotonic)."""

    run_id: UUID
    attempt: int
    token_hash: bytes
    holder: Holder
    until_s: float


class Redirects:
    """Tells workers whom to talk to from now on. `address_of` names a dispatcher's address, "" where it is unknown."""

    def __init__(self, runtime: Runtime, memory: Memory, store: Completion, address_of: Callable[[str], str]) -> None:
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._address_of = address_of
        self._partings: dict[UUID, _Parting] = {}
        self._wake = Wake()

    def leave(self, key: Key) -> None:
        """A term of ours was closed or replaced: forget its attempts, and tell their workers where they are at home."""
        self._part(self._memory.attempts.drop_term(*key))

    def address_for(self, holding: RunHolding) -> str:
        """Where a run is at home; "" where that is here, or not known."""
        return self._address_of(holding.owner)

    async def run(self) -> None:
        """For ever, a few times a second while anything moves."""
        while True:
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("redirecting workers waits for the database: %s", error)
            await self._wake.wait(self._runtime.clock, _STEP_S)

    async def step(self) -> None:
        """Look once at what left, and at what may have been taken home by another owner."""
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
        """See which of the attempts under terms with an end are still at home there."""
        ending = {held.key for held in self._memory.holdings if held.to_bucket != NO_END}
        if not ending:
            return
        watched = [live for live in self._memory.attempts if live.key in ending and not live.ending]
        limit = self._runtime.settings.batch_limit
        for start in range(0, len(watched), limit):
            await self._look_at(watched[start : start + limit])

    async def _look_at(self, watched: Sequence[LiveAttempt]) -> None:
        holdings = await self._store.holdings([live.run_id for live in watched])
        moved = [live for live in watched if _has_moved(live, holdings.get(live.run_id))]
        for live in moved:
            self._memory.attempts.remove(live)
        self._part(moved)


def _is_open_still(parting: _Parting, holding: RunHolding) -> bool:
    same = holding.token_hash is not None and hmac.compare_digest(holding.token_hash, parting.token_hash)
    return holding.state is RunState.LEASED and holding.attempt == parting.attempt and same


def _has_moved(live: LiveAttempt, holding: RunHolding | None) -> bool:
    leased = holding is not None and holding.state is RunState.LEASED and holding.attempt == live.attempt
    return holding is not None and leased and holding.home_term != live.term


def _redirect(parting: _Parting, address: str) -> pb.Acknowledgement:
    return pb.Acknowledgement(
        run_id=str(parting.run_id), attempt=parting.attempt, verdict=pb.VERDICT_REDIRECT, owner_address=address
    )
