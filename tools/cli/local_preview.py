"""Previews a draft without a server, by the code that servers use. Called by schedules.py."""

from __future__ import annotations

from datetime import datetime

from tidewheel.v1 import schedule_service_pb2

from controlplane.api.preview_messages import decode_draft, decode_wish, encode_preview
from controlplane.api.violations import BadRequest
from controlplane.schedule_preview import draft, preview
from core.clock import US_PER_S
from core.errors import Invalid
from core.zones import use_pinned_tzdata
from tools.cli.exits import usage


def preview_here(
    request: schedule_service_pb2.PreviewScheduleRequest, now: datetime
) -> schedule_service_pb2.PreviewScheduleResponse:
    """What a server would answer for a draft that names no calendar. Raises Failure(USAGE)."""
    use_pinned_tzdata()
    now_us = round(now.timestamp() * US_PER_S)
    try:
        wish = decode_wish(request, now_us)
        wanted = decode_draft(request.schedule.draft, "schedule", now_us=now_us, namespace=request.namespace)
        return encode_preview(preview(draft(wanted.schedule, {}), wish))
    except (Invalid, BadRequest) as fault:
        raise usage(str(fault)) from fault
