"""The lease of this process, and the keys that hang on it.

It owns the lease: renews it, tells the holder before the server could have expired it, and takes a new one when it is
lost. What keys.py is to write follows the lease that is held. It never decides what a lost lease means: dispatchers go
on until fenced, leaders stop. Made by coord.py.
"""

from __future__ import annotations

import asyncio
import logging

from core.clock import Clock
from core.coord.client import EtcdClient
from core.coord.config import SessionConfig
from core.coord.faults import LeaseGone
from core.coord.keys import Beats, LeasedKeys
from core.coord.listeners import Listener, Listeners
from core.coord.notice import Notice
from core.errors import TidewheelError
from core.tasks import Tasks, Wake

log = logging.getLogger(__name__)

# So many endpoints are asked during one renewal interval while none of them answers.
_ASKED_IN_TURN = 4


class HeldLease:
    """One lease from its grant to its loss. It is never regained: after a loss there is another one."""

    def __init__(self, lease: int, trusted_until_s: float, clock: Clock, wake: Wake) -> None:
        self.lease = lease
        self.lost = asyncio.Event()
        self.loss = ""
        self._wake = wake
        self._trusted_until_s = trusted_until_s
        self._clock = clock

    @property
    def valid(self) -> bool:
        """Whether the server cannot have expired it yet; true also just after this process was frozen and goes on."""
        return not self.lost.is_set() and self._clock.monotonic_s() < self._trusted_until_s

    @property
    def trusted_for_s(self) -> float:
        """Seconds until it stops being valid unless it is renewed."""
        return self._trusted_until_s - self._clock.monotonic_s()

    def renewed(self, trusted_until_s: float) -> None:
        """Extend the trust; a lost lease stays lost."""
        self._trusted_until_s = max(self._trusted_until_s, trusted_until_s)

    def lose(self, reason: str) -> None:
        """Tell everybody who waits on `lost`."""
        if not self.lost.is_set():
            self.loss = reason
            self.lost.set()
            self._wake.set()


class Session:
    """Keeps one lease alive, and the registered keys on it, by tasks in the set that it is given."""

    def __init__(self, client: EtcdClient, config: SessionConfig, clock: Clock, tasks: Tasks) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._held: HeldLease | None = None
        self._wake = Wake()
        self._on_change = Listeners()
        self._notice = Notice(log, "keeping the etcd lease")
        self._tasks = tasks
        self.keys = LeasedKeys(client, clock, verify_s=config.verify_s)
        self.losses = 0

    @property
    def held(self) -> HeldLease | None:
        """The lease that may be relied on now, or None."""
        return self._held if self._held is not None and self._held.valid else None

    def on_change(self, listener: Listener) -> Listener:
        """Have `listener` called when a lease is granted or lost."""
        return self._on_change.add(listener)

    def put(self, key: str, value: bytes, beats: Beats | None = None) -> None:
        """Have `key` hold `value` on our lease from now on, also after the lease or the store was replaced.

        Returns at once; the write follows as soon as etcd allows it. `beats(present)` says whether our value may
        replace what another process wrote there (default: yes).
        """
        self.keys.put(key, value, beats)

    def delete(self, key: str) -> None:
        """Have `key` gone, unless another process has put it meanwhile. Returns at once."""
        self.keys.delete(key)

    async def settled(self) -> None:
        """Wait until etcd holds all that was asked for."""
        await self.keys.settled()

    def start(self) -> None:
        """Begin to keep a lease; never waits for etcd."""
        self._tasks.spawn(self._run(), name="etcd session")
        self._tasks.spawn(self.keys.run(), name="etcd keys")

    async def close(self) -> None:
        """Revoke the lease, so that its keys vanish at once. To be called when the tasks have ended."""
        held, self._held = self._held, None
        if held is None:
            return
        held.lose("closed")
        try:
            async with asyncio.timeout(self._config.renew_s):
                await self._client.revoke(held.lease)
        except (TidewheelError, TimeoutError) as error:
            log.info("the lease could not be revoked (%s); it ends by itself", error or "no answer")

    async def _run(self) -> None:
        while True:
            held = await self._acquire()
            self._held = held
            self.keys.use(held)
            self._on_change.tell()
            renewals = self._tasks.spawn(self._renew(held), name="etcd lease renewal")
            await self._until_lost(held)
            renewals.cancel()
            self.losses += 1
            log.warning("etcd lease %x lost: %s; taking a new one", held.lease, held.loss)
            self._on_change.tell()

    async def _acquire(self) -> HeldLease:
        backoff = self._client.backoff()
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                grant = await self._client.grant(self._config.ttl_s)
            except TidewheelError as error:
                self._notice.failed(error)
                await backoff.wait()
                continue
            self._notice.worked()
            trusted_until_s = asked_s + grant.ttl_s - self._config.margin_s
            return HeldLease(grant.lease, trusted_until_s, self._clock, self._wake)

    async def _renew(self, held: HeldLease) -> None:
        """Renew until the lease is gone; whether it is still trusted is _until_lost's to say."""
        backoff = self._client.backoff()
        while True:
            sent_s = self._clock.monotonic_s()
            try:
                patience_s = self._config.renew_s / _ASKED_IN_TURN
                ttl_s = await self._client.keep_alive(held.lease, self._config.renew_s, patience_s)
                if ttl_s <= 0:
                    raise LeaseGone("it expired or was revoked at the server")
            except LeaseGone as gone:
                held.lose(str(gone))
                return
            except TidewheelError as error:
                self._notice.failed(error)
                await backoff.wait(self._config.renew_s / 2)
                continue
            self._notice.worked()
            backoff.reset()
            held.renewed(sent_s + ttl_s - self._config.margin_s)
            await self._clock.sleep(self._config.renew_s)

    async def _until_lost(self, held: HeldLease) -> None:
        """Return when the lease is gone, or when the server could be about to expire it."""
        while not held.lost.is_set():
            if not held.valid:
                held.lose("no renewal was answered in time")
                return
            await self._wake.wait(self._clock, min(held.trusted_for_s, self._config.renew_s))
