from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_CAUSE_UNSPECIFIED: _ClassVar[RunCause]
    RUN_CAUSE_SCHEDULE: _ClassVar[RunCause]
    RUN_CAUSE_TRIGGER: _ClassVar[RunCause]
    RUN_CAUSE_BACKFILL: _ClassVar[RunCause]

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_PENDING: _ClassVar[RunState]
    RUN_STATE_LEASED: _ClassVar[RunState]
    RUN_STATE_SUCCEEDED: _ClassVar[RunState]
    RUN_STATE_FAILED: _ClassVar[RunState]
    RUN_STATE_DEAD: _ClassVar[RunState]
    RUN_STATE_CANCELED: _ClassVar[RunState]

class AttemptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_OUTCOME_UNSPECIFIED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_OPEN: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_SUCCEEDED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_FAILED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_TIMED_OUT: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_LOST: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_CANCELED: _ClassVar[AttemptOutcome]
RUN_CAUSE_UNSPECIFIED: RunCause
RUN_CAUSE_SCHEDULE: RunCause
RUN_CAUSE_TRIGGER: RunCause
RUN_CAUSE_BACKFILL: RunCause
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_PENDING: RunState
RUN_STATE_LEASED: RunState
RUN_STATE_SUCCEEDED: RunState
RUN_STATE_FAILED: RunState
RUN_STATE_DEAD: RunState
RUN_STATE_CANCELED: RunState
ATTEMPT_OUTCOME_UNSPECIFIED: AttemptOutcome
ATTEMPT_OUTCOME_OPEN: AttemptOutcome
ATTEMPT_OUTCOME_SUCCEEDED: AttemptOutcome
ATTEMPT_OUTCOME_FAILED: AttemptOutcome
ATTEMPT_OUTCOME_TIMED_OUT: AttemptOutcome
ATTEMPT_OUTCOME_LOST: AttemptOutcome
ATTEMPT_OUTCOME_CANCELED: AttemptOutcome

class Run(_message.Message):
    __slots__ = ("run_id", "namespace", "job", "job_id", "job_version", "cause", "scheduled_for", "due_at", "state", "attempt", "max_attempts", "not_before", "worker", "lease_until", "cancel_requested", "create_time", "start_time", "end_time", "last_error", "result", "result_type", "progress", "traceparent", "shard", "home_term", "explanation", "operation_id", "buffered")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    HOME_TERM_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    namespace: str
    job: str
    job_id: str
    job_version: int
    cause: RunCause
    scheduled_for: _timestamp_pb2.Timestamp
    due_at: _timestamp_pb2.Timestamp
    state: RunState
    attempt: int
    max_attempts: int
    not_before: _timestamp_pb2.Timestamp
    worker: str
    lease_until: _timestamp_pb2.Timestamp
    cancel_requested: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    last_error: str
    result: bytes
    result_type: str
    progress: bytes
    traceparent: str
    shard: int
    home_term: int
    explanation: str
    operation_id: str
    buffered: bool
    def __init__(self, run_id: _Optional[str] = ..., namespace: _Optional[str] = ..., job: _Optional[str] = ..., job_id: _Optional[str] = ..., job_version: _Optional[int] = ..., cause: _Optional[_Union[RunCause, str]] = ..., scheduled_for: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., due_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[RunState, str]] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., not_before: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., worker: _Optional[str] = ..., lease_until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cancel_requested: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[str] = ..., result: _Optional[bytes] = ..., result_type: _Optional[str] = ..., progress: _Optional[bytes] = ..., traceparent: _Optional[str] = ..., shard: _Optional[int] = ..., home_term: _Optional[int] = ..., explanation: _Optional[str] = ..., operation_id: _Optional[str] = ..., buffered: bool = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("attempt", "worker", "outcome", "start_time", "end_time", "error", "term")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    worker: str
    outcome: AttemptOutcome
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    error: str
    term: int
    def __init__(self, attempt: _Optional[int] = ..., worker: _Optional[str] = ..., outcome: _Optional[_Union[AttemptOutcome, str]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...
