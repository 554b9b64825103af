"""Routes and credits: which connected worker may take a run, and which runs wait for one. No I/O.

A route is (namespace, queue, handler). Sessions (one per worker stream) offer routes and hold credits. Firing reserves
a credit before it writes; runs that found none wait here, in order, up to a bound; the rest waits in SQL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

from core.states import RunCause
from dispatcher.jobs import JobVersion

Route = tuple[str, str, str]
# (namespace, queue).
Queue = tuple[str, str]


class Taker(Protocol):
    """A worker's session, as matching sees it."""

    @property
    def worker_id(self) -> str: ...

    @property
    def credits(self) -> int: ...

    def serves(self, route: Route) -> bool: ...

    @property
    def served_queues(self) -> Iterable[Queue]: ...

    def use_credit(self) -> None: ...

    def return_credit(self) -> None: ...


@dataclass(slots=True)
class WaitingRun:
    """A run that is PENDING in SQL under `term`, ready to be leased; `attempt` is the number of its last attempt.

    Before its first attempt a `gated` run may have to wait for others of its job (gates.py).
    """

    run_id: UUID
    shard: int
    term: int
    attempt: int
    uncounted: int
    scheduled_for_us: int
    due_at_us: int
    job: JobVersion
    trace: str = ""
    payload: bytes | None = None
    progress: bytes | None = None
    stands_open: bool = False
    gated: bool = False
    cause: RunCause = RunCause.SCHEDULE

    @property
    def job_id(self) -> UUID:
        return self.job.job_id

    @property
    def is_behind_gate(self) -> bool:
        return self.gated and self.attempt == 0


def route_of(job: JobVersion) -> Route:
    """The route of a job's runs."""
    return (job.namespace, job.spec.queue, job.spec.handler)


@lru_cache(maxsize=4_096)
def queue_mark(queue: Queue) -> int:
    """64 bits that name a queue wherever they are computed, so that leaders can compare without the names."""
    named = "\0".join(queue).encode()
    return int.from_bytes(blake2b(named, digest_size=8, person=b"tw-queue").digest(), "big")


class Routes:
    """Sessions, credits and waiting runs of one dispatcher."""

    def __init__(self, waiting_limit: int) -> None:
        self._limit = waiting_limit
        self._sessions: list[Taker] = []
        self._takers: dict[Route, deque[Taker]] = {}
        self._waiting: dict[Route, deque[WaitingRun]] = {}
        self._count = 0
        self._held: set[UUID] = set()
        # Routes of which some waiting runs are only in SQL, since memory was full.
        self.overflowed: set[Route] = set()

    # --- sessions ---

    def join(self, session: Taker) -> None:
        self._sessions.append(session)
        self._takers.clear()

    def leave(self, session: Taker) -> None:
        self._sessions = [s for s in self._sessions if s is not session]
        self._takers.clear()

    @property
    def sessions(self) -> int:
        """How many workers' streams are there."""
        return len(self._sessions)

    def served_queues(self) -> set[Queue]:
        """The queues that some connected worker serves."""
        return {queue for session in self._sessions for queue in session.served_queues}

    def waiting_queues(self) -> set[Queue]:
        """The queues of which runs wait in memory."""
        return {route[:2] for route in self._waiting}

    def has_taker(self, route: Route) -> bool:
        """Whether a connected worker serves the route, with or without a credit now."""
        return bool(self._takers_of(route))

    def reserve(self, route: Route) -> Taker | None:
        """Take one credit of a session that serves `route`, in turn; None when there is none."""
        takers = self._takers_of(route)
        for _ in range(len(takers)):
            taker = takers[0]
            takers.rotate(-1)
            if taker.credits > 0:
                taker.use_credit()
                return taker
        return None

    def _takers_of(self, route: Route) -> deque[Taker]:
        takers = self._takers.get(route)
        if takers is None:
            takers = deque(s for s in self._sessions if s.serves(route))
            self._takers[route] = takers
        return takers

    # --- waiting runs ---

    @property
    def waiting(self) -> int:
        return self._count

    def is_waiting(self, route: Route) -> bool:
        """Whether runs of the route wait already, so that a newer one must not overtake them."""
        return bool(self._waiting.get(route)) or route in self.overflowed

    def wait(self, run: WaitingRun) -> bool:
        """Let a run wait in memory; false when memory is full and it waits in SQL alone."""
        route = route_of(run.job)
        if run.run_id in self._held:
            return True
        if self._count >= self._limit:
            self.overflowed.add(route)
            return False
        self._waiting.setdefault(route, deque()).append(run)
        self._held.add(run.run_id)
        self._count += 1
        return True

    def match(self, limit: int) -> list[tuple[WaitingRun, Taker]]:
        """Pair waiting runs with credits: oldest first within a route, the routes in turn; the credits are taken.

        The route that was served longest ago comes first, in this call and over calls.
        """
        pairs: list[tuple[WaitingRun, Taker]] = []
        turns = deque(self._waiting)
        while turns and len(pairs) < limit:
            route = turns.popleft()
            taker = self.reserve(route)
            if taker is None:
                continue
            queue = self._waiting.pop(route)
            run = queue.popleft()
            self._held.discard(run.run_id)
            self._count -= 1
            pairs.append((run, taker))
            if queue:
                self._waiting[route] = queue
                turns.append(route)
        return pairs

    def drop_term(self, shard: int, term: int) -> None:
        """Forget the waiting runs of a term that is no longer held."""
        for route, queue in list(self._waiting.items()):
            kept = deque(run for run in queue if (run.shard, run.term) != (shard, term))
            for run in queue:
                if (run.shard, run.term) == (shard, term):
                    self._held.discard(run.run_id)
                    self._count -= 1
            if kept:
                self._waiting[route] = kept
            else:
                del self._waiting[route]

    def drop_run(self, run_id: UUID) -> WaitingRun | None:
        """Forget one run: it was canceled while it waited. None when it does not wait here."""
        if run_id not in self._held:
            return None
        self._held.discard(run_id)
        for route, queue in list(self._waiting.items()):
            dropped = next((run for run in queue if run.run_id == run_id), None)
            if dropped is not None:
                self._count -= 1
                queue.remove(dropped)
                if not queue:
                    del self._waiting[route]
                return dropped
        return None

    def waiting_runs(self) -> Iterator[WaitingRun]:
        """Every waiting run in memory."""
        for queue in self._waiting.values():
            yield from queue

    def holds(self, run_id: UUID) -> bool:
        """Whether the run waits in memory."""
        return run_id in self._held

    def demand(self, session: Taker) -> int:
        """How many waiting runs the session could take, were its credits enough."""
        return sum(len(queue) for route, queue in self._waiting.items() if session.serves(route))

    def without_taker(self) -> int:
        """Waiting runs that no connected worker serves."""
        return sum(len(queue) for route, queue in self._waiting.items() if not self.has_taker(route))

    @property
    def oldest_due_us(self) -> int | None:
        """The due instant of the run that waits longest."""
        return min((queue[0].due_at_us for queue in self._waiting.values()), default=None)
