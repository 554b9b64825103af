"""`calendars` and `calendar_versions`: what the API reads and changes. Each change is one transaction, recognised when
it is repeated.

A version never changes: jobs name the one that they are computed by. A reference and a deletion exclude each other at
the calendar's row, which whoever registers a job reads FOR SHARE, and whoever deletes or changes a calendar takes FOR
UPDATE before looking at `calendar_jobs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.calendars import CalendarContent, content_from_json, content_to_json
from core.clock import Clock
from core.errors import AlreadyExists, Conflict, Invalid, NotFound
from core.states import OperationKind
from core.store.audit import AUDITED, Call, audited_params
from core.store.database import Database, Transaction
from core.store.operation_records import NewOperation, OperationRecord
from core.store.operations import add_operation
from core.store.requests import ANSWERED, answered_params, reserve
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_FACTS = """c.calendar_id, c.namespace, c.name, c.created_us, c.deleted_us, v.version, v.created_us AS updated_us,
           v.description, v.author, v.note,
           (SELECT count(*) FROM calendar_jobs r WHERE r.calendar_id = c.calendar_id) AS jobs"""

_BY_NAME = statement(
    "get_calendar_by_name",
    Kind.READ,
    # `wanted` 0: the present version.
    f"""
    SELECT {_FACTS}, CAST(v.content AS TEXT) AS content
    FROM calendars c
    JOIN calendar_versions v ON v.calendar_id = c.calendar_id
      AND v.version = CASE WHEN CAST(:wanted AS BIGINT) > 0 THEN CAST(:wanted AS BIGINT) ELSE c.version END
    WHERE c.namespace = CAST(:namespace AS TEXT) AND c.deleted_us = 0 AND c.name = CAST(:name AS TEXT)
    """,
)
_LIST = statement(
    "list_calendars",
    Kind.READ,
    f"""
    SELECT {_FACTS}, CAST(NULL AS TEXT) AS content
    FROM calendars c JOIN calendar_versions v ON v.calendar_id = c.calendar_id AND v.version = c.version
    WHERE c.namespace = CAST(:namespace AS TEXT) AND c.deleted_us = 0 AND c.name > CAST(:after AS TEXT)
    ORDER BY c.namespace, c.deleted_us, c.name
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_VERSIONS = statement(
    "list_calendar_versions",
    Kind.READ,
    f"""
    SELECT {_FACTS}, CAST(v.content AS TEXT) AS content
    FROM calendars c JOIN calendar_versions v ON v.calendar_id = c.calendar_id
    WHERE c.namespace = CAST(:namespace AS TEXT) AND c.deleted_us = 0 AND c.name = CAST(:name AS TEXT)
      AND v.version < CAST(:before AS BIGINT)
    ORDER BY v.calendar_id DESC, v.version DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
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
_NO_VERSION = 1 << 62


@dataclass(frozen=True, slots=True)
class CalendarRecord:
    """A version of a calendar. Instants in microseconds; `jobs` is how many refer to it.

    `content` is None where it was not read, or is not readable; then `fault` says why.
    """

    calendar_id: UUID
    namespace: str
    name: str
    version: int
    created_us: int
    updated_us: int
    deleted_us: int
    content: CalendarContent | None
    description: str
    author: str
    note: str
    jobs: int
    fault: str = ""


@dataclass(frozen=True, slots=True)
class CalendarPage:
    """Calendars by name, or versions newest first; `more` when there are further ones."""

    calendars: tuple[CalendarRecord, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class CalendarChanged:
    """The answer for the caller, and the operation that carries an update to the jobs, None without one."""

    answer: bytes
    operation: OperationRecord | None = None


Render = Callable[[CalendarRecord, OperationRecord | None], bytes]
Check = Callable[[CalendarRecord], None]


class Calendars:
    """Reads and writes calendars, each within one namespace. Callbacks may run more than once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def by_name(self, namespace: str, name: str, version: int = 0) -> CalendarRecord:
        """The live calendar of that name, in that version (0: the present one). Raises NotFound."""
        rows = await self._database.run(_BY_NAME, {"namespace": namespace, "name": name, "wanted": version})
        if not rows and version:
            await self.by_name(namespace, name)
            raise NotFound("version of a calendar", str(version))
        return _only(rows, name)

    async def page(self, namespace: str, *, after: str, size: int) -> CalendarPage:
        """At most `size` calendars whose names lie after `after`, without their content."""
        rows = await self._database.run(_LIST, {"namespace": namespace, "after": after, "row_limit": size + 1})
        return CalendarPage(tuple(_record(row) for row in rows[:size]), len(rows) > size)

    async def versions(self, namespace: str, name: str, *, before: int, size: int) -> CalendarPage:
        """At most `size` versions older than `before` (0: all). Raises NotFound."""
        params = {"namespace": namespace, "name": name, "before": before or _NO_VERSION, "row_limit": size + 1}
        rows = await self._database.run(_VERSIONS, params)
        if not rows:
            await self.by_name(namespace, name)
        return CalendarPage(tuple(_record(row) for row in rows[:size]), len(rows) > size)

    async def create(
        self, call: Call, *, calendar_id: UUID, name: str, content: CalendarContent, description: str, render: Render
    ) -> CalendarChanged:
        """Make a calendar. Raises AlreadyExists, RequestReused, Unavailable, OutcomeUnknown."""

        async def body(tx: Transaction) -> CalendarChanged:
            now_us = self._clock.now_us()
            stored = await reserve(tx, call.key, now_us)
            if stored is not None:
                return CalendarChanged(stored)
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

        return await self._database.transaction(body, repeat_unknown=True)

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

        async def body(tx: Transaction) -> CalendarChanged:
            now_us = self._clock.now_us()
            stored = await reserve(tx, call.key, now_us)
            if stored is not None:
                return CalendarChanged(stored)
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

        return await self._database.transaction(body, repeat_unknown=True)

    async def delete(self, call: Call, *, name: str, check: Check, render: Render) -> CalendarChanged:
        """Delete a calendar to which no job refers; its versions stay.

        Raises NotFound, Conflict (jobs refer to it), whatever `check` raises, RequestReused, Unavailable,
        OutcomeUnknown.
        """

        async def body(tx: Transaction) -> CalendarChanged:
            now_us = self._clock.now_us()
            stored = await reserve(tx, call.key, now_us)
            if stored is not None:
                return CalendarChanged(stored)
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

        return await self._database.transaction(body, repeat_unknown=True)

    async def _taken(self, tx: Transaction, namespace: str, name: str) -> CalendarRecord:
        """The live calendar, which nobody else changes or begins to refer to until the transaction ends."""
        found = _only(await tx.run(_BY_NAME, {"namespace": namespace, "name": name, "wanted": 0}), name)
        await tx.run(_LOCK, {"calendar_id": found.calendar_id})
        return _only(await tx.run(_BY_NAME, {"namespace": namespace, "name": name, "wanted": 0}), name)


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


def _record(row: Row[Any]) -> CalendarRecord:
    content, fault = _readable(row.content)
    return CalendarRecord(
        calendar_id=row.calendar_id,
        namespace=row.namespace,
        name=row.name,
        version=row.version,
        created_us=row.created_us,
        updated_us=row.updated_us,
        deleted_us=row.deleted_us,
        content=content,
        description=row.description,
        author=row.author,
        note=row.note,
        jobs=row.jobs,
        fault=fault,
    )


def _readable(stored: str | None) -> tuple[CalendarContent | None, str]:
    if stored is None:
        return None, ""
    try:
        return content_from_json(json.loads(stored)), ""
    except (Invalid, ValueError) as error:
        return None, f"the stored calendar is not readable: {error}"


def _only(rows: Sequence[Row[Any]], name: str) -> CalendarRecord:
    if not rows:
        raise NotFound("calendar", name)
    return _record(rows[0])
