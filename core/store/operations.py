"""`operations`: work over many jobs or occurrences, whose progress is a row that any replica can go on from.

A step of an operation is one transaction: it takes the row (`operation_in`), does some of the work, and moves the row
by compare-and-set (`move`). So whatever becomes of a replica or of an answer, no step is done twice or left out. The
steps themselves are in job_batches.py and backfills.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.clock import Clock
from core.errors import Conflict, NotFound
from core.states import OperationEvent, OperationKind, OperationState
from core.store.audit import AUDITED, Call, audited_params
from core.store.database import Database, Transaction
from core.store.operation_records import (
    Moved,
    NewOperation,
    OperationKey,
    OperationPage,
    OperationRecord,
    new_record,
    stepped_on,
)
from core.store.requests import ANSWERED, answer, answered_params, once, recall
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_COLUMNS = """o.namespace, o.operation_id, o.kind, o.state, o.subject, CAST(o.spec AS TEXT) AS spec, o.progress, o.done,
           o.total, o.unchanged, o.created_us, o.updated_us, o.ended_us, o.author, o.note, o.error"""
_INSERT = """INSERT INTO operations (namespace, operation_id, kind, state, subject, spec, progress, done, total,
                              unchanged, created_us, updated_us, author, note)
      VALUES (CAST(:namespace AS TEXT), CAST(:operation_id AS UUID), CAST(:kind AS SMALLINT), 1, CAST(:subject AS TEXT),
              CAST(:spec AS JSONB), '', 0, CAST(:total AS BIGINT), 0, CAST(:created_us AS BIGINT),
              CAST(:created_us AS BIGINT), CAST(:author AS TEXT), CAST(:op_note AS TEXT))"""

_GET = statement(
    "get_operation",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM operations o
    WHERE o.operation_id = CAST(:operation_id AS UUID) AND o.namespace = CAST(:namespace AS TEXT)
    """,
)
_LOCK = statement(
    "lock_operation",
    Kind.READ,
    # Two replicas that go on with one operation do so one after the other.
    f"""
    SELECT {_COLUMNS} FROM operations o
    WHERE o.namespace = CAST(:namespace AS TEXT) AND o.created_us = CAST(:created_us AS BIGINT)
      AND o.operation_id = CAST(:operation_id AS UUID)
    FOR UPDATE OF o
    """,
)
_LIST = statement(
    "list_operations",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM operations o
    WHERE o.namespace = CAST(:namespace AS TEXT)
      AND (o.created_us, o.operation_id) < (CAST(:before_us AS BIGINT), CAST(:before_id AS UUID))
    ORDER BY o.namespace DESC, o.created_us DESC, o.operation_id DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_OPEN = statement(
    "list_open_operations",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM operations o
    WHERE o.ended_us = 0
    ORDER BY o.created_us, o.operation_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_BEGIN = statement(
    "begin_operation",
    Kind.WRITE,
    f"""
    WITH changed AS (
      {_INSERT}
      RETURNING operation_id
    ), {AUDITED}, {ANSWERED}
    SELECT c.operation_id FROM changed c
    """,
)
_ADD = statement(
    "add_operation",
    Kind.WRITE,
    # Beside a change that is audited and answered by itself.
    _INSERT,
)
_SET = """UPDATE operations AS o
      SET state = CAST(:state AS SMALLINT), progress = CAST(:progress AS TEXT), done = CAST(:done AS BIGINT),
          total = CAST(:total AS BIGINT), unchanged = CAST(:unchanged AS BIGINT),
          updated_us = CAST(:updated_us AS BIGINT), ended_us = CAST(:ended_us AS BIGINT), error = CAST(:error AS TEXT)
      WHERE o.namespace = CAST(:namespace AS TEXT) AND o.created_us = CAST(:created_us AS BIGINT)
        AND o.operation_id = CAST(:operation_id AS UUID) AND o.updated_us = CAST(:old_updated_us AS BIGINT)
      RETURNING o.operation_id"""
_MOVE = statement(
    "move_operation",
    Kind.WRITE,
    # updated_us grows with every move: it says whether anybody moved the row in between.
    _SET,
)
_CANCEL = statement(
    "cancel_operation",
    Kind.WRITE,
    f"""
    WITH changed AS (
      {_SET}
    ), {AUDITED}, {ANSWERED}
    SELECT c.operation_id FROM changed c
    """,
)
_LAST_ID = UUID(int=(1 << 128) - 1)
_END_US = 1 << 62


Render = Callable[[OperationRecord], bytes]


class Operations:
    """Reads operations, begins them, and takes cancels."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, namespace: str, operation_id: UUID) -> OperationRecord:
        """One operation. Raises NotFound."""
        return _only(
            await self._database.run(_GET, {"namespace": namespace, "operation_id": operation_id}), operation_id
        )

    async def page(self, namespace: str, *, after: OperationKey | None, size: int) -> OperationPage:
        """At most `size` operations after the key `after`."""
        before_us, before_id = after or (_END_US, _LAST_ID)
        params = {"namespace": namespace, "before_us": before_us, "before_id": before_id, "row_limit": size + 1}
        found = [_record(row) for row in await self._database.run(_LIST, params)]
        shown = tuple(found[:size])
        return OperationPage(shown, (shown[-1].created_us, shown[-1].operation_id) if len(found) > size else None)

    async def open(self, limit: int) -> list[OperationRecord]:
        """The oldest operations that have not ended, of all namespaces."""
        return [_record(row) for row in await self._database.run(_OPEN, {"row_limit": limit})]

    async def recalled(self, call: Call) -> bytes | None:
        """The answer that the call got when it came before, None for a new one. Raises RequestReused."""
        return await recall(self._database, call.key)

    async def begin(
        self, call: Call, wish: NewOperation, *, action: str, check: Callable[[], None], render: Render
    ) -> bytes:
        """Write down what is to be done; the answer for the caller. `check` may refuse; a repeat of the call is not
        checked again.

        Raises whatever `check` raises, RequestReused, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> bytes:
            check()
            record = new_record(call, wish, now_us)
            answer_bytes = render(record)
            audited = audited_params(
                call, action=action, subject=wish.subject or call.key.namespace, version=0, now_us=now_us
            )
            await tx.run(_BEGIN, {**audited, **answered_params(call.key, answer_bytes), **_insert_params(record)})
            return answer_bytes

        return await once(self._database, self._clock, call.key, body, bytes)

    async def cancel(self, call: Call, operation_id: UUID, render: Render) -> bytes:
        """Ask for the end of an operation, and answer; one whose cancel was asked for stays as it is.

        Raises NotFound, Conflict (it has ended, or is of a kind that cannot be canceled), RequestReused, Unavailable,
        OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> bytes:
            rows = await tx.run(_GET, {"namespace": call.key.namespace, "operation_id": operation_id})
            present = _only(rows, operation_id)
            if present.state in (OperationState.CANCELING, OperationState.CANCELED):
                answer_bytes = render(present)
                await answer(tx, call.key, answer_bytes)
                return answer_bytes
            _check_cancel(present)
            record = stepped_on(present, Moved(present.progress, event=OperationEvent.REQUEST_CANCEL), now_us)
            answer_bytes = render(record)
            audited = audited_params(
                call, action="operation.cancel", subject=str(operation_id), version=0, now_us=now_us
            )
            answered = answered_params(call.key, answer_bytes)
            if not await tx.run(_CANCEL, {**audited, **answered, **_set_params(present, record)}):
                raise RestartTransaction("the operation went on in between")
            return answer_bytes

        return await once(self._database, self._clock, call.key, body, bytes)

    async def settle(self, operation: OperationRecord, moved: Moved) -> OperationRecord:
        """A step without work of its own: the operation as it stands afterwards. One that somebody else moved since
        `operation` was read stays as that left it."""

        async def body(tx: Transaction) -> OperationRecord:
            present = await operation_in(tx, operation)
            if present.updated_us != operation.updated_us or not present.is_open:
                return present
            return await move(tx, present, moved, self._clock.now_us())

        return await self._database.transaction(body, repeat_unknown=True)


async def operation_in(tx: Transaction, operation: OperationRecord) -> OperationRecord:
    """The operation as it stands now, taken until the transaction ends. Raises NotFound."""
    key = {
        "namespace": operation.namespace,
        "created_us": operation.created_us,
        "operation_id": operation.operation_id,
    }
    return _only(await tx.run(_LOCK, key), operation.operation_id)


async def move(tx: Transaction, present: OperationRecord, moved: Moved, now_us: int) -> OperationRecord:
    """Write what a step came to; the operation afterwards."""
    record = stepped_on(present, moved, now_us)
    if not await tx.run(_MOVE, _set_params(present, record)):
        raise RestartTransaction("the operation was moved in between")
    return record


async def add_operation(tx: Transaction, call: Call, wish: NewOperation, now_us: int) -> OperationRecord:
    """Write an operation down within the transaction of the change that calls for it."""
    record = new_record(call, wish, now_us)
    await tx.run(_ADD, _insert_params(record))
    return record


def _check_cancel(present: OperationRecord) -> None:
    if not present.is_open:
        raise Conflict(
            f"operation {present.operation_id} has ended already: {present.state.name}", field="operation_id"
        )
    if present.kind is OperationKind.CALENDAR_CHANGE:
        raise Conflict(
            "a calendar's change cannot be canceled half way: change the calendar again", field="operation_id"
        )


def _insert_params(record: OperationRecord) -> dict[str, Any]:
    return {
        "namespace": record.namespace,
        "operation_id": record.operation_id,
        "kind": int(record.kind),
        "subject": record.subject,
        "spec": json.dumps(record.spec, separators=(",", ":"), sort_keys=True),
        "total": record.total,
        "created_us": record.created_us,
        "author": record.author,
        "op_note": record.note,
    }


def _set_params(present: OperationRecord, record: OperationRecord) -> dict[str, Any]:
    return {
        "namespace": record.namespace,
        "created_us": record.created_us,
        "operation_id": record.operation_id,
        "old_updated_us": present.updated_us,
        "state": int(record.state),
        "progress": record.progress,
        "done": record.done,
        "total": record.total,
        "unchanged": record.unchanged,
        "updated_us": record.updated_us,
        "ended_us": record.ended_us,
        "error": record.error,
    }


def _record(row: Row[Any]) -> OperationRecord:
    return OperationRecord(
        namespace=row.namespace,
        operation_id=row.operation_id,
        kind=OperationKind(row.kind),
        state=OperationState(row.state),
        subject=row.subject,
        spec=json.loads(row.spec),
        progress=row.progress,
        done=row.done,
        total=row.total,
        unchanged=row.unchanged,
        created_us=row.created_us,
        updated_us=row.updated_us,
        ended_us=row.ended_us,
        author=row.author,
        note=row.note,
        error=row.error,
    )


def _only(rows: Sequence[Row[Any]], operation_id: UUID) -> OperationRecord:
    if not rows:
        raise NotFound("operation", str(operation_id))
    return _record(rows[0])
