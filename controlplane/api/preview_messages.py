"""Previews as messages: what a request asks for, the draft that it brings, and occurrences as they are shown. Pure.

Used by ScheduleService, and by the command line when it previews without a server: both read and write the same.
"""

from __future__ import annotations

from tidewheel.v1 import job_pb2, schedule_service_pb2

from controlplane.api import fields
from controlplane.api.decode_schedule import WantedSchedule, decode_schedule, timestamp
from controlplane.api.violations import Violations
from controlplane.schedule_preview import DEFAULT_COUNT, MAX_COUNT, Preview, Wish
from core.civil import END_US
from core.marks import Entry

# Stands for the name of a job that is not there yet, where `H` needs one.
_DRAFT_NAME = "draft"


def decode_draft(message: job_pb2.Schedule, at: str, *, now_us: int, namespace: str, job: str = "") -> WantedSchedule:
    """A draft, for the job `job` if it is to be an edit of that. Raises Invalid, BadRequest."""
    hash_key = f"{namespace or 'default'}/{job or _DRAFT_NAME}"
    return decode_schedule(message, at, now_us=now_us, hash_key=hash_key)


def decode_wish(request: schedule_service_pb2.PreviewScheduleRequest, now_us: int) -> Wish:
    """Which occurrences are asked for. Raises BadRequest."""
    faults = Violations()
    from_us, to_us = now_us + 1, END_US
    with faults.noted():
        if request.HasField("after"):
            from_us = fields.instant_us(request.after, "after") + 1
    with faults.noted():
        if request.HasField("from"):
            from_us = fields.instant_us(getattr(request, "from"), "from")
    with faults.noted():
        if request.HasField("to"):
            to_us = fields.instant_us(request.to, "to")
    if request.HasField("after") and request.HasField("from"):
        faults.add("after", "cannot be given together with from")
    if to_us < from_us:
        faults.add("to", "must be later than where it begins")
    if not 0 <= request.count <= MAX_COUNT:
        faults.add("count", f"must lie within 0 and {MAX_COUNT}")
    faults.refuse()
    return Wish(from_us, to_us, request.count or DEFAULT_COUNT, request.include_excluded)


def encode_entry(entry: Entry) -> schedule_service_pb2.Occurrence:
    """One occurrence as a message."""
    notes = [*entry.notes]
    if entry.excluded_by and not any(entry.excluded_by in note for note in notes):
        notes.append(entry.excluded_by)
    return schedule_service_pb2.Occurrence(
        at=timestamp(entry.nominal_us),
        local=entry.local,
        due_at=timestamp(entry.due_us),
        marks=[int(mark) for mark in entry.marks],  # type: ignore[misc]
        notes=notes,
    )


def encode_preview(shown: Preview) -> schedule_service_pb2.PreviewScheduleResponse:
    """A preview as a message."""
    return schedule_service_pb2.PreviewScheduleResponse(
        occurrences=map(encode_entry, shown.entries), more=shown.more, notes=shown.notes
    )
