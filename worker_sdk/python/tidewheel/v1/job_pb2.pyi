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
    OVERLAP_POLICY_BUFFER_ONE: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_BUFFER_ALL: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_CANCEL_OTHER: _ClassVar[OverlapPolicy]

class CatchUpMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_MODE_UNSPECIFIED: _ClassVar[CatchUpMode]
    CATCH_UP_MODE_LATEST: _ClassVar[CatchUpMode]
    CATCH_UP_MODE_SKIP: _ClassVar[CatchUpMode]
    CATCH_UP_MODE_ALL: _ClassVar[CatchUpMode]

class CatchUpOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_ORDER_UNSPECIFIED: _ClassVar[CatchUpOrder]
    CATCH_UP_ORDER_OLDEST_FIRST: _ClassVar[CatchUpOrder]
    CATCH_UP_ORDER_NEWEST_FIRST: _ClassVar[CatchUpOrder]
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
OVERLAP_POLICY_BUFFER_ONE: OverlapPolicy
OVERLAP_POLICY_BUFFER_ALL: OverlapPolicy
OVERLAP_POLICY_CANCEL_OTHER: OverlapPolicy
CATCH_UP_MODE_UNSPECIFIED: CatchUpMode
CATCH_UP_MODE_LATEST: CatchUpMode
CATCH_UP_MODE_SKIP: CatchUpMode
CATCH_UP_MODE_ALL: CatchUpMode
CATCH_UP_ORDER_UNSPECIFIED: CatchUpOrder
CATCH_UP_ORDER_OLDEST_FIRST: CatchUpOrder
CATCH_UP_ORDER_NEWEST_FIRST: CatchUpOrder

class Job(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "handler", "queue", "payload", "payload_type", "schedule", "retry", "overlap", "catch_up", "start_to_close_timeout", "description", "contact", "labels", "max_buffered", "state", "version", "etag", "create_time", "update_time", "next_occurrence", "error", "next_due", "jitter_offset")
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
    MAX_BUFFERED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_FIELD_NUMBER: _ClassVar[int]
    JITTER_OFFSET_FIELD_NUMBER: _ClassVar[int]
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
    max_buffered: int
    state: JobState
    version: int
    etag: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    next_occurrence: _timestamp_pb2.Timestamp
    error: str
    next_due: _timestamp_pb2.Timestamp
    jitter_offset: _duration_pb2.Duration
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., handler: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_type: _Optional[str] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., overlap: _Optional[_Union[OverlapPolicy, str]] = ..., catch_up: _Optional[_Union[CatchUpPolicy, _Mapping]] = ..., start_to_close_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., description: _Optional[str] = ..., contact: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., max_buffered: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., next_occurrence: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., next_due: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., jitter_offset: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("at", "every", "anchor", "cron", "zone", "start", "end", "gap", "repeat", "exclude", "windows", "max_runs", "jitter")
    AT_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    at: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    every: _containers.RepeatedCompositeFieldContainer[Interval]
    anchor: _timestamp_pb2.Timestamp
    cron: _containers.RepeatedScalarFieldContainer[str]
    zone: str
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    gap: GapRule
    repeat: RepeatRule
    exclude: Exclusions
    windows: _containers.RepeatedScalarFieldContainer[str]
    max_runs: int
    jitter: _duration_pb2.Duration
    def __init__(self, at: _Optional[_Iterable[_Union[_timestamp_pb2.Timestamp, _Mapping]]] = ..., every: _Optional[_Iterable[_Union[Interval, _Mapping]]] = ..., anchor: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cron: _Optional[_Iterable[str]] = ..., zone: _Optional[str] = ..., start: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., gap: _Optional[_Union[GapRule, str]] = ..., repeat: _Optional[_Union[RepeatRule, str]] = ..., exclude: _Optional[_Union[Exclusions, _Mapping]] = ..., windows: _Optional[_Iterable[str]] = ..., max_runs: _Optional[int] = ..., jitter: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("elapsed", "days", "weeks", "months", "anchor")
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    WEEKS_FIELD_NUMBER: _ClassVar[int]
    MONTHS_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    elapsed: _duration_pb2.Duration
    days: int
    weeks: int
    months: int
    anchor: _timestamp_pb2.Timestamp
    def __init__(self, elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., days: _Optional[int] = ..., weeks: _Optional[int] = ..., months: _Optional[int] = ..., anchor: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Exclusions(_message.Message):
    __slots__ = ("dates", "cron", "calendars")
    DATES_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    CALENDARS_FIELD_NUMBER: _ClassVar[int]
    dates: _containers.RepeatedScalarFieldContainer[str]
    cron: _containers.RepeatedScalarFieldContainer[str]
    calendars: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dates: _Optional[_Iterable[str]] = ..., cron: _Optional[_Iterable[str]] = ..., calendars: _Optional[_Iterable[str]] = ...) -> None: ...

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
    __slots__ = ("mode", "grace", "max_runs", "window", "order")
    MODE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    mode: CatchUpMode
    grace: _duration_pb2.Duration
    max_runs: int
    window: _duration_pb2.Duration
    order: CatchUpOrder
    def __init__(self, mode: _Optional[_Union[CatchUpMode, str]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_runs: _Optional[int] = ..., window: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., order: _Optional[_Union[CatchUpOrder, str]] = ...) -> None: ...
