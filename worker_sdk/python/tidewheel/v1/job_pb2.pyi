from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_ACTIVE: _ClassVar[JobState]
    JOB_STATE_PAUSED: _ClassVar[JobState]
    JOB_STATE_DELETED: _ClassVar[JobState]

class GapRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_RULE_UNSPECIFIED: _ClassVar[GapRule]
    GAP_RULE_END: _ClassVar[GapRule]
    GAP_RULE_SHIFT: _ClassVar[GapRule]
    GAP_RULE_SKIP: _ClassVar[GapRule]

class RepeatRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPEAT_RULE_UNSPECIFIED: _ClassVar[RepeatRule]
    REPEAT_RULE_FIRST: _ClassVar[RepeatRule]
    REPEAT_RULE_SECOND: _ClassVar[RepeatRule]
    REPEAT_RULE_BOTH: _ClassVar[RepeatRule]

class OverlapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_POLICY_UNSPECIFIED: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_SKIP: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_ALLOW: _ClassVar[OverlapPolicy]

class CatchUpMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_MODE_UNSPECIFIED: _ClassVar[CatchUpMode]
    CATCH_UP_MODE_LATEST: _ClassVar[CatchUpMode]
    CATCH_UP_MODE_SKIP: _ClassVar[CatchUpMode]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_ACTIVE: JobState
JOB_STATE_PAUSED: JobState
JOB_STATE_DELETED: JobState
GAP_RULE_UNSPECIFIED: GapRule
GAP_RULE_END: GapRule
GAP_RULE_SHIFT: GapRule
GAP_RULE_SKIP: GapRule
REPEAT_RULE_UNSPECIFIED: RepeatRule
REPEAT_RULE_FIRST: RepeatRule
REPEAT_RULE_SECOND: RepeatRule
REPEAT_RULE_BOTH: RepeatRule
OVERLAP_POLICY_UNSPECIFIED: OverlapPolicy
OVERLAP_POLICY_SKIP: OverlapPolicy
OVERLAP_POLICY_ALLOW: OverlapPolicy
CATCH_UP_MODE_UNSPECIFIED: CatchUpMode
CATCH_UP_MODE_LATEST: CatchUpMode
CATCH_UP_MODE_SKIP: CatchUpMode

class Job(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "handler", "queue", "payload", "payload_type", "schedule", "retry", "overlap", "catch_up", "start_to_close_timeout", "description", "contact", "labels", "state", "version", "etag", "create_time", "update_time", "next_occurrence", "error")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    START_TO_CLOSE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    handler: str
    queue: str
    payload: bytes
    payload_type: str
    schedule: Schedule
    retry: RetryPolicy
    overlap: OverlapPolicy
    catch_up: CatchUpPolicy
    start_to_close_timeout: _duration_pb2.Duration
    description: str
    contact: str
    labels: _containers.ScalarMap[str, str]
    state: JobState
    version: int
    etag: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    next_occurrence: _timestamp_pb2.Timestamp
    error: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., handler: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_type: _Optional[str] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., overlap: _Optional[_Union[OverlapPolicy, str]] = ..., catch_up: _Optional[_Union[CatchUpPolicy, _Mapping]] = ..., start_to_close_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., description: _Optional[str] = ..., contact: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[JobState, str]] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., next_occurrence: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("at", "every", "anchor", "cron", "zone", "start", "end", "gap", "repeat")
    AT_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    every: _duration_pb2.Duration
    anchor: _timestamp_pb2.Timestamp
    cron: _containers.RepeatedScalarFieldContainer[str]
    zone: str
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    gap: GapRule
    repeat: RepeatRule
    def __init__(self, at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., every: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., anchor: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cron: _Optional[_Iterable[str]] = ..., zone: _Optional[str] = ..., start: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., gap: _Optional[_Union[GapRule, str]] = ..., repeat: _Optional[_Union[RepeatRule, str]] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("max_attempts", "first_delay", "factor", "max_delay", "jitter")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_DELAY_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    first_delay: _duration_pb2.Duration
    factor: float
    max_delay: _duration_pb2.Duration
    jitter: float
    def __init__(self, max_attempts: _Optional[int] = ..., first_delay: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., factor: _Optional[float] = ..., max_delay: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., jitter: _Optional[float] = ...) -> None: ...

class CatchUpPolicy(_message.Message):
    __slots__ = ("mode", "grace")
    MODE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    mode: CatchUpMode
    grace: _duration_pb2.Duration
    def __init__(self, mode: _Optional[_Union[CatchUpMode, str]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...
