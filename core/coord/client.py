"""The client of etcd: reads, writes, transactions, leases and watches, with plain values in and out.

It owns the channels and the token of one process. It never sends a write twice, never gives out a protobuf message,
and every call has a deadline. Errors: Unavailable (certainly not applied), OutcomeUnknown (a write's answer was lost),
and those of faults.py. Called by mirror.py, session.py, election.py and coord.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from core.clock import Clock
from core.coord import etcd_pb2 as pb
from core.coord import wire
from core.coord.calls import Backoff, Calls, Tokens
from core.coord.config import EtcdConfig
from core.coord.endpoints import Endpoints
from core.coord.records import (
    Compare,
    Delete,
    Get,
    LeaseGrant,
    Op,
    Put,
    RangeResult,
    StorePoint,
    TxnResult,
    WatchBatch,
)
from core.coord.watch import WatchOpener
from core.errors import Conflict, Invalid
from core.rand import Rand


class EtcdClient:
    """One process's way to etcd. Make it inside a running event loop; close it there."""

    def __init__(self, config: EtcdConfig, clock: Clock, rand: Rand) -> None:
        self.config = config
        self._clock = clock
        self._rand = rand
        self._endpoints = Endpoints(config, clock)
        tokens = Tokens(config.user)
        self._calls = Calls(config, self._endpoints, tokens, clock, rand)
        self._watches = WatchOpener(config, self._endpoints, tokens, clock, rand, self._where)

    @property
    def reachable(self) -> bool:
        """Whether some endpoint answered since they last all failed in a row."""
        return self._endpoints.reachable

    def backoff(self) -> Backoff:
        """Waits between tries of something larger than one call."""
        return Backoff(self.config, self._clock, self._rand)

    async def get(self, key: str) -> RangeResult:
        """One key, linearizable."""
        return wire.range_result(await self._calls.read(wire.RANGE, wire.range_request(key, prefix=False)))

    async def list_prefix(self, prefix: str) -> RangeResult:
        """Every key that starts with `prefix`, linearizable, in key order."""
        return wire.range_result(await self._calls.read(wire.RANGE, wire.range_request(prefix, prefix=True)))

    async def put(self, key: str, value: bytes, lease: int = 0) -> StorePoint:
        """Write one key; raises LeaseGone when the lease is not there."""
        return wire.point(await self._calls.write(wire.PUT, wire.put_request(Put(key, value, lease))))

    async def delete(self, key: str, *, prefix: bool = False) -> int:
        """Remove one key, or all that start with it; the number removed."""
        answer = await self._calls.write(wire.DELETE, wire.delete_request(Delete(key, prefix)))
        return int(answer.deleted)

    async def txn(self, compares: Iterable[Compare], then: Iterable[Op], otherwise: Iterable[Op] = ()) -> TxnResult:
        """Run `then` if every comparison holds, else `otherwise`; at most 128 entries in each of the three."""
        then, otherwise = tuple(then), tuple(otherwise)
        request = wire.txn_request(compares, then, otherwise)
        reads_only = all(isinstance(op, Get) for op in (*then, *otherwise))
        run = self._calls.read if reads_only else self._calls.write
        return wire.txn_result(await run(wire.TXN, request))

    async def compact(self, revision: int) -> None:
        """Drop the history before `revision`."""
        await self._calls.write(wire.COMPACT, pb.CompactionRequest(revision=revision, physical=True))

    async def grant(self, ttl_s: int) -> LeaseGrant:
        """Make a lease. One whose answer was lost holds no keys and dies by itself: just ask again."""
        answer = await self._calls.write(wire.GRANT, pb.LeaseGrantRequest(ttl=ttl_s))
        if answer.error:
            raise Conflict(f"etcd grants no lease: {answer.error}")
        return LeaseGrant(lease=answer.id, ttl_s=answer.ttl)

    async def revoke(self, lease: int) -> None:
        """End a lease and remove its keys; raises LeaseGone when it is not there. Safe to repeat, so it is repeated."""
        await self._calls.read(wire.REVOKE, pb.LeaseRevokeRequest(id=lease))

    async def keep_alive(self, lease: int, timeout_s: float, patience_s: float | None = None) -> int:
        """Renew a lease within `timeout_s`; the TTL it has again, 0 when it is gone.

        After each `patience_s` of silence (default: never) another endpoint is asked as well.
        """
        return await self._calls.keep_alive(lease, timeout_s, timeout_s if patience_s is None else patience_s)

    async def time_to_live(self, lease: int) -> int:
        """Seconds that a lease has left; -1 when it is gone."""
        return int((await self._calls.read(wire.TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(id=lease))).ttl)

    async def server_version(self) -> str:
        """The version of the server that answers."""
        return str((await self._calls.read(wire.STATUS, pb.StatusRequest())).version)

    def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch]:
        """Every change under `prefix` from `start_revision` on, each once, in order, across broken connections.

        Batches without events are signs of life. Close the iterator (contextlib.aclosing) when leaving it early.
        Raises Compacted when the history is gone, StoreReplaced when another store answers, AccessDenied when the user
        may not read there, and nothing else while the client is open.
        """
        if start_revision < 1:
            raise Invalid("start_revision", "must be at least 1: list first, then watch from the list's revision + 1")
        return self._watches.watch(prefix, start_revision)

    async def _where(self, key: str) -> StorePoint:
        return wire.point(await self._calls.read(wire.RANGE, wire.range_request(key, prefix=False, count_only=True)))

    async def close(self) -> None:
        """Close the channels; calls in flight fail."""
        await self._calls.close()
        await self._endpoints.close()
