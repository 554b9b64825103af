from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tidewheel.v1 import job_pb2 as _job_pb2
from tidewheel.v1 import operation_pb2 as _operation_pb2
from tidewheel.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PausedOccurrences(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAUSED_OCCURRENCES_UNSPECIFIED: _ClassVar[PausedOccurrences]
    PAUSED_OCCURRENCES_SKIP: _ClassVar[PausedOccurrences]
    PAUSED_OCCURRENCES_CATCH_UP: _ClassVar[PausedOccurrences]

class LedgerKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEDGER_KIND_UNSPECIFIED: _ClassVar[LedgerKind]
    LEDGER_KIND_RUN: _ClassVar[LedgerKind]
    LEDGER_KIND_SKIPPED: _ClassVar[LedgerKind]
    LEDGER_KIND_PAUSED: _ClassVar[LedgerKind]
    LEDGER_KIND_EXCLUDED: _ClassVar[LedgerKind]
    LEDGER_KIND_NOT_YET_DUE: _ClassVar[LedgerKind]
    LEDGER_KIND_DUE: _ClassVar[LedgerKind]
    LEDGER_KIND_MISSING: _ClassVar[LedgerKind]
    LEDGER_KIND_UNEXPECTED: _ClassVar[LedgerKind]
PAUSED_OCCURRENCES_UNSPECIFIED: PausedOccurrences
PAUSED_OCCURRENCES_SKIP: PausedOccurrences
PAUSED_OCCURRENCES_CATCH_UP: PausedOccurrences
LEDGER_KIND_UNSPECIFIED: LedgerKind
LEDGER_KIND_RUN: LedgerKind
LEDGER_KIND_SKIPPED: LedgerKind
LEDGER_KIND_PAUSED: LedgerKind
LEDGER_KIND_EXCLUDED: LedgerKind
LEDGER_KIND_NOT_YET_DUE: LedgerKind
LEDGER_KIND_DUE: LedgerKind
LEDGER_KIND_MISSING: LedgerKind
LEDGER_KIND_UNEXPECTED: LedgerKind

class CreateJobRequest(_message.Message):
    __slots__ = ("job", "request_id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    request_id: str
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("namespace", "name", "job_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("namespace", "page_size", "page_token", "name_prefix")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    page_size: int
    page_token: str
    name_prefix: str
    def __init__(self, namespace: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name_prefix: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[_job_pb2.Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("job", "update_mask", "request_id", "note")
    JOB_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    note: str
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PauseJobRequest(_message.Message):
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

class ResumeJobRequest(_message.Message):
    __slots__ = ("namespace", "name", "etag", "request_id", "note", "paused")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    etag: str
    request_id: str
    note: str
    paused: PausedOccurrences
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ..., paused: _Optional[_Union[PausedOccurrences, str]] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
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

class TriggerJobRequest(_message.Message):
    __slots__ = ("namespace", "name", "request_id", "payload", "allow_overlap", "delay", "note")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ALLOW_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    request_id: str
    payload: bytes
    allow_overlap: bool
    delay: _duration_pb2.Duration
    note: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., request_id: _Optional[str] = ..., payload: _Optional[bytes] = ..., allow_overlap: bool = ..., delay: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class ListJobVersionsRequest(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobVersionsResponse(_message.Message):
    __slots__ = ("versions", "next_page_token")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[JobVersion]
    next_page_token: str
    def __init__(self, versions: _Optional[_Iterable[_Union[JobVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class JobVersion(_message.Message):
    __slots__ = ("version", "state", "cutover", "author", "note", "request_id", "job")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CUTOVER_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    version: int
    state: _job_pb2.JobState
    cutover: _timestamp_pb2.Timestamp
    author: str
    note: str
    request_id: str
    job: _job_pb2.Job
    def __init__(self, version: _Optional[int] = ..., state: _Optional[_Union[_job_pb2.JobState, str]] = ..., cutover: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., author: _Optional[str] = ..., note: _Optional[str] = ..., request_id: _Optional[str] = ..., job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class CompareJobVersionsRequest(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "from_version", "to_version")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    from_version: int
    to_version: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., from_version: _Optional[int] = ..., to_version: _Optional[int] = ...) -> None: ...

class CompareJobVersionsResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("path", "to")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    path: str
    to: str
    def __init__(self, path: _Optional[str] = ..., to: _Optional[str] = ..., **kwargs) -> None: ...

class RestoreJobVersionRequest(_message.Message):
    __slots__ = ("namespace", "name", "version", "etag", "request_id", "note")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    version: int
    etag: str
    request_id: str
    note: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "at")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExplainJobResponse(_message.Message):
    __slots__ = ("fires", "version", "reasons", "run_id", "previous", "next")
    FIRES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    fires: bool
    version: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    previous: _timestamp_pb2.Timestamp
    next: _timestamp_pb2.Timestamp
    def __init__(self, fires: bool = ..., version: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ..., previous: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., next: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetJobLedgerRequest(_message.Message):
    __slots__ = ("namespace", "name", "job_id", "to", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    job_id: str
    to: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., to: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., **kwargs) -> None: ...

class GetJobLedgerResponse(_message.Message):
    __slots__ = ("entries", "next_page_token", "counts")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[LedgerEntry]
    next_page_token: str
    counts: _containers.RepeatedCompositeFieldContainer[LedgerCount]
    def __init__(self, entries: _Optional[_Iterable[_Union[LedgerEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., counts: _Optional[_Iterable[_Union[LedgerCount, _Mapping]]] = ...) -> None: ...

class LedgerEntry(_message.Message):
    __slots__ = ("scheduled_for", "last_scheduled_for", "occurrences", "kind", "job_version", "run_id", "run_state", "reason", "due_at", "backfill_run_ids")
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    LAST_SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    scheduled_for: _timestamp_pb2.Timestamp
    last_scheduled_for: _timestamp_pb2.Timestamp
    occurrences: int
    kind: LedgerKind
    job_version: int
    run_id: str
    run_state: _run_pb2.RunState
    reason: str
    due_at: _timestamp_pb2.Timestamp
    backfill_run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scheduled_for: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_scheduled_for: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., occurrences: _Optional[int] = ..., kind: _Optional[_Union[LedgerKind, str]] = ..., job_version: _Optional[int] = ..., run_id: _Optional[str] = ..., run_state: _Optional[_Union[_run_pb2.RunState, str]] = ..., reason: _Optional[str] = ..., due_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., backfill_run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class LedgerCount(_message.Message):
    __slots__ = ("kind", "occurrences")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    kind: LedgerKind
    occurrences: int
    def __init__(self, kind: _Optional[_Union[LedgerKind, str]] = ..., occurrences: _Optional[int] = ...) -> None: ...

class BackfillJobRequest(_message.Message):
    __slots__ = ("namespace", "name", "to", "max_runs", "runs_per_second", "overlap", "include_run", "validate_only", "request_id", "note")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    RUNS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_RUN_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    to: _timestamp_pb2.Timestamp
    max_runs: int
    runs_per_second: float
    overlap: _job_pb2.OverlapPolicy
    include_run: bool
    validate_only: bool
    request_id: str
    note: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., to: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., max_runs: _Optional[int] = ..., runs_per_second: _Optional[float] = ..., overlap: _Optional[_Union[_job_pb2.OverlapPolicy, str]] = ..., include_run: bool = ..., validate_only: bool = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ..., **kwargs) -> None: ...

class JobSelector(_message.Message):
    __slots__ = ("namespace", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, namespace: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PauseJobsRequest(_message.Message):
    __slots__ = ("selector", "validate_only", "expected_count", "request_id", "note")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    selector: JobSelector
    validate_only: bool
    expected_count: int
    request_id: str
    note: str
    def __init__(self, selector: _Optional[_Union[JobSelector, _Mapping]] = ..., validate_only: bool = ..., expected_count: _Optional[int] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ResumeJobsRequest(_message.Message):
    __slots__ = ("selector", "validate_only", "expected_count", "request_id", "note", "paused")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    selector: JobSelector
    validate_only: bool
    expected_count: int
    request_id: str
    note: str
    paused: PausedOccurrences
    def __init__(self, selector: _Optional[_Union[JobSelector, _Mapping]] = ..., validate_only: bool = ..., expected_count: _Optional[int] = ..., request_id: _Optional[str] = ..., note: _Optional[str] = ..., paused: _Optional[_Union[PausedOccurrences, str]] = ...) -> None: ...

class ChangeJobsResponse(_message.Message):
    __slots__ = ("count", "names", "operation")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    count: int
    names: _containers.RepeatedScalarFieldContainer[str]
    operation: _operation_pb2.Operation
    def __init__(self, count: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., operation: _Optional[_Union[_operation_pb2.Operation, _Mapping]] = ...) -> None: ...
