"""What this worker holds: every attempt that runs, or has ended and is not yet acknowledged. No I/O.

Each attempt is bound to the address of the dispatcher that answers for it: the one that assigned it, until a REDIRECT
or the end of that dispatcher binds it to another. Called by switchboard.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import MappingProxyType

from tidewheel.clock import Clock
from tidewheel.context import RunContext
from tidewheel.effects import AttemptKey
from tidewheel.v1.worker_service_pb2 import Assignment, AttemptRef, Result


class Attempt:
    """One attempt in this worker's hands. Instants are monotonic seconds."""

    __slots__ = (
        "abandon_s",
        "address",
        "beat_again_s",
        "bound_s",
        "context",
        "forgotten",
        "handler",
        "key",
        "lease_until_s",
        "offer_s",
        "orphaned",
        "progress_acknowledged",
        "redirects",
        "ref",
        "result",
        "retries",
        "say_again_s",
        "sent_s",
        "size",
        "started",
        "stop_s",
        "task",
    )

    def __init__(self, assignment: Assignment, address: str, now_s: float, lease_s: float, clock: Clock) -> None:
        limit = assignment.start_to_close_timeout
        self.ref: AttemptRef = assignment.ref
        self.key: AttemptKey = (self.ref.run_id, self.ref.attempt)
        self.handler = assignment.handler
        self.address = address
        self.bound_s = now_s
        # The lease began before the assignment left; from here on acknowledged heartbeats count.
        self.lease_until_s = now_s + lease_s
        self.stop_s = now_s + limit.seconds + limit.nanos / 1e9
        self.context = RunContext(assignment, self.stop_s, clock)
        # Whether the handler's first line may have run, and the task that runs it (None in a thread).
        self.started = False
        self.task: object = None
        # The outcome, once there is one, about its size, when it was sent last, and when it is to be sent again.
        self.result: Result | None = None
        self.size = 0
        self.sent_s = 0.0
        self.say_again_s = 0.0
        # A result is not wanted any more.
        self.forgotten = False
        # Its time limit is over: when its end is reported without waiting for the handler.
        self.abandon_s: float | None = None
        # Its dispatcher is gone: it is offered to the others, while it runs again at `offer_s`.
        self.orphaned = False
        self.offer_s = math.inf
        self.redirects = 0
        # Its heartbeat was answered with RETRY, so often in a row: when it is said again, before the next interval.
        self.retries = 0
        self.beat_again_s = math.inf
        # The newest report of progress that a dispatcher has acknowledged.
        self.progress_acknowledged = 0


class Attempts:
    """All attempts, found by key and by the address that they are bound to."""

    def __init__(self) -> None:
        self._by_key: dict[AttemptKey, Attempt] = {}
        self._by_address: dict[str, dict[AttemptKey, Attempt]] = {}
        # Attempts whose handler holds a slot; others wait for their acknowledgement.
        self.running = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._by_key.values()))

    def get(self, key: AttemptKey) -> Attempt | None:
        return self._by_key.get(key)

    def add(self, attempt: Attempt) -> None:
        self._by_key[attempt.key] = attempt
        self._by_address.setdefault(attempt.address, {})[attempt.key] = attempt

    def remove(self, attempt: Attempt) -> None:
        """Nothing more is to be said about it. It may still hold its slot."""
        if self._by_key.pop(attempt.key, None) is not None:
            self._unbind(attempt)

    def rebind(self, attempt: Attempt, address: str, now_s: float) -> None:
        """From now on the dispatcher at `address` is told about it."""
        self._unbind(attempt)
        attempt.address = address
        attempt.bound_s = now_s
        self._by_address.setdefault(address, {})[attempt.key] = attempt

    def _unbind(self, attempt: Attempt) -> None:
        bound = self._by_address[attempt.address]
        del bound[attempt.key]
        if not bound:
            del self._by_address[attempt.address]

    def bound_to(self, address: str) -> list[Attempt]:
        return list(self._by_address.get(address, _NOTHING).values())

    @property
    def addresses(self) -> Iterable[str]:
        """Where somebody is still to be told something."""
        return self._by_address.keys()


_NOTHING: MappingProxyType[AttemptKey, Attempt] = MappingProxyType({})
