from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_KIND_UNSPECIFIED: _ClassVar[OperationKind]
    OPERATION_KIND_BACKFILL: _ClassVar[OperationKind]
    OPERATION_KIND_PAUSE_JOBS: _ClassVar[OperationKind]
    OPERATION_KIND_RESUME_JOBS: _ClassVar[OperationKind]
    OPERATION_KIND_CALENDAR_CHANGE: _ClassVar[OperationKind]

class OperationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_STATE_UNSPECIFIED: _ClassVar[OperationState]
    OPERATION_STATE_RUNNING: _ClassVar[OperationState]
    OPERATION_STATE_SUCCEEDED: _ClassVar[OperationState]
    OPERATION_STATE_CANCELING: _ClassVar[OperationState]
    OPERATION_STATE_CANCELED: _ClassVar[OperationState]
    OPERATION_STATE_FAILED: _ClassVar[OperationState]
OPERATION_KIND_UNSPECIFIED: OperationKind
OPERATION_KIND_BACKFILL: OperationKind
OPERATION_KIND_PAUSE_JOBS: OperationKind
OPERATION_KIND_RESUME_JOBS: OperationKind
OPERATION_KIND_CALENDAR_CHANGE: OperationKind
OPERATION_STATE_UNSPECIFIED: OperationState
OPERATION_STATE_RUNNING: OperationState
OPERATION_STATE_SUCCEEDED: OperationState
OPERATION_STATE_CANCELING: OperationState
OPERATION_STATE_CANCELED: OperationState
OPERATION_STATE_FAILED: OperationState

class Operation(_message.Message):
    __slots__ = ("namespace", "operation_id", "kind", "state", "subject", "description", "done", "total", "unchanged", "create_time", "update_time", "end_time", "author", "note", "error")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    operation_id: str
    kind: OperationKind
    state: OperationState
    subject: str
    description: str
    done: int
    total: int
    unchanged: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    author: str
    note: str
    error: str
    def __init__(self, namespace: _Optional[str] = ..., operation_id: _Optional[str] = ..., kind: _Optional[_Union[OperationKind, str]] = ..., state: _Optional[_Union[OperationState, str]] = ..., subject: _Optional[str] = ..., description: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., unchanged: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., author: _Optional[str] = ..., note: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...
