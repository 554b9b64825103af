"""`calendars` and `calendar_versions` as the API reads them: by name, in pages, and version by version.

A version never changes: jobs name the one that they are computed by. Reads never fail for what stands in a row: a
content that is not readable is shown as its fault.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.calendars import CalendarContent, content_from_json
from core.errors import Invalid, NotFound
from core.store.database import Database, Transaction
from core.store.statement import Kind, statement

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


class Calendars:
    """Reads calendars, each within one namespace."""

    def __init__(self, database: Database) -> None:
        self._database = database

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


async def calendar_in(tx: Transaction, namespace: str, name: str) -> CalendarRecord:
    """The live calendar of that name, read within a transaction. Raises NotFound."""
    return _only(await tx.run(_BY_NAME, {"namespace": namespace, "name": name, "wanted": 0}), name)


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
