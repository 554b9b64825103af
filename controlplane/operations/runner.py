"""Goes on with operations: those that were asked for at this replica, and, while it leads, all that nobody is at.

Two runners at one operation do no harm, since a step moves the operation's row by compare-and-set. A step that fails is
tried again, later each time; an operation that cannot go on ends FAILED with the reason. Built by services.py; the API
calls `begin`, so that what is small is done when its call is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from controlplane.hints import HintSink
from core.clock import US_PER_S, Clock
from core.errors import Conflict, Invalid, NotFound, OutcomeUnknown, Unavailable
from core.states import OperationEvent, OperationState
from core.store.operation_records import Moved, OperationRecord, Stepped
from core.store.operations import Operations
from core.tasks import Wake

log = logging.getLogger(__name__)

_TICK_S = 1.0
# Of the oldest open operations, so many are looked at.
_OPEN_LIMIT = 1_000
# One that moved so lately has somebody at it.
_AT_IT_US = 3 * US_PER_S
_MOST_FAILURES = 5
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0

Step = Callable[[OperationRecord], Awaitable[Stepped]]


@dataclass(slots=True)
class _Rest:
    """When an operation is looked at again here (monotonic), and how often it failed in a row."""

    until_s: float = 0.0
    failures: int = 0
    waits: int = 0


class OperationRunner:
    """Runs the operations of one replica; `leads` says whether it is the leader now."""

    def __init__(
        self, operations: Operations, step: Step, clock: Clock, hints: HintSink, leads: Callable[[], bool]
    ) -> None:
        self._operations = operations
        self._step = step
        self._clock = clock
        self._hints = hints
        self._leads = leads
        self._own: set[UUID] = set()
        self._rests: dict[UUID, _Rest] = {}
        self._wake = Wake()

    async def begin(self, namespace: str, operation_id: UUID) -> OperationRecord:
        """Take the operation one step further now; the rest is gone on with in the background.

        Raises NotFound, Unavailable, OutcomeUnknown only where the operation could not be read.
        """
        operation = await self._operations.get(namespace, operation_id)
        if operation.is_open:
            self._own.add(operation_id)
            operation = await self._attempt(operation)
            self._wake.set()
        return operation

    async def run(self) -> None:
        """For ever."""
        while True:
            if not await self.go_on():
                await self._wake.wait(self._clock, _TICK_S)

    async def go_on(self) -> bool:
        """One step of each operation that this replica has to go on with; whether any of them moved."""
        if not self._own and not self._leads():
            return False
        try:
            listed = await self._operations.open(_OPEN_LIMIT)
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("operations wait for the database: %s", error)
            return False
        self._forget({operation.operation_id for operation in listed})
        moved = False
        for operation in listed:
            if self._has_to(operation):
                after = await self._attempt(operation)
                moved = moved or after.updated_us != operation.updated_us
        return moved

    def _has_to(self, operation: OperationRecord) -> bool:
        rest = self._rests.get(operation.operation_id)
        if rest is not None and self._clock.monotonic_s() < rest.until_s:
            return False
        if operation.operation_id in self._own:
            return True
        return self._leads() and self._clock.now_us() - operation.updated_us >= _AT_IT_US

    def _forget(self, listed: set[UUID]) -> None:
        if len(listed) < _OPEN_LIMIT:
            self._own &= listed
            self._rests = {key: rest for key, rest in self._rests.items() if key in listed}

    async def _attempt(self, operation: OperationRecord) -> OperationRecord:
        """One step; whatever it comes to, the operation as it stands then, or as it stood before."""
        try:
            stepped = await self._step(operation)
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("operation %s waits for the database: %s", operation.operation_id, error)
            self._put_off(operation, counts=False)
            return operation
        except (Conflict, Invalid, NotFound) as error:
            return await self._fail(operation, str(error))
        except Exception as error:
            return await self._failed_step(operation, error)
        self._tell(stepped)
        self._rests.pop(operation.operation_id, None)
        if stepped.rest_s and stepped.operation.is_open:
            self._rests[operation.operation_id] = _Rest(self._clock.monotonic_s() + stepped.rest_s)
        return stepped.operation

    async def _failed_step(self, operation: OperationRecord, error: Exception) -> OperationRecord:
        failures = self._put_off(operation, counts=True)
        log.error("a step of operation %s failed (%d)", operation.operation_id, failures, exc_info=error)
        if failures < _MOST_FAILURES:
            return operation
        return await self._fail(operation, f"a step failed {failures} times; the server's log says more")

    async def _fail(self, operation: OperationRecord, reason: str) -> OperationRecord:
        """End it with the reason; one that is being canceled is tried again instead."""
        if operation.state is not OperationState.RUNNING:
            self._put_off(operation, counts=True)
            return operation
        try:
            failed = Moved(operation.progress, event=OperationEvent.FAIL, error=reason)
            return await self._operations.settle(operation, failed)
        except (Unavailable, OutcomeUnknown, NotFound) as error:
            log.warning("operation %s could not be ended: %s", operation.operation_id, error)
            self._put_off(operation, counts=False)
            return operation

    def _put_off(self, operation: OperationRecord, *, counts: bool) -> int:
        rest = self._rests.setdefault(operation.operation_id, _Rest())
        rest.failures += counts
        rest.until_s = self._clock.monotonic_s() + min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(rest.waits, 10))
        rest.waits += 1
        return rest.failures

    def _tell(self, stepped: Stepped) -> None:
        for shard in stepped.landed:
            self._hints.landed(shard)
        for shard, run_id in stepped.canceled:
            self._hints.canceled(shard, run_id)
