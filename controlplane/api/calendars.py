"""CalendarService: days off and maintenance windows. The contract is proto/tidewheel/v1/calendar_service.proto."""

from __future__ import annotations

from typing import Any

import grpc
from tidewheel.v1 import calendar_service_pb2 as pb
from tidewheel.v1 import calendar_service_pb2_grpc

from controlplane.api import page_tokens
from controlplane.api.calendar_content import check_description, decode_content, encode_calendar
from controlplane.api.calls import Calls, Origin
from controlplane.api.etags import check_calendar_etag
from controlplane.api.naming import faults_of_name, faults_of_namespace
from controlplane.api.operation_views import OperationViews, encode_operation
from core.calendars import CalendarContent
from core.errors import Invalid
from core.rand import Rand
from core.store.audit import Call
from core.store.calendar_changes import CalendarChanges
from core.store.calendars import CalendarRecord, Calendars
from core.store.operation_records import OperationRecord

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "tidewheel.v1.CalendarService"


class CalendarServicer(calendar_service_pb2_grpc.CalendarServiceServicer):
    """Decodes, calls the store, encodes."""

    def __init__(
        self, calls: Calls, calendars: Calendars, changes: CalendarChanges, views: OperationViews, rand: Rand
    ) -> None:
        self._calls = calls
        self._calendars = calendars
        self._changes = changes
        self._views = views
        self._rand = rand

    async def CreateCalendar(self, request: pb.CreateCalendarRequest, context: Context) -> pb.Calendar:
        return await self._calls.answer(f"/{SERVICE}/CreateCalendar", request, context, self._create)

    async def GetCalendar(self, request: pb.GetCalendarRequest, context: Context) -> pb.Calendar:
        return await self._calls.answer(f"/{SERVICE}/GetCalendar", request, context, self._get)

    async def ListCalendars(self, request: pb.ListCalendarsRequest, context: Context) -> pb.ListCalendarsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListCalendars", request, context, self._list)

    async def UpdateCalendar(self, request: pb.UpdateCalendarRequest, context: Context) -> pb.UpdateCalendarResponse:
        return await self._calls.answer(f"/{SERVICE}/UpdateCalendar", request, context, self._update)

    async def DeleteCalendar(self, request: pb.DeleteCalendarRequest, context: Context) -> pb.Calendar:
        return await self._calls.answer(f"/{SERVICE}/DeleteCalendar", request, context, self._delete)

    async def ListCalendarVersions(
        self, request: pb.ListCalendarVersionsRequest, context: Context
    ) -> pb.ListCalendarVersionsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListCalendarVersions", request, context, self._versions)

    # --- reads -----------------------------------------------------------------------------------------------------

    async def _get(self, request: pb.GetCalendarRequest, origin: Origin) -> pb.Calendar:
        faults = faults_of_name(request.namespace, request.name)
        if request.version < 0:
            faults.add("version", "must not be negative; 0 is the present one")
        faults.refuse()
        found = await self._calendars.by_name(request.namespace or "default", request.name, request.version)
        return encode_calendar(found)

    async def _list(self, request: pb.ListCalendarsRequest, origin: Origin) -> pb.ListCalendarsResponse:
        faults = faults_of_namespace(request.namespace)
        listing = (origin.method, request.namespace or "default")
        size, after = page_tokens.page(request, listing, faults, (str,), page_tokens.name)
        page = await self._calendars.page(request.namespace or "default", after=after or "", size=size)
        return pb.ListCalendarsResponse(
            calendars=[encode_calendar(each) for each in page.calendars],
            next_page_token=page_tokens.following(listing, page.calendars[-1].name if page.more else None),
        )

    async def _versions(
        self, request: pb.ListCalendarVersionsRequest, origin: Origin
    ) -> pb.ListCalendarVersionsResponse:
        faults = faults_of_name(request.namespace, request.name)
        listing = (origin.method, request.namespace or "default", request.name)
        size, before = page_tokens.page(request, listing, faults, (int,), page_tokens.version)
        page = await self._calendars.versions(
            request.namespace or "default", request.name, before=before or 0, size=size
        )
        return pb.ListCalendarVersionsResponse(
            versions=[encode_calendar(each) for each in page.calendars],
            next_page_token=page_tokens.following(listing, page.calendars[-1].version if page.more else None),
        )

    # --- changes ---------------------------------------------------------------------------------------------------

    async def _create(self, request: pb.CreateCalendarRequest, origin: Origin) -> pb.Calendar:
        call, content = self._decoded(request, origin)
        changed = await self._changes.create(
            call,
            calendar_id=self._rand.uuid(),
            name=request.calendar.name,
            content=content,
            description=request.calendar.description,
            render=_rendered,
        )
        return pb.Calendar.FromString(changed.answer)

    async def _update(self, request: pb.UpdateCalendarRequest, origin: Origin) -> pb.UpdateCalendarResponse:
        call, content = self._decoded(request, origin)

        def check(present: CalendarRecord) -> None:
            check_calendar_etag(request.calendar.etag, present)
            if present.content is not None and type(present.content) is not type(content):
                raise Invalid("calendar", f"the kind of content cannot change; {present.name!r} holds the other one")

        changed = await self._changes.update(
            call,
            name=request.calendar.name,
            content=content,
            description=request.calendar.description,
            check=check,
            operation_id=self._rand.uuid(),
            render=_rendered_update,
        )
        answer = pb.UpdateCalendarResponse.FromString(changed.answer)
        if answer.HasField("operation"):
            answer.operation.CopyFrom(await self._views.begun(answer.operation))
        return answer

    async def _delete(self, request: pb.DeleteCalendarRequest, origin: Origin) -> pb.Calendar:
        faults = faults_of_name(request.namespace, request.name)
        call = self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)
        changed = await self._changes.delete(
            call, name=request.name, check=lambda present: check_calendar_etag(request.etag, present), render=_rendered
        )
        return pb.Calendar.FromString(changed.answer)

    def _decoded(
        self, request: pb.CreateCalendarRequest | pb.UpdateCalendarRequest, origin: Origin
    ) -> tuple[Call, CalendarContent]:
        calendar, content = request.calendar, None
        faults = faults_of_name(calendar.namespace, calendar.name, "calendar.")
        with faults.noted():
            check_description(calendar.description, "calendar.description")
        with faults.noted():
            content = decode_content(calendar, "calendar")
        call = self._calls.mutation(origin, request, faults, namespace=calendar.namespace, note=request.note)
        assert content is not None, "nothing was wrong"
        return call, content


def _rendered(calendar: CalendarRecord, operation: OperationRecord | None) -> bytes:
    return encode_calendar(calendar).SerializeToString()


def _rendered_update(calendar: CalendarRecord, operation: OperationRecord | None) -> bytes:
    answer = pb.UpdateCalendarResponse(calendar=encode_calendar(calendar))
    if operation is not None:
        answer.operation.CopyFrom(encode_operation(operation))
    return answer.SerializeToString()
