"""Tells the owner of a shard that something landed in it, or that a run was canceled. Hints only.

The API hands a hint over and never waits for it: what is pending is bounded, coalesced by dispatcher, and sent in
batches, one call at a time to each. A hint that is lost, late or sent to a wrong owner costs a tick of the due loop.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol
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


class HintSink(Protocol):
    """Where the API leaves its hints; no call waits."""

    def landed(self, shard: int) -> None:
        """A due row landed in `shard`."""
        ...

    def canceled(self, shard: int, run_id: UUID) -> None:
        """The cancel of a run of `shard` was written."""
        ...


@dataclass(slots=True)
class _Pending:
    shards: set[int] = field(default_factory=set)
    run_ids: set[UUID] = field(default_factory=set)


class Hints:
    """Implements HintSink over DispatcherService."""

    def __init__(self, coord: CoordView, clock: Clock, tasks: Tasks) -> None:
        self._coord = coord
        self._clock = clock
        self._tasks = tasks
        self._landed: set[int] = set()
        self._canceled: dict[UUID, int] = {}
        self._wake = Wake()
        self._by_address: dict[str, _Pending] = {}
        self._busy: set[str] = set()
        self._channels: dict[str, grpc.aio.Channel] = {}

    def landed(self, shard: int) -> None:
        self._landed.add(shard)
        self._wake.set()

    def canceled(self, shard: int, run_id: UUID) -> None:
        if len(self._canceled) < _PENDING_RUNS:
            self._canceled[run_id] = shard
            self._wake.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._wake.wait(self._clock, _IDLE_TICK_S)
            self._address()
            for address in [each for each in self._by_address if each not in self._busy]:
                self._busy.add(address)
                self._tasks.spawn(self._drain(address), name=f"hints to {address}")
            await self._forget_gone()

    async def close(self) -> None:
        """Close the connections. To be called when the tasks have ended."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    def _address(self) -> None:
        """Sort what is pending by the owner's address; what has no known owner is dropped."""
        landed, self._landed = self._landed, set()
        canceled, self._canceled = self._canceled, {}
        owners, members = self._coord.owners(), self._coord.members()

        def address_of(shard: int) -> str | None:
            owner = owners.get(shard)
            member = None if owner is None else members.get(owner.dispatcher_id)
            return None if member is None else member.address

        for shard in landed:
            address = address_of(shard)
            if address is not None:
                self._by_address.setdefault(address, _Pending()).shards.add(shard)
        for run_id, shard in canceled.items():
            address = address_of(shard)
            if address is not None:
                pending = self._by_address.setdefault(address, _Pending())
                if len(pending.run_ids) < _PENDING_RUNS:
                    pending.run_ids.add(run_id)

    async def _drain(self, address: str) -> None:
        try:
            while (pending := self._by_address.pop(address, None)) is not None:
                run_ids = [str(run_id) for run_id in pending.run_ids]
                for start in range(0, max(1, len(run_ids)), _BATCH_RUNS):
                    shards = sorted(pending.shards) if start == 0 else []
                    await self._send(address, shards, run_ids[start : start + _BATCH_RUNS])
        finally:
            self._busy.discard(address)

    async def _send(self, address: str, shards: list[int], run_ids: list[str]) -> None:
        stub: Any = internal_pb2_grpc.DispatcherServiceStub(self._channel(address))
        request = internal_pb2.HintRequest(landed_shards=shards, canceled_run_ids=run_ids)
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
