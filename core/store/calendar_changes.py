"""Creating, changing and deleting calendars: each one transaction, which a repeat recognises by its request key.

A reference and a deletion exclude each other at the calendar's row, which whoever registers a job reads FOR SHARE, and
whoever deletes or changes a calendar takes FOR UPDATE before looking at `calendar_jobs`. A change that reaches jobs is
carried to them by an operation, which is written down with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from core.calendars import CalendarContent, content_to_json
from core.clock import Clock
from core.errors import AlreadyExists, Conflict
from core.states import OperationKind
from core.store.audit import AUDITED, Call, audited_params
from core.store.calendars import CalendarRecord, calendar_in
from core.store.database import Database, Transaction
from core.store.operation_records import NewOperation, OperationRecord
from core.store.operations import add_operation
from core.store.requests import ANSWERED, answered_params, once
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_LOCK = statement(
    "lock_calendar",
    Kind.READ,
    "SELECT version FROM calendars WHERE calendar_id = CAST(:calendar_id AS UUID) FOR UPDATE",
)
_REFERRING = statement(
    "find_job_of_calendar",
    Kind.READ,
    """
    SELECT j.name, (SELECT count(*) FROM calendar_jobs a WHERE a.calendar_id = CAST(:calendar_id AS UUID)) AS jobs
    FROM calendar_jobs r JOIN jobs j ON j.job_id = r.job_id
    WHERE r.calendar_id = CAST(:calendar_id AS UUID)
    ORDER BY r.calendar_id, r.job_id
    LIMIT 1
    """,
)
_VERSIONED = """versioned AS (
      INSERT INTO calendar_versions (calendar_id, version, content, description, created_us, author, request_id, note)
      SELECT c.calendar_id, c.version, CAST(:content AS JSONB), CAST(:description AS TEXT), CAST(:now_us AS BIGINT),
             CAST(:actor AS TEXT), CAST(:shown_request_id AS TEXT), CAST(:note AS TEXT)
      FROM changed c
    )"""
_CREATE = statement(
    "create_calendar",
    Kind.WRITE,
    # A name that is taken changes nothing; two creators of one name wait for each other here.
    f"""
    WITH changed AS (
      INSERT INTO calendars (calendar_id, namespace, name, version, created_us, updated_us)
      VALUES (CAST(:calendar_id AS UUID), CAST(:namespace AS TEXT), CAST(:name AS TEXT), 1, CAST(:now_us AS BIGINT),
              CAST(:now_us AS BIGINT))
      ON CONFLICT (namespace, deleted_us, name) DO NOTHING
      RETURNING calendar_id, version
    ), {_VERSIONED}, {AUDITED}, {ANSWERED}
    SELECT c.calendar_id FROM changed c
    """,
)
_UPDATE = statement(
    "update_calendar",
    Kind.WRITE,
    f"""
    WITH changed AS (
      UPDATE calendars AS k SET version = CAST(:version AS BIGINT), updated_us = CAST(:now_us AS BIGINT)
      WHERE k.calendar_id = CAST(:calendar_id AS UUID) AND k.version = CAST(:old_version AS BIGINT)
        AND k.deleted_us = 0
      RETURNING k.calendar_id, k.version
    ), {_VERSIONED}, {AUDITED}, {ANSWERED}
    SELECT c.calendar_id FROM changed c
    """,
)
_DELETE = statement(
    "delete_calendar",
    Kind.WRITE,
    f"""
    WITH changed AS (
      UPDATE calendars AS k SET deleted_us = CAST(:now_us AS BIGINT), updated_us = CAST(:now_us AS BIGINT)
      WHERE k.calendar_id = CAST(:calendar_id AS UUID) AND k.version = CAST(:old_version AS BIGINT)
        AND k.deleted_us = 0
      RETURNING k.calendar_id, k.version
    ), {AUDITED}, {ANSWERED}
    SELECT c.calendar_id FROM changed c
    """,
)


@dataclass(frozen=True, slots=True)
class CalendarChanged:
    """The answer for the caller, and the operation that carries an update to the jobs, None without one."""

    answer: bytes
    operation: OperationRecord | None = None


Render = Callable[[CalendarRecord, OperationRecord | None], bytes]
Check = Callable[[CalendarRecord], None]


class CalendarChanges:
    """Writes calendars. Callbacks may run more than once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self, call: Call, *, calendar_id: UUID, name: str, content: CalendarContent, description: str, render: Render
    ) -> CalendarChanged:
        """Make a calendar. Raises AlreadyExists, RequestReused, Unavailable, OutcomeUnknown."""

        async def body(tx: Transaction, now_us: int) -> CalendarChanged:
            record = CalendarRecord(
                calendar_id=calendar_id,
                namespace=call.key.namespace,
                name=name,
                version=1,
                created_us=now_us,
                updated_us=now_us,
                deleted_us=0,
                content=content,
                description=description,
                author=call.actor,
                note=call.note,
                jobs=0,
            )
            answer_bytes = render(record, None)
            params = _common(call, record, "calendar.create", now_us, answer_bytes)
            if not await tx.run(_CREATE, {**params, "name": name}):
                raise AlreadyExists(
                    f"a calendar named {name!r} exists in namespace {call.key.namespace!r}", field="calendar.name"
                )
            return CalendarChanged(answer_bytes)

        return await once(self._database, self._clock, call.key, body, CalendarChanged)

    async def update(
        self,
        call: Call,
        *,
        name: str,
        content: CalendarContent,
        description: str,
        check: Check,
        operation_id: UUID,
        render: Render,
    ) -> CalendarChanged:
        """Make the next version; where jobs refer to the calendar, with the operation that carries it to them.

        Raises NotFound, whatever `check` raises of the present version, RequestReused, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> CalendarChanged:
            present = await self._taken(tx, call.key.namespace, name)
            check(present)
            _, jobs = await _referring(tx, present.calendar_id)
            record = replace(
                present,
                version=present.version + 1,
                updated_us=max(now_us, present.updated_us + 1),
                content=content,
                description=description,
                author=call.actor,
                note=call.note,
                jobs=jobs,
                fault="",
            )
            operation = None
            if jobs:
                operation = await add_operation(tx, call, _carrying(operation_id, call, record), now_us)
            answer_bytes = render(record, operation)
            params = _common(call, record, "calendar.update", record.updated_us, answer_bytes)
            if not await tx.run(_UPDATE, {**params, "version": record.version, "old_version": present.version}):
                raise RestartTransaction("the calendar was changed in between")
            return CalendarChanged(answer_bytes, operation)

        return await once(self._database, self._clock, call.key, body, CalendarChanged)

    async def delete(self, call: Call, *, name: str, check: Check, render: Render) -> CalendarChanged:
        """Delete a calendar to which no job refers; its versions stay.

        Raises NotFound, Conflict (jobs refer to it), whatever `check` raises, RequestReused, Unavailable,
        OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> CalendarChanged:
            present = await self._taken(tx, call.key.namespace, name)
            check(present)
            first, jobs = await _referring(tx, present.calendar_id)
            if jobs:
                others = f" and {jobs - 1} more" if jobs > 1 else ""
                raise Conflict(f"calendar {name!r} is used by job {first!r}{others}: {jobs} in all", field="name")
            record = replace(present, updated_us=now_us, deleted_us=now_us, jobs=0)
            answer_bytes = render(record, None)
            params = _common(call, record, "calendar.delete", now_us, answer_bytes)
            if not await tx.run(_DELETE, {**params, "old_version": present.version}):
                raise RestartTransaction("the calendar was changed in between")
            return CalendarChanged(answer_bytes)

        return await once(self._database, self._clock, call.key, body, CalendarChanged)

    async def _taken(self, tx: Transaction, namespace: str, name: str) -> CalendarRecord:
        """The live calendar, which nobody else changes or begins to refer to until the transaction ends."""
        found = await calendar_in(tx, namespace, name)
        await tx.run(_LOCK, {"calendar_id": found.calendar_id})
        return await calendar_in(tx, namespace, name)


async def _referring(tx: Transaction, calendar_id: UUID) -> tuple[str, int]:
    """The name of one job that refers to the calendar, and how many do."""
    rows = await tx.run(_REFERRING, {"calendar_id": calendar_id})
    return (rows[0].name, rows[0].jobs) if rows else ("", 0)


def _carrying(operation_id: UUID, call: Call, calendar: CalendarRecord) -> NewOperation:
    spec = {
        "calendar_id": str(calendar.calendar_id),
        "version": calendar.version,
        "request_id": call.key.shown_id,
        "trace": call.trace,
    }
    return NewOperation(operation_id, OperationKind.CALENDAR_CHANGE, calendar.name, spec, calendar.jobs)


def _common(call: Call, calendar: CalendarRecord, action: str, now_us: int, answer_bytes: bytes) -> dict[str, Any]:
    content = {} if calendar.content is None else content_to_json(calendar.content)
    return {
        **audited_params(call, action=action, subject=calendar.name, version=calendar.version, now_us=now_us),
        **answered_params(call.key, answer_bytes),
        "calendar_id": calendar.calendar_id,
        "content": json.dumps(content, separators=(",", ":"), sort_keys=True),
        "description": calendar.description,
    }
