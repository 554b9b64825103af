"""ScheduleService: shows what schedules mean. Changes nothing.

The contract is proto/tidewheel/v1/schedule_service.proto.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
from tidewheel.v1 import schedule_service_pb2, schedule_service_pb2_grpc

from controlplane.api import fields
from controlplane.api.calls import Calls, Origin
from controlplane.api.naming import faults_of_namespace
from controlplane.api.preview_messages import decode_wish, encode_entry, encode_preview
from controlplane.api.schedule_refs import ScheduleRefs, check_ref
from controlplane.schedule_comparison import compare_over
from controlplane.schedule_preview import Drawn, Wish, entry_at, preview
from core.civil import DAY_S, END_US
from core.clock import US_PER_S, Clock
from core.comparison import Change, ChangeKind
from core.errors import Invalid

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "tidewheel.v1.ScheduleService"
_MAX_CHANGES = 1_000
_DEFAULT_CHANGES = 100
_MAX_SPAN_US = 366 * DAY_S * US_PER_S
_DEFAULT_SPAN_US = 30 * DAY_S * US_PER_S
_CHANGES: Final = {
    ChangeKind.GAINED: schedule_service_pb2.SCHEDULE_CHANGE_KIND_GAINED,
    ChangeKind.LOST: schedule_service_pb2.SCHEDULE_CHANGE_KIND_LOST,
    ChangeKind.MOVED: schedule_service_pb2.SCHEDULE_CHANGE_KIND_MOVED,
}


class ScheduleServicer(schedule_service_pb2_grpc.ScheduleServiceServicer):
    """Decodes, draws, encodes."""

    def __init__(self, calls: Calls, refs: ScheduleRefs, clock: Clock) -> None:
        self._calls = calls
        self._refs = refs
        self._clock = clock

    async def PreviewSchedule(
        self, request: schedule_service_pb2.PreviewScheduleRequest, context: Context
    ) -> schedule_service_pb2.PreviewScheduleResponse:
        return await self._calls.answer(f"/{SERVICE}/PreviewSchedule", request, context, self._preview)

    async def CompareSchedules(
        self, request: schedule_service_pb2.CompareSchedulesRequest, context: Context
    ) -> schedule_service_pb2.CompareSchedulesResponse:
        return await self._calls.answer(f"/{SERVICE}/CompareSchedules", request, context, self._compare)

    async def _preview(
        self, request: schedule_service_pb2.PreviewScheduleRequest, origin: Origin
    ) -> schedule_service_pb2.PreviewScheduleResponse:
        now_us, faults = self._clock.now_us(), faults_of_namespace(request.namespace)
        wish = Wish(now_us)
        with faults.noted():
            wish = decode_wish(request, now_us)
        with faults.noted():
            check_ref(request.schedule, "schedule", now_us)
        faults.refuse()
        refs = {"schedule": request.schedule}
        (drawn,) = await self._refs.drawn(request.namespace or "default", refs, now_us)
        return encode_preview(preview(drawn, wish))

    async def _compare(
        self, request: schedule_service_pb2.CompareSchedulesRequest, origin: Origin
    ) -> schedule_service_pb2.CompareSchedulesResponse:
        now_us, faults = self._clock.now_us(), faults_of_namespace(request.namespace)
        from_us, span_us, refs = now_us, _DEFAULT_SPAN_US, {"before": request.before, "after": request.after}
        with faults.noted():
            from_us = fields.instant_us(getattr(request, "from"), "from") if request.HasField("from") else now_us
        with faults.noted():
            span_us = _span_us(request)
        if not 0 <= request.limit <= _MAX_CHANGES:
            faults.add("limit", f"must lie within 0 and {_MAX_CHANGES}")
        for at, ref in refs.items():
            with faults.noted():
                check_ref(ref, at, now_us)
        faults.refuse()
        before, after = await self._refs.drawn(request.namespace or "default", refs, now_us)
        found, partial = await compare_over(before, after, from_us, min(END_US, from_us + span_us), self._clock)
        shown = found.changes[: request.limit or _DEFAULT_CHANGES]
        return schedule_service_pb2.CompareSchedulesResponse(
            changes=[_change(change, before, after) for change in shown],
            gained=found.count(ChangeKind.GAINED),
            lost=found.count(ChangeKind.LOST),
            moved=found.count(ChangeKind.MOVED),
            unchanged=found.unchanged,
            partial=partial,
        )


def _change(change: Change, before: Drawn, after: Drawn) -> schedule_service_pb2.ScheduleChange:
    message = schedule_service_pb2.ScheduleChange(kind=_CHANGES[change.kind])
    for name, drawn, at_us in (("before", before, change.before_us), ("after", after, change.after_us)):
        entry = None if at_us is None else entry_at(drawn, at_us)
        if entry is not None:
            getattr(message, name).CopyFrom(encode_entry(entry))
    return message


def _span_us(request: schedule_service_pb2.CompareSchedulesRequest) -> int:
    if not request.HasField("span"):
        return _DEFAULT_SPAN_US
    span_us = fields.duration_us(request.span, "span")
    if not 0 < span_us <= _MAX_SPAN_US:
        raise Invalid("span", "must be above 0 s and at most 366 days")
    return span_us
