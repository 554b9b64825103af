"""What calendars say, by the versions that jobs name: immutable rows, so that callers may remember them for good.

Read by dispatchers with the versions of jobs, and by the API. A content that is not readable comes back as its fault:
the job that needs it is set aside, and never runs without its calendar.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from core.calendars import CalendarContent, CalendarPin, content_from_json
from core.errors import Invalid
from core.store.database import Database, Transaction
from core.store.statement import Kind, statement

_LOAD = statement(
    "load_calendar_versions",
    Kind.READ,
    """
    SELECT v.calendar_id, v.version, CAST(v.content AS TEXT) AS content
    FROM unnest(CAST(:calendar_ids AS UUID[]), CAST(:versions AS BIGINT[])) AS i(calendar_id, version)
    JOIN calendar_versions v ON v.calendar_id = i.calendar_id AND v.version = i.version
    """,
)

Contents = dict[CalendarPin, CalendarContent | Invalid]


async def load_contents(database: Database | Transaction, pins: Iterable[CalendarPin]) -> Contents:
    """The contents of these versions; one that is missing in the answer does not exist.

    Raises Unavailable, OutcomeUnknown.
    """
    wanted = sorted(set(pins), key=lambda pin: (pin.calendar_id, pin.version))
    if not wanted:
        return {}
    rows = await database.run(
        _LOAD, {"calendar_ids": [p.calendar_id for p in wanted], "versions": [p.version for p in wanted]}
    )
    return {CalendarPin(row.calendar_id, row.version): _readable(row.content) for row in rows}


def _readable(stored: str) -> CalendarContent | Invalid:
    try:
        return content_from_json(json.loads(stored))
    except Invalid as fault:
        return fault
    except ValueError as error:
        return Invalid("content", f"the stored calendar is not readable: {error}")
