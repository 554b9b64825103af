"""Sends hints to dispatchers: pending ones are bounded, coalesced by address, and sent in batches. Hints only.

Whoever has a hint hands it over and never waits. One call at a time goes to each address; a hint that is lost, late or
sent to a wrong owner costs a tick. Used by controlplane/hints.py and dispatcher/neighbours.py, which know whose it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import grpc

from core.clock import Clock
from core.coord.ports import CoordView
from core.tasks import Tasks, Wake
from core.wire import internal_pb2, internal_pb2_grpc

log = logging.getLogger(__name__)

_PENDING_RUNS = 10_000
_BATCH_RUNS = 1_000
_CALL_TIMEOUT_S = 1.0
_IDLE_TICK_S = 5.0


@dataclass(slots=True)
class _Pending:
    landed: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    run_ids: set[UUID] = field(default_factory=set)


class HintPost:
    """One outbox to all dispatchers. `coord` tells which addresses are still theirs."""

    def __init__(self, coord: CoordView, clock: Clock) -> None:
        self._coord = coord
        self._clock = clock
        self._wake = Wake()
        self._by_address: dict[str, _Pending] = {}
        self._busy: set[str] = set()
        self._channels: dict[str, grpc.aio.Channel] = {}

    def address_of(self, dispatcher_id: str) -> str | None:
        """Where that dispatcher takes hints, None if it is not among the members."""
        member = self._coord.members().get(dispatcher_id)
        return None if member is None else member.address

    def put(
        self, address: str, *, landed: Iterable[int] = (), changed: Iterable[int] = (), canceled: Iterable[UUID] = ()
    ) -> None:
        """Have these shards and runs hinted there, soon."""
        pending = self._by_address.setdefault(address, _Pending())
        pending.landed.update(landed)
        pending.changed.update(changed)
        for run_id in canceled:
            if len(pending.run_ids) >= _PENDING_RUNS:
                break
            pending.run_ids.add(run_id)
        self._wake.set()

    async def run(self) -> None:
        """Send for ever; what is under way ends with the caller."""
        tasks = Tasks()
        try:
            while True:
                await self._wake.wait(self._clock, _IDLE_TICK_S)
                for address in [each for each in self._by_address if each not in self._busy]:
                    self._busy.add(address)
                    tasks.spawn(self._drain(address), name=f"hints to {address}")
                await self._forget_gone()
        finally:
            await tasks.close()
            channels, self._channels = list(self._channels.values()), {}
            for channel in channels:
                await channel.close()

    async def _drain(self, address: str) -> None:
        try:
            while (pending := self._by_address.pop(address, None)) is not None:
                run_ids = [str(run_id) for run_id in pending.run_ids]
                landed, changed = sorted(pending.landed), sorted(pending.changed)
                for start in range(0, max(1, len(run_ids)), _BATCH_RUNS):
                    shards = {"landed_shards": landed, "changed_shards": changed} if start == 0 else {}
                    await self._send(
                        address,
                        internal_pb2.HintRequest(canceled_run_ids=run_ids[start : start + _BATCH_RUNS], **shards),
                    )
        finally:
            self._busy.discard(address)

    async def _send(self, address: str, request: internal_pb2.HintRequest) -> None:
        stub: Any = internal_pb2_grpc.DispatcherServiceStub(self._channel(address))
        try:
            await stub.Hint(request, timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.debug("a hint to %s was lost: %s", address, error.code().name)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)])
        return channel

    async def _forget_gone(self) -> None:
        live = {member.address for member in self._coord.members().values()}
        gone = [each for each in self._channels if each not in live and each not in self._busy]
        closing = [self._channels.pop(address).close() for address in gone]
        await asyncio.gather(*closing)
