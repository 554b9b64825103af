from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DispatcherReport(_message.Message):
    __slots__ = ("dispatcher_id", "shards", "fires_per_second", "open_runs", "waiting_runs", "draining", "last_pass_age_ms", "loads", "cpu", "ailments", "connected_workers", "served_queues", "unserved_queues")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RUNS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LAST_PASS_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    AILMENTS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVED_QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNSERVED_QUEUES_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    shards: _containers.RepeatedScalarFieldContainer[int]
    fires_per_second: float
    open_runs: int
    waiting_runs: int
    draining: bool
    last_pass_age_ms: int
    loads: _containers.RepeatedCompositeFieldContainer[ShardLoad]
    cpu: float
    ailments: _containers.RepeatedCompositeFieldContainer[Ailment]
    connected_workers: int
    served_queues: _containers.RepeatedScalarFieldContainer[int]
    unserved_queues: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dispatcher_id: _Optional[str] = ..., shards: _Optional[_Iterable[int]] = ..., fires_per_second: _Optional[float] = ..., open_runs: _Optional[int] = ..., waiting_runs: _Optional[int] = ..., draining: bool = ..., last_pass_age_ms: _Optional[int] = ..., loads: _Optional[_Iterable[_Union[ShardLoad, _Mapping]]] = ..., cpu: _Optional[float] = ..., ailments: _Optional[_Iterable[_Union[Ailment, _Mapping]]] = ..., connected_workers: _Optional[int] = ..., served_queues: _Optional[_Iterable[int]] = ..., unserved_queues: _Optional[_Iterable[int]] = ...) -> None: ...

class ShardLoad(_message.Message):
    __slots__ = ("shard", "term", "fires_per_second", "open_runs", "waiting_runs", "watermark_lag_ms", "hottest")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RUNS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    HOTTEST_FIELD_NUMBER: _ClassVar[int]
    shard: int
    term: int
    fires_per_second: float
    open_runs: int
    waiting_runs: int
    watermark_lag_ms: int
    hottest: _containers.RepeatedCompositeFieldContainer[HotJob]
    def __init__(self, shard: _Optional[int] = ..., term: _Optional[int] = ..., fires_per_second: _Optional[float] = ..., open_runs: _Optional[int] = ..., waiting_runs: _Optional[int] = ..., watermark_lag_ms: _Optional[int] = ..., hottest: _Optional[_Iterable[_Union[HotJob, _Mapping]]] = ...) -> None: ...

class HotJob(_message.Message):
    __slots__ = ("job_id", "fires_per_second")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    fires_per_second: float
    def __init__(self, job_id: _Optional[str] = ..., fires_per_second: _Optional[float] = ...) -> None: ...

class Ailment(_message.Message):
    __slots__ = ("kind", "age_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    age_ms: int
    def __init__(self, kind: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class LeaderReply(_message.Message):
    __slots__ = ("plan_version",)
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    plan_version: int
    def __init__(self, plan_version: _Optional[int] = ...) -> None: ...

class HintRequest(_message.Message):
    __slots__ = ("landed_shards", "changed_shards", "canceled_run_ids")
    LANDED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    CANCELED_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    landed_shards: _containers.RepeatedScalarFieldContainer[int]
    changed_shards: _containers.RepeatedScalarFieldContainer[int]
    canceled_run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, landed_shards: _Optional[_Iterable[int]] = ..., changed_shards: _Optional[_Iterable[int]] = ..., canceled_run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class HintReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
