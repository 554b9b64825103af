from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tidewheel.v1 import operation_pb2 as _operation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WindowAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WINDOW_ACTION_UNSPECIFIED: _ClassVar[WindowAction]
    WINDOW_ACTION_SKIP: _ClassVar[WindowAction]
    WINDOW_ACTION_DEFER: _ClassVar[WindowAction]
WINDOW_ACTION_UNSPECIFIED: WindowAction
WINDOW_ACTION_SKIP: WindowAction
WINDOW_ACTION_DEFER: WindowAction

class Calendar(_message.Message):
    __slots__ = ("namespace", "name", "calendar_id", "description", "days_off", "windows", "version", "etag", "create_time", "update_time", "jobs", "author", "note")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALENDAR_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DAYS_OFF_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    calendar_id: str
    description: str
    days_off: DaysOff
    windows: Windows
    version: int
    etag: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    jobs: int
    author: str
    note: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., calendar_id: _Optional[str] = ..., description: _Optional[str] = ..., days_off: _Optional[_Union[DaysOff, _Mapping]] = ..., windows: _Optional[_Union[Windows, _Mapping]] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., jobs: _Optional[int] = ..., author: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class DaysOff(_message.Message):
    __slots__ = ("weekdays", "days", "working")
    WEEKDAYS_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    WORKING_FIELD_NUMBER: _ClassVar[int]
    weekdays: _containers.RepeatedScalarFieldContainer[int]
    days: _containers.RepeatedCompositeFieldContainer[DayOff]
    working: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, weekdays: _Optional[_Iterable[int]] = ..., days: _Optional[_Iterable[_Union[DayOff, _Mapping]]] = ..., working: _Optional[_Iterable[str]] = ...) -> None: ...

class DayOff(_message.Message):
    __slots__ = ("date", "name")
    DATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    date: str
    name: str
    def __init__(self, date: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Windows(_message.Message):
    __slots__ = ("action", "windows")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    action: WindowAction
    windows: _containers.RepeatedCompositeFieldContainer[Window]
    def __init__(self, action: _Optional[_Union[WindowAction, str]] = ..., windows: _Optional[_Iterable[_Union[Window, _Mapping]]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("to", "cron", "zone", "duration", "name")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    to: _timestamp_pb2.Timestamp
    cron: str
    zone: str
    duration: _duration_pb2.Duration
    name: str
    def __init__(self, to: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., name: _Optional[str] = ..., **kwargs) -> None: ...

class CreateCalendarRequest(_message.Message):
    __slots__ = ("calendar", "request_id", "note")
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    request_id: str
    note: str
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class GetCalendarRequest(_message.Message):
    __slots__ = ("namespace", "name", "version")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    version: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ListCalendarsRequest(_message.Message):
    __slots__ = ("namespace", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCalendarsResponse(_message.Message):
    __slots__ = ("calendars", "next_page_token")
    CALENDARS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    calendars: _containers.RepeatedCompositeFieldContainer[Calendar]
    next_page_token: str
    def __init__(self, calendars: _Optional[_Iterable[_Union[Calendar, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateCalendarRequest(_message.Message):
    __slots__ = ("calendar", "request_id", "note")
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    request_id: str
    note: str
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class UpdateCalendarResponse(_message.Message):
    __slots__ = ("calendar", "operation")
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    operation: _operation_pb2.Operation
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ..., operation: _Optional[_Union[_operation_pb2.Operation, _Mapping]] = ...) -> None: ...

class DeleteCalendarRequest(_message.Message):
    __slots__ = ("namespace", "name", "etag", "request_id", "note")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    etag: str
    request_id: str
    note: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ListCalendarVersionsRequest(_message.Message):
    __slots__ = ("namespace", "name", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCalendarVersionsResponse(_message.Message):
    __slots__ = ("versions", "next_page_token")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[Calendar]
    next_page_token: str
    def __init__(self, versions: _Optional[_Iterable[_Union[Calendar, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
