"""Operations as values: what is asked for, how far it came, and what a step makes of it. Pure: no SQL here.

Instants are microseconds since the epoch, 0 for "never". Kept by operations.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from core.states import (
    OPEN_OPERATION_STATES,
    OPERATION_TRANSITIONS,
    OperationEvent,
    OperationKind,
    OperationState,
)
from core.store.audit import Call

_MAX_ERROR_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """An operation as it stands. `spec` says what it does, in the words of its kind; `progress` how far it came."""

    namespace: str
    operation_id: UUID
    kind: OperationKind
    state: OperationState
    subject: str
    spec: Mapping[str, Any]
    progress: str
    done: int
    total: int
    unchanged: int
    created_us: int
    updated_us: int
    ended_us: int
    author: str
    note: str
    error: str

    @property
    def is_open(self) -> bool:
        """Whether there may be something left to do."""
        return self.state in OPEN_OPERATION_STATES


@dataclass(frozen=True, slots=True)
class NewOperation:
    """What is asked for; `total` steps were counted."""

    operation_id: UUID
    kind: OperationKind
    subject: str
    spec: Mapping[str, Any]
    total: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a step came to: `done` steps more, of which `unchanged` changed nothing, and where to go on.

    `event` ends the operation. `error` is what it met, kept with what it met before.
    """

    progress: str
    done: int = 0
    unchanged: int = 0
    event: OperationEvent | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Stepped:
    """An operation after a step, and what is worth a hint: shards in which due rows landed, runs that were canceled.

    `rest_s` is how long there is nothing to do, 0 for nothing to wait for.
    """

    operation: OperationRecord
    landed: frozenset[int] = frozenset()
    canceled: tuple[tuple[int, UUID], ...] = ()
    rest_s: float = 0.0


OperationKey = tuple[int, UUID]
"""Where a page ended: (created_us, operation id)."""


@dataclass(frozen=True, slots=True)
class OperationPage:
    """Operations, newest first; `more_after` says where to go on when there may be further ones."""

    operations: tuple[OperationRecord, ...]
    more_after: OperationKey | None


def new_record(call: Call, wish: NewOperation, now_us: int) -> OperationRecord:
    """The operation as it begins."""
    return OperationRecord(
        namespace=call.key.namespace,
        operation_id=wish.operation_id,
        kind=wish.kind,
        state=OperationState.RUNNING,
        subject=wish.subject,
        spec=wish.spec,
        progress="",
        done=0,
        total=wish.total,
        unchanged=0,
        created_us=now_us,
        updated_us=now_us,
        ended_us=0,
        author=call.actor,
        note=call.note,
        error="",
    )


def stepped_on(present: OperationRecord, moved: Moved, now_us: int) -> OperationRecord:
    """The operation after a step. Raises KeyError for an event that its state cannot take."""
    state = present.state if moved.event is None else OPERATION_TRANSITIONS[present.state, moved.event]
    updated_us = max(now_us, present.updated_us + 1)
    done, unchanged = present.done + moved.done, present.unchanged + moved.unchanged
    total = max(present.total, done)
    if state is OperationState.SUCCEEDED:
        # What was counted and was not met any more had come into the wanted state, or had gone, by itself.
        done, unchanged = total, unchanged + total - done
    errors = [present.error, moved.error] if moved.error not in present.error else [present.error]
    return replace(
        present,
        state=state,
        progress=moved.progress,
        done=done,
        total=total,
        unchanged=unchanged,
        updated_us=updated_us,
        ended_us=0 if state in OPEN_OPERATION_STATES else updated_us,
        error="; ".join(filter(None, errors))[:_MAX_ERROR_CHARS],
    )
