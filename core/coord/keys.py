"""The keys that this process wants in etcd, on its lease: a wish list, written until etcd agrees.

Each write is compared with what was read just before, so a late or repeated one changes nothing, and a lost answer is
settled by reading again. Called by session.py, which says on which lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from core.clock import Clock
from core.coord.client import EtcdClient
from core.coord.faults import LeaseGone
from core.coord.notice import Notice
from core.coord.records import Compare, Delete, Field, Get, KeyValue, Put
from core.errors import TidewheelError
from core.tasks import Wake

log = logging.getLogger(__name__)

Beats = Callable[[bytes], bool]

_BATCH = 64  # half of the operations that etcd takes in a transaction


class Lease(Protocol):
    """What is needed of the lease that is held."""

    lease: int

    @property
    def valid(self) -> bool: ...

    def lose(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one key is to be; `value` None: gone."""

    value: bytes | None
    beats: Beats | None = None


class LeasedKeys:
    """The wishes, and the loop that writes them."""

    def __init__(self, client: EtcdClient, clock: Clock, *, verify_s: float) -> None:
        self._client = client
        self._clock = clock
        self._verify_s = verify_s
        self._wishes: dict[str, _Wish] = {}
        self._open: set[str] = set()
        self._standing: dict[str, int] = {}  # the store's revision at which a key was as wished
        self._lease: Lease | None = None
        self._former: set[int] = set()  # leases of ours before this one: to be revoked when all keys have moved
        self._own: set[int] = set()
        self._wake = Wake()
        self._settled = Wake()
        self._notice = Notice(log, "writing our keys to etcd")

    def put(self, key: str, value: bytes, beats: Beats | None) -> None:
        """See Session.put."""
        self._wish(key, _Wish(value, beats))

    def delete(self, key: str) -> None:
        """See Session.delete."""
        self._wish(key, _Wish(None))

    def use(self, lease: Lease) -> None:
        """Hang everything on this lease; the one before is revoked once that is done."""
        if self._lease is not None:
            self._former.add(self._lease.lease)
        self._lease = lease
        self._own.add(lease.lease)
        self.verify()

    def verify(self) -> None:
        """Compare every key with what etcd holds, and write those that differ."""
        self._standing.clear()
        self._open.update(self._wishes)
        self._wake.set()

    def verify_against(self, present: Collection[str], revision: int) -> None:
        """Put again what somebody removed: the keys that stood at or before `revision`, but are not present then."""
        gone = {key for key, since in self._standing.items() if since <= revision and key not in present}
        if gone:
            self._open.update(gone)
            for key in gone:
                del self._standing[key]
            self._wake.set()

    async def settled(self) -> None:
        """Wait until every wish is fulfilled."""
        while self._open or self._lease is None:
            await self._settled.wait(self._clock, 0.05)

    async def run(self) -> None:
        """Write what is wished, for ever."""
        backoff = self._client.backoff()
        while True:
            hinted = await self._wake.wait(self._clock, self._verify_s)
            if not hinted:
                self.verify()
            while (lease := self._lease) is not None and lease.valid and (self._open or self._former):
                try:
                    agreed = await self._write_some(lease)
                    self._notice.worked()
                except LeaseGone as gone:
                    lease.lose(str(gone))
                    break
                except TidewheelError as error:
                    self._notice.failed(error)
                    agreed = False
                if agreed:
                    backoff.reset()
                else:
                    await backoff.wait()

    def _wish(self, key: str, wish: _Wish) -> None:
        self._wishes[key] = wish
        self._standing.pop(key, None)
        self._open.add(key)
        self._wake.set()

    async def _write_some(self, lease: Lease) -> bool:
        """Fulfil some wishes; false when somebody else wrote in between, so that it must be looked at again."""
        batch = {key: self._wishes[key] for key in sorted(self._open)[:_BATCH]}
        if not batch:
            await self._revoke_former()
            return True
        found = await self._client.txn([], [Get(key) for key in batch])
        present = {key: read.first for key, read in zip(batch, found.reads, strict=True)}
        compares: list[Compare] = []
        ops: list[Put | Delete] = []
        for key, wish in batch.items():
            op = self._needed(key, wish, present[key], lease.lease)
            if op is not None:
                kv = present[key]
                compares.append(Compare(key, Field.MOD_REVISION, kv.mod_revision if kv else 0))
                ops.append(op)
        at = found.at
        if ops:
            written = await self._client.txn(compares, ops)
            if not written.succeeded:
                return False
            at = written.at
        self._fulfilled(batch, at.revision)
        return True

    def _needed(self, key: str, wish: _Wish, present: KeyValue | None, lease: int) -> Put | Delete | None:
        if wish.value is None:
            return Delete(key) if present is not None and present.lease in self._own else None
        if present is not None and present.lease == lease and present.value == wish.value:
            return None
        foreign = present is not None and present.lease not in self._own
        if foreign and present is not None and wish.beats is not None and not wish.beats(present.value):
            return None
        return Put(key, wish.value, lease)

    def _fulfilled(self, batch: dict[str, _Wish], revision: int) -> None:
        for key, wish in batch.items():
            if self._wishes[key] is not wish:
                continue  # changed while it was being written
            self._open.discard(key)
            if wish.value is None:
                del self._wishes[key]
            else:
                self._standing[key] = revision
        if not self._open:
            self._settled.set()

    async def _revoke_former(self) -> None:
        for lease in tuple(self._former):
            try:
                await self._client.revoke(lease)
            except LeaseGone:
                log.debug("former lease %x is gone", lease)
            self._former.discard(lease)
