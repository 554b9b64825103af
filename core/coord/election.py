"""Who leads: the candidate whose key under a prefix was created first, each key on its candidate's lease.

The key's create revision is the leader's term at etcd, and guards every write that it makes there. On any doubt nobody
here leads: an error while campaigning is waited out, never taken for a victory (B71), and a leader that was paused
finds its lease no longer valid and its writes refused (B70). Etcd's leader is advice: SQL terms fence what it orders.
Made by coord.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from core.clock import Clock
from core.coord.client import EtcdClient
from core.coord.faults import LeadershipLost
from core.coord.mirror import Mirror, Snapshot
from core.coord.notice import Notice
from core.coord.records import Compare, Delete, Field, Get, KeyValue, Op, TxnResult
from core.coord.session import HeldLease, Session
from core.errors import TidewheelError
from core.tasks import Tasks, Wake

log = logging.getLogger(__name__)

_TICK_S = 1.0  # how long a lost hint can matter


class Leadership:
    """One tenure, from the victory to its loss. `term_revision` grows from leader to leader while the store lives."""

    def __init__(self, key: str, term_revision: int, held: HeldLease) -> None:
        self.key = key
        self.term_revision = term_revision
        self.lost = asyncio.Event()
        self.loss = ""
        self.held = held

    @property
    def valid(self) -> bool:
        """Whether there is no reason to doubt it: look before acting, `lost` may come a moment later."""
        return not self.lost.is_set() and self.held.valid

    def lose(self, reason: str) -> None:
        """Tell whoever leads to stop."""
        if not self.lost.is_set():
            self.loss = reason
            self.lost.set()


class Election:
    """Campaigns under `prefix`, which `mirror` must cover."""

    def __init__(
        self, client: EtcdClient, session: Session, mirror: Mirror, prefix: str, clock: Clock, tasks: Tasks
    ) -> None:
        self._client = client
        self._session = session
        self._mirror = mirror
        self._prefix = prefix
        self._clock = clock
        self._tasks = tasks
        self._wake = Wake()
        self._notice = Notice(log, "campaigning for leadership")
        mirror.on_change(self._wake.set)
        session.on_change(self._wake.set)

    async def campaign(self, value: bytes) -> Leadership:
        """Wait until this process leads, however long etcd is away; the candidate's key holds `value`."""
        backoff = self._client.backoff()
        try:
            while True:
                held = self._session.held
                try:
                    leadership = None if held is None else await self._stand(held, value)
                    self._notice.worked()
                except TidewheelError as error:
                    self._notice.failed(error)
                    await backoff.wait()
                    continue
                backoff.reset()
                if leadership is not None and await self._seen(leadership):
                    self._tasks.spawn(self._watch_over(leadership), name="leadership")
                    return leadership
                await self._wake.wait(self._clock, _TICK_S)
        except asyncio.CancelledError:
            await self._withdraw()
            raise

    def observe(self) -> KeyValue | None:
        """The leader's key as last seen, or None: nobody leads, or nothing is known yet."""
        return _first(self._candidates(self._mirror.snapshot()))

    async def guarded_txn(
        self, leadership: Leadership, then: Iterable[Op], compares: Iterable[Compare] = ()
    ) -> TxnResult:
        """Write as the leader. Raises LeadershipLost when the election key is not ours any more.

        A result that did not succeed means that one of `compares` failed while the leadership holds.
        """
        if not leadership.valid:
            leadership.lose("the lease is no longer held")
            raise LeadershipLost(f"not leading: {leadership.loss}")
        guard = Compare(leadership.key, Field.CREATE_REVISION, leadership.term_revision)
        result = await self._client.txn([guard, *compares], then, [Get(leadership.key)])
        if not result.succeeded:
            present = result.reads[0].first
            if present is None or present.create_revision != leadership.term_revision:
                leadership.lose("the election key is no longer ours")
                raise LeadershipLost(f"not leading: {leadership.loss}")
        return result

    async def resign(self, leadership: Leadership) -> None:
        """Stop leading and let the next candidate in; harmless when it was lost already."""
        leadership.lose("resigned")
        guard = Compare(leadership.key, Field.CREATE_REVISION, leadership.term_revision)
        await self._client.txn([guard], [Delete(leadership.key)])

    async def _stand(self, held: HeldLease, value: bytes) -> Leadership | None:
        """Be a candidate on this lease until that is won (a Leadership) or cannot be (None: start over)."""
        key = f"{self._prefix}{held.lease:x}"
        mine = await self._enter(held, key, value)
        while held.valid:
            # This read, linearizable and guarded by our own key, decides; no event, timer or cache makes a leader.
            guard = Compare(key, Field.CREATE_REVISION, mine)
            field = await self._client.txn([guard], [Get(self._prefix, prefix=True)])
            if not field.succeeded:
                return None
            ahead = [kv for kv in field.reads[0].kvs if kv.create_revision < mine]
            if not ahead:
                return Leadership(key, mine, held) if held.valid else None
            await self._until_gone(max(ahead, key=lambda kv: kv.create_revision), held)
        return None

    async def _enter(self, held: HeldLease, key: str, value: bytes) -> int:
        """Put our candidate's key, again if need be: its name holds our lease, so nobody else's is touched."""
        await self._client.put(key, value, held.lease)
        present = (await self._client.get(key)).first
        if present is None or present.lease != held.lease:
            raise LeadershipLost("the candidate's key vanished at once")
        return present.create_revision

    async def _until_gone(self, predecessor: KeyValue, held: HeldLease) -> None:
        """Wait until the candidate just before us is gone, as far as the mirror knows, or for one tick."""
        await self._wake.wait(self._clock, _TICK_S)
        while held.valid and self._mirror.synced:
            known = self._mirror.snapshot().kvs.get(predecessor.key)
            if known is None or known.create_revision != predecessor.create_revision:
                return
            if not await self._wake.wait(self._clock, _TICK_S):
                return

    async def _watch_over(self, leadership: Leadership) -> None:
        """Note the loss of a leadership as soon as anything tells of it."""
        wake = Wake()
        forget = (self._mirror.on_change(wake.set), self._session.on_change(wake.set))
        try:
            await self._until_doubted(leadership, wake)
            leadership.lose(leadership.held.loss or "the lease is no longer held")
            log.warning("no longer the leader: %s", leadership.loss)
        finally:
            for each in forget:
                each()

    async def _until_doubted(self, leadership: Leadership, wake: Wake) -> None:
        generation = self._mirror.snapshot().generation
        while leadership.valid:
            if self._mirror.snapshot().generation != generation:
                leadership.lose("the store was replaced")
            elif not self._shows(leadership):
                leadership.lose("the election key is gone")
            else:
                await wake.wait(self._clock, min(_TICK_S, max(0.0, leadership.held.trusted_for_s)))

    async def _seen(self, leadership: Leadership) -> bool:
        """Wait until the mirror has come as far as this victory, so that a leader never acts on an older view.

        False after one tick without news: then the key may be gone again, and the election is looked at anew.
        """
        while leadership.valid and not self._shows(leadership):
            if not await self._wake.wait(self._clock, _TICK_S):
                return False
        return leadership.valid

    def _shows(self, leadership: Leadership) -> bool:
        known = self._mirror.snapshot().kvs.get(leadership.key)
        return known is not None and known.create_revision == leadership.term_revision

    async def _withdraw(self) -> None:
        """Leave the field when a campaign is given up; what fails here ends with the lease."""
        held = self._session.held
        if held is None:
            return
        key = f"{self._prefix}{held.lease:x}"
        try:
            async with asyncio.timeout(self._client.config.connect_timeout_s):
                await self._client.txn([Compare(key, Field.LEASE, held.lease)], [Delete(key)])
        except (TidewheelError, TimeoutError) as error:
            log.info("the candidate's key could not be removed (%s); it ends with the lease", error or "no answer")

    def _candidates(self, snapshot: Snapshot) -> list[KeyValue]:
        return [kv for key, kv in snapshot.kvs.items() if key.startswith(self._prefix)]


def _first(candidates: list[KeyValue]) -> KeyValue | None:
    return min(candidates, key=lambda kv: kv.create_revision, default=None)
