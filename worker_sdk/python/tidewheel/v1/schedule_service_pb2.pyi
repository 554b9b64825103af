from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tidewheel.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARK_UNSPECIFIED: _ClassVar[Mark]
    MARK_GAP: _ClassVar[Mark]
    MARK_REPEATED: _ClassVar[Mark]
    MARK_EXCLUDED: _ClassVar[Mark]
    MARK_DEFERRED: _ClassVar[Mark]
    MARK_JITTERED: _ClassVar[Mark]

class ScheduleChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_CHANGE_KIND_UNSPECIFIED: _ClassVar[ScheduleChangeKind]
    SCHEDULE_CHANGE_KIND_GAINED: _ClassVar[ScheduleChangeKind]
    SCHEDULE_CHANGE_KIND_LOST: _ClassVar[ScheduleChangeKind]
    SCHEDULE_CHANGE_KIND_MOVED: _ClassVar[ScheduleChangeKind]
MARK_UNSPECIFIED: Mark
MARK_GAP: Mark
MARK_REPEATED: Mark
MARK_EXCLUDED: Mark
MARK_DEFERRED: Mark
MARK_JITTERED: Mark
SCHEDULE_CHANGE_KIND_UNSPECIFIED: ScheduleChangeKind
SCHEDULE_CHANGE_KIND_GAINED: ScheduleChangeKind
SCHEDULE_CHANGE_KIND_LOST: ScheduleChangeKind
SCHEDULE_CHANGE_KIND_MOVED: ScheduleChangeKind

class ScheduleRef(_message.Message):
    __slots__ = ("job", "draft", "version")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    job: str
    draft: _job_pb2.Schedule
    version: int
    def __init__(self, job: _Optional[str] = ..., draft: _Optional[_Union[_job_pb2.Schedule, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class PreviewScheduleRequest(_message.Message):
    __slots__ = ("namespace", "schedule", "after", "count", "to", "include_excluded")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    schedule: ScheduleRef
    after: _timestamp_pb2.Timestamp
    count: int
    to: _timestamp_pb2.Timestamp
    include_excluded: bool
    def __init__(self, namespace: _Optional[str] = ..., schedule: _Optional[_Union[ScheduleRef, _Mapping]] = ..., after: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., to: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., include_excluded: bool = ..., **kwargs) -> None: ...

class PreviewScheduleResponse(_message.Message):
    __slots__ = ("occurrences", "more", "notes")
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    occurrences: _containers.RepeatedCompositeFieldContainer[Occurrence]
    more: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, occurrences: _Optional[_Iterable[_Union[Occurrence, _Mapping]]] = ..., more: bool = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Occurrence(_message.Message):
    __slots__ = ("at", "local", "due_at", "marks", "notes")
    AT_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    local: str
    due_at: _timestamp_pb2.Timestamp
    marks: _containers.RepeatedScalarFieldContainer[Mark]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., local: _Optional[str] = ..., due_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., marks: _Optional[_Iterable[_Union[Mark, str]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class CompareSchedulesRequest(_message.Message):
    __slots__ = ("namespace", "before", "after", "span", "limit")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    before: ScheduleRef
    after: ScheduleRef
    span: _duration_pb2.Duration
    limit: int
    def __init__(self, namespace: _Optional[str] = ..., before: _Optional[_Union[ScheduleRef, _Mapping]] = ..., after: _Optional[_Union[ScheduleRef, _Mapping]] = ..., span: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., limit: _Optional[int] = ..., **kwargs) -> None: ...

class CompareSchedulesResponse(_message.Message):
    __slots__ = ("changes", "gained", "lost", "moved", "unchanged", "partial")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    GAINED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ScheduleChange]
    gained: int
    lost: int
    moved: int
    unchanged: int
    partial: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[ScheduleChange, _Mapping]]] = ..., gained: _Optional[int] = ..., lost: _Optional[int] = ..., moved: _Optional[int] = ..., unchanged: _Optional[int] = ..., partial: bool = ...) -> None: ...

class ScheduleChange(_message.Message):
    __slots__ = ("kind", "before", "after")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    kind: ScheduleChangeKind
    before: Occurrence
    after: Occurrence
    def __init__(self, kind: _Optional[_Union[ScheduleChangeKind, str]] = ..., before: _Optional[_Union[Occurrence, _Mapping]] = ..., after: _Optional[_Union[Occurrence, _Mapping]] = ...) -> None: ...
