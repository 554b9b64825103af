"""`calendar_jobs`: which jobs refer to a calendar in their present version, so that none of those can be deleted.

Written in the transaction that changes a job's references (core/store/job_changes.py), read by core/store/calendars.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from core.calendars import CalendarPin
from core.jobspec import JobSpec
from core.states import JobState
from core.store.database import Transaction
from core.store.jobs import JobRecord
from core.store.statement import Kind, statement

_REFER = statement(
    "refer_to_calendars",
    Kind.WRITE,
    """
    INSERT INTO calendar_jobs (calendar_id, job_id)
    SELECT i.calendar_id, CAST(:job_id AS UUID) FROM unnest(CAST(:calendar_ids AS UUID[])) AS i(calendar_id)
    ON CONFLICT (calendar_id, job_id) DO NOTHING
    """,
)
_FORGET = statement(
    "forget_calendars",
    Kind.WRITE,
    """
    DELETE FROM calendar_jobs AS c USING unnest(CAST(:calendar_ids AS UUID[])) AS i(calendar_id)
    WHERE c.calendar_id = i.calendar_id AND c.job_id = CAST(:job_id AS UUID)
    """,
)


async def refer(tx: Transaction, before: JobRecord | None, after: JobRecord) -> None:
    """Have the references say what `after` says; one that leaves them as they were writes nothing."""
    old = frozenset() if before is None else _referred(before)
    new = _referred(after)
    for wrote, changed in ((_FORGET, old - new), (_REFER, new - old)):
        if changed:
            await tx.run(wrote, {"job_id": after.job_id, "calendar_ids": sorted(changed)})


def _referred(job: JobRecord) -> frozenset[UUID]:
    if job.state is JobState.DELETED:
        return frozenset()
    pins = job.spec.pins.calendars if isinstance(job.spec, JobSpec) else _pins_of_unreadable(job.stored)
    return frozenset(pin.calendar_id for pin in pins.values())


def _pins_of_unreadable(stored: str) -> Mapping[str, CalendarPin]:
    """The pins of a stored form whose other parts cannot be read: a job that is deleted must let its calendars go."""
    try:
        pins: Mapping[str, Any] = json.loads(stored)["pins"]["calendars"]
        return {name: CalendarPin.from_json(pin) for name, pin in pins.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
