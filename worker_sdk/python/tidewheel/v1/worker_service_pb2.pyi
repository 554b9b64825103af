from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_ACCEPTED: _ClassVar[Verdict]
    VERDICT_STALE: _ClassVar[Verdict]
    VERDICT_REDIRECT: _ClassVar[Verdict]
    VERDICT_RETRY: _ClassVar[Verdict]
VERDICT_UNSPECIFIED: Verdict
VERDICT_ACCEPTED: Verdict
VERDICT_STALE: Verdict
VERDICT_REDIRECT: Verdict
VERDICT_RETRY: Verdict

class WorkerFrame(_message.Message):
    __slots__ = ("hello", "grant", "reclaim", "results", "heartbeats", "returns", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    grant: Grant
    reclaim: Reclaim
    results: Results
    heartbeats: Heartbeats
    returns: Returns
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., reclaim: _Optional[_Union[Reclaim, _Mapping]] = ..., results: _Optional[_Union[Results, _Mapping]] = ..., heartbeats: _Optional[_Union[Heartbeats, _Mapping]] = ..., returns: _Optional[_Union[Returns, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class DispatcherFrame(_message.Message):
    __slots__ = ("welcome", "refusal", "assignments", "acknowledgements", "heartbeat_replies", "cancels", "released", "demand")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_REPLIES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    refusal: Refusal
    assignments: Assignments
    acknowledgements: Acknowledgements
    heartbeat_replies: HeartbeatReplies
    cancels: Cancels
    released: Released
    demand: Demand
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., assignments: _Optional[_Union[Assignments, _Mapping]] = ..., acknowledgements: _Optional[_Union[Acknowledgements, _Mapping]] = ..., heartbeat_replies: _Optional[_Union[HeartbeatReplies, _Mapping]] = ..., cancels: _Optional[_Union[Cancels, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., demand: _Optional[_Union[Demand, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "worker_id", "sdk", "namespace", "queues", "handlers", "slots", "holding", "sequence")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    worker_id: str
    sdk: str
    namespace: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    handlers: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    holding: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    sequence: int
    def __init__(self, protocol_version: _Optional[int] = ..., worker_id: _Optional[str] = ..., sdk: _Optional[str] = ..., namespace: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., handlers: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., holding: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class AttemptRef(_message.Message):
    __slots__ = ("run_id", "attempt", "token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    token: bytes
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "dispatcher_id", "heartbeat_interval", "lease", "stale")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    dispatcher_id: str
    heartbeat_interval: _duration_pb2.Duration
    lease: _duration_pb2.Duration
    stale: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    def __init__(self, protocol_version: _Optional[int] = ..., dispatcher_id: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., lease: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stale: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("field", "rule")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    field: str
    rule: str
    def __init__(self, field: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("total",)
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    total: int
    def __init__(self, total: _Optional[int] = ...) -> None: ...

class Reclaim(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("count", "total")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    count: int
    total: int
    def __init__(self, count: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("waiting",)
    WAITING_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    def __init__(self, waiting: _Optional[int] = ...) -> None: ...

class Assignments(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, items: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("ref", "namespace", "job", "job_id", "job_version", "handler", "queue", "payload", "payload_type", "scheduled_for", "due_at", "max_attempts", "fencing_token", "start_to_close_timeout", "traceparent", "progress")
    REF_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_VERSION_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    START_TO_CLOSE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ref: AttemptRef
    namespace: str
    job: str
    job_id: str
    job_version: int
    handler: str
    queue: str
    payload: bytes
    payload_type: str
    scheduled_for: _timestamp_pb2.Timestamp
    due_at: _timestamp_pb2.Timestamp
    max_attempts: int
    fencing_token: int
    start_to_close_timeout: _duration_pb2.Duration
    traceparent: str
    progress: bytes
    def __init__(self, ref: _Optional[_Union[AttemptRef, _Mapping]] = ..., namespace: _Optional[str] = ..., job: _Optional[str] = ..., job_id: _Optional[str] = ..., job_version: _Optional[int] = ..., handler: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_type: _Optional[str] = ..., scheduled_for: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., due_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., max_attempts: _Optional[int] = ..., fencing_token: _Optional[int] = ..., start_to_close_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., traceparent: _Optional[str] = ..., progress: _Optional[bytes] = ...) -> None: ...

class Results(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, items: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("ref", "success", "failure", "canceled", "started_at", "took")
    REF_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    TOOK_FIELD_NUMBER: _ClassVar[int]
    ref: AttemptRef
    success: Success
    failure: Failure
    canceled: Canceled
    started_at: _timestamp_pb2.Timestamp
    took: _duration_pb2.Duration
    def __init__(self, ref: _Optional[_Union[AttemptRef, _Mapping]] = ..., success: _Optional[_Union[Success, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., canceled: _Optional[_Union[Canceled, _Mapping]] = ..., started_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., took: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Success(_message.Message):
    __slots__ = ("result", "result_type")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_TYPE_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    result_type: str
    def __init__(self, result: _Optional[bytes] = ..., result_type: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("message", "not_retryable", "timed_out")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    message: str
    not_retryable: bool
    timed_out: bool
    def __init__(self, message: _Optional[str] = ..., not_retryable: bool = ..., timed_out: bool = ...) -> None: ...

class Canceled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Acknowledgements(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Acknowledgement]
    def __init__(self, items: _Optional[_Iterable[_Union[Acknowledgement, _Mapping]]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("run_id", "attempt", "verdict", "owner_address")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    OWNER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    verdict: Verdict
    owner_address: str
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., owner_address: _Optional[str] = ...) -> None: ...

class Heartbeats(_message.Message):
    __slots__ = ("sequence", "items")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    items: _containers.RepeatedCompositeFieldContainer[Heartbeat]
    def __init__(self, sequence: _Optional[int] = ..., items: _Optional[_Iterable[_Union[Heartbeat, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("ref", "progress")
    REF_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ref: AttemptRef
    progress: bytes
    def __init__(self, ref: _Optional[_Union[AttemptRef, _Mapping]] = ..., progress: _Optional[bytes] = ...) -> None: ...

class HeartbeatReplies(_message.Message):
    __slots__ = ("sequence", "exceptions")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    exceptions: _containers.RepeatedCompositeFieldContainer[Acknowledgement]
    def __init__(self, sequence: _Optional[int] = ..., exceptions: _Optional[_Iterable[_Union[Acknowledgement, _Mapping]]] = ...) -> None: ...

class Cancels(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CancelOrder]
    def __init__(self, items: _Optional[_Iterable[_Union[CancelOrder, _Mapping]]] = ...) -> None: ...

class CancelOrder(_message.Message):
    __slots__ = ("run_id", "attempt", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Returns(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    def __init__(self, items: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
