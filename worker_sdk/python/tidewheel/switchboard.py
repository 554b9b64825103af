"""The worker without its sockets and handlers: joins streams, credits and attempts. No I/O, no tasks.

It decides what is started, what is given back, who gets credits, and when a handler is told to stop. It must never
wait: whatever takes time is ordered from `Orders` and comes back as a call. Called by worker.py and link.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Iterable
from typing import Protocol

from tidewheel.attempts import Attempt, Attempts
from tidewheel.clock import Clock
from tidewheel.context import Stop, StopKind
from tidewheel.credits import allocate
from tidewheel.delivery import Delivery, Stream
from tidewheel.effects import Acknowledged, Assigned, CancelOrdered, Effect, Extended, Opened
from tidewheel.protocol import StreamProtocol
from tidewheel.v1.worker_service_pb2 import Assignment, AttemptRef, CancelOrder, Result

log = logging.getLogger(__name__)

# Results that wait for their acknowledgement beyond this many hold slots, so that a dispatcher which cannot write
# stops getting credits before the worker's memory fills.
UNACKNOWLEDGED_FREE = 1_000
# After the process stood still for half a lease, what arrives within this time may have been sent before.
THAW_S = 0.5
# However many things are due, the sweep over all attempts is not repeated faster.
SHORTEST_SWEEP_S = 0.02


class Orders(Protocol):
    """What the switchboard needs done in the world."""

    def start(self, attempt: Attempt) -> None:
        """Run the handler; `finished` is called exactly once for it."""
        ...

    def stop(self, attempt: Attempt, stop: Stop) -> None:
        """Tell the handler to stop, if it runs. Telling it twice is telling it once."""
        ...

    def stir(self) -> None:
        """Something changed: call `turn` once in this turn of the event loop."""
        ...


class Switchboard:
    """One worker's state. `handlers` are the names that can be started."""

    def __init__(self, slots: int, handlers: Container[str], clock: Clock, orders: Orders) -> None:
        self._slots = slots
        self._handlers = handlers
        self._clock = clock
        self._orders = orders
        self._streams: dict[str, Stream] = {}
        self._attempts = Attempts()
        self._delivery = Delivery(self._attempts, self._streams, orders.stop)
        self._leaving = False
        self._turns = 0
        self._hellos = 0
        self._swept_s = clock.monotonic_s()
        self._thawed_s = -math.inf
        # When `sweep` wants to be called.
        self.next_sweep_s = 0.0

    # ---- what the rim asks ----

    @property
    def running(self) -> int:
        """Handlers that hold a slot."""
        return self._attempts.running

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing waits to be said or acknowledged."""
        return (
            not self._attempts
            and self._attempts.running == 0
            and not any(stream.protocol.has_unsaid for stream in self._streams.values())
        )

    @property
    def wanted_addresses(self) -> set[str]:
        """Where links should be: every known dispatcher, and whoever is still to be told something."""
        return {*self._delivery.known, *self._attempts.addresses}

    def holding(self) -> list[AttemptRef]:
        """What each Hello names: everything, whoever assigned it. The dispatcher may have become its owner since."""
        return [attempt.ref for attempt in self._attempts]

    def next_hello(self) -> int:
        """The number of a Hello that is composed now."""
        self._hellos += 1
        return self._hellos

    def is_open(self, address: str) -> bool:
        return address in self._streams

    # ---- what happens ----

    def listed(self, addresses: Iterable[str]) -> None:
        """Discovery named the dispatchers."""
        self._delivery.known = tuple(dict.fromkeys(addresses))
        self.next_sweep_s = 0.0

    def lost(self, address: str, protocol: StreamProtocol) -> None:
        """The stream broke. Nothing ends by that; its credits are void."""
        stream = self._streams.get(address)
        if stream is not None and stream.protocol is protocol:
            del self._streams[address]
            self._orders.stir()

    def handle(self, address: str, protocol: StreamProtocol, effect: Effect) -> None:
        """Do what a frame means. Refused and Violated are the link's own matter."""
        now_s = self._clock.monotonic_s()
        if isinstance(effect, Assigned):
            self._assigned(address, protocol, effect, now_s)
        elif isinstance(effect, Acknowledged):
            self._delivery.acknowledged(effect.items, now_s)
        elif isinstance(effect, Extended):
            self._delivery.extended(effect, now_s)
        elif isinstance(effect, CancelOrdered):
            self._cancel(effect.items, now_s)
        elif isinstance(effect, Opened):
            self._opened(address, protocol, effect, now_s)
        self._orders.stir()

    def _opened(self, address: str, protocol: StreamProtocol, effect: Opened, now_s: float) -> None:
        self._streams[address] = Stream(protocol, effect.heartbeat_interval_s, effect.lease_s, now_s)
        self._delivery.opened(address, effect.stale, now_s)
        self.next_sweep_s = 0.0
        if self._leaving:
            protocol.goodbye()

    def _assigned(self, address: str, protocol: StreamProtocol, effect: Assigned, now_s: float) -> None:
        for assignment in effect.beyond:
            protocol.give_back(assignment.ref)
        lease_s = self._streams[address].lease_s
        if self._stood_still(now_s, lease_s):
            # They may have waited for us longer than their lease: somebody else may run them by now.
            for assignment in effect.items:
                protocol.give_back(assignment.ref)
            return
        earliest_s = self.next_sweep_s
        for assignment in effect.items:
            if assignment.handler not in self._handlers:
                log.warning("handler %r is not known here: run %s returned", assignment.handler, assignment.ref.run_id)
                protocol.give_back(assignment.ref)
            elif not self._is_held(assignment):
                attempt = Attempt(assignment, address, now_s, lease_s, self._clock)
                earliest_s = min(earliest_s, attempt.stop_s)
                self._attempts.add(attempt)
                self._attempts.running += 1
                self._orders.start(attempt)
        self.next_sweep_s = earliest_s

    def _stood_still(self, now_s: float, lease_s: float) -> bool:
        """Whether this process was stopped, or its event loop blocked, until just now: sweeps come every second."""
        if now_s - self._swept_s > lease_s / 2:
            self._thawed_s = now_s
        return now_s - self._thawed_s < THAW_S

    def _is_held(self, assignment: Assignment) -> bool:
        """Whether the attempt is here already: a dispatcher may say an assignment again after a broken stream."""
        return self._attempts.get((assignment.ref.run_id, assignment.ref.attempt)) is not None

    def _cancel(self, items: Iterable[CancelOrder], now_s: float) -> None:
        for item in items:
            attempt = self._attempts.get((item.run_id, item.attempt))
            if attempt is None or attempt.result is not None:
                continue
            if item.reason == StopKind.TIMED_OUT.value:
                # The dispatcher's clock was faster than ours: the next sweep does what our own limit does.
                attempt.stop_s = min(attempt.stop_s, now_s)
                self.next_sweep_s = 0.0
            else:
                self._orders.stop(attempt, Stop(StopKind.CANCEL, item.reason or StopKind.CANCEL.value))

    def finished(self, attempt: Attempt, result: Result) -> None:
        """The handler ended, and its slot is free."""
        self._attempts.running -= 1
        if not attempt.forgotten and attempt.result is None:
            self._delivery.report(attempt, result, self._clock.monotonic_s())
        self._orders.stir()

    # ---- leaving ----

    def leave(self) -> None:
        """No new work from now on; results and heartbeats go on."""
        self._leaving = True
        for stream in self._streams.values():
            stream.protocol.goodbye()
        self._orders.stir()

    def stop_all(self) -> None:
        """The drain has reached its limit."""
        for attempt in self._attempts:
            if attempt.result is None:
                self._orders.stop(attempt, Stop(StopKind.SHUTDOWN, StopKind.SHUTDOWN.value))

    # ---- turns and sweeps ----

    def turn(self) -> list[str]:
        """Share the credits; the addresses of the streams that have something to send."""
        if not self._leaving:
            self._share()
        return [address for address, stream in self._streams.items() if stream.protocol.has_output]

    def _share(self) -> None:
        accounts = [stream.protocol.credit for stream in self._streams.values()]
        unacknowledged = len(self._attempts) - self._attempts.running
        taken = self._attempts.running + max(0, unacknowledged - UNACKNOWLEDGED_FREE)
        allocation = allocate(self._slots, taken, accounts)
        for account, grant, reclaim in zip(accounts, allocation.grants, allocation.reclaims, strict=True):
            if grant:
                self._turns += 1
                account.grant(grant, self._turns)
            if reclaim:
                account.reclaim(reclaim)

    def sweep(self) -> list[str]:
        """What time demands: heartbeats, ended leases, time limits, results to say again.

        Returns the addresses of streams that have not answered a heartbeat for half a lease: they are as good as
        broken, and a new stream has the other half to save the attempts.
        """
        now_s = self._clock.monotonic_s()
        shortest_s = min((stream.lease_s for stream in self._streams.values()), default=math.inf)
        self._stood_still(now_s, shortest_s)
        self._swept_s = now_s
        self.next_sweep_s = max(self._delivery.sweep(now_s), now_s + SHORTEST_SWEEP_S)
        self._orders.stir()
        silent = []
        for address, stream in self._streams.items():
            since_s = stream.protocol.unanswered_since_s()
            if since_s is not None:
                gone_s = since_s + stream.lease_s / 2
                self.next_sweep_s = min(self.next_sweep_s, max(gone_s, now_s + SHORTEST_SWEEP_S))
                if now_s >= gone_s:
                    silent.append(address)
        return silent
