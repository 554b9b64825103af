"""What keeps this dispatcher from its duties although it still reports: found by itself, told to the leader.

The leader compares: a dispatcher that alone has an ailment loses its shards, one that shares it with all others keeps
them. So nothing here gives anything up. Nor need it: what a sick dispatcher still writes is fenced, and it
acknowledges no renewal under a term that was not proven a moment ago. Asked by the reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from core.ailments import Ailment, AilmentKind
from dispatcher.routes import queue_mark
from dispatcher.runtime import Memory, Runtime

# The database is asked at every term check at least; without an answer for so much longer than that, it counts as away.
_DATABASE_PATIENCE_S = 0.25
# A pass of the due loop or of discovery takes a statement or two, each of which has a deadline of 2 s.
_DUE_LOOP_PATIENCE_S = 2.0
# The event loop is looked at so often. A timer that is later than a busy machine makes it counts as a block, and of the
# last `_LATE_WINDOW_S` no more than `_LATE_LIMIT_S` may be lost to blocks.
_TICK_S = 0.1
_LATE_S = 0.25
_LATE_WINDOW_S = 5.0
_LATE_LIMIT_S = 2.5
# More queues than these are not told; the same ones everywhere, since they are told in order.
_QUEUES_TOLD = 512


@dataclass(frozen=True, slots=True)
class Signs:
    """Where the loops show that they live: monotonic seconds of what last went well."""

    database_s: Callable[[], float]
    due_loop_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Workers:
    """Who could take runs here, and queues by their marks: served ones, and ones whose runs wait for any worker."""

    connected: int
    served: tuple[int, ...]
    unserved: tuple[int, ...]


class Ailments:
    """This dispatcher's view of itself."""

    def __init__(self, runtime: Runtime, memory: Memory, signs: Signs) -> None:
        self._runtime = runtime
        self._memory = memory
        self._signs = signs
        self._late: deque[tuple[float, float]] = deque()
        self._late_since_s: float | None = None
        self._lonely_since_s: float | None = None

    async def run(self) -> None:
        """For ever: notice how late a timer comes; nothing else shows a blocked event loop from inside."""
        clock = self._runtime.clock
        before_s = clock.monotonic_s()
        while True:
            await clock.sleep(_TICK_S)
            now_s = clock.monotonic_s()
            self.ticked(now_s, now_s - before_s - _TICK_S)
            before_s = now_s

    def ticked(self, now_s: float, late_s: float) -> None:
        """The timer came, `late_s` after its time."""
        if late_s > _LATE_S:
            self._late.append((now_s, late_s))
        while self._late and self._late[0][0] < now_s - _LATE_WINDOW_S:
            self._late.popleft()
        if sum(late for _, late in self._late) <= _LATE_LIMIT_S:
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = self._late[0][0] - self._late[0][1]

    def look(self) -> tuple[list[Ailment], Workers]:
        """What ails it now and for how long, and its workers."""
        now_s = self._runtime.clock.monotonic_s()
        workers = self._workers()
        if workers.connected and not workers.unserved:
            self._lonely_since_s = None
        elif self._lonely_since_s is None:
            self._lonely_since_s = now_s
        patience_s = self._runtime.settings.term_check_s + _DATABASE_PATIENCE_S
        found = [
            self._since(AilmentKind.DATABASE, self._signs.database_s(), now_s, patience_s),
            self._since(AilmentKind.EVENT_LOOP, self._late_since_s, now_s),
            self._since(AilmentKind.DUE_LOOP, self._signs.due_loop_s(), now_s, _DUE_LOOP_PATIENCE_S),
            self._since(AilmentKind.WORKERS, self._lonely_since_s, now_s),
        ]
        ailments = [ailment for ailment in found if ailment is not None]
        self._runtime.metrics.set_ailments({ailment.kind: ailment.age_s for ailment in ailments})
        return ailments, workers

    @staticmethod
    def _since(kind: AilmentKind, since_s: float | None, now_s: float, patience_s: float = 0.0) -> Ailment | None:
        if since_s is None or now_s - since_s < patience_s:
            return None
        return Ailment(kind, now_s - since_s)

    def _workers(self) -> Workers:
        routes = self._memory.routes
        served = routes.served_queues()
        unserved = routes.waiting_queues() - served
        return Workers(
            routes.sessions,
            tuple(sorted(map(queue_mark, served))[:_QUEUES_TOLD]),
            tuple(sorted(map(queue_mark, unserved))[:_QUEUES_TOLD]),
        )
