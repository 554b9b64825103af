from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TermState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERM_STATE_UNSPECIFIED: _ClassVar[TermState]
    TERM_STATE_OPEN: _ClassVar[TermState]
    TERM_STATE_CLOSED: _ClassVar[TermState]
    TERM_STATE_VOID: _ClassVar[TermState]
TERM_STATE_UNSPECIFIED: TermState
TERM_STATE_OPEN: TermState
TERM_STATE_CLOSED: TermState
TERM_STATE_VOID: TermState

class ListDispatchersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDispatchersResponse(_message.Message):
    __slots__ = ("dispatchers",)
    DISPATCHERS_FIELD_NUMBER: _ClassVar[int]
    dispatchers: _containers.RepeatedCompositeFieldContainer[Dispatcher]
    def __init__(self, dispatchers: _Optional[_Iterable[_Union[Dispatcher, _Mapping]]] = ...) -> None: ...

class Dispatcher(_message.Message):
    __slots__ = ("dispatcher_id", "address", "metrics_address", "start_time", "shards", "fires_per_second", "open_runs", "waiting_runs", "alive")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RUNS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    address: str
    metrics_address: str
    start_time: _timestamp_pb2.Timestamp
    shards: int
    fires_per_second: float
    open_runs: int
    waiting_runs: int
    alive: bool
    def __init__(self, dispatcher_id: _Optional[str] = ..., address: _Optional[str] = ..., metrics_address: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., shards: _Optional[int] = ..., fires_per_second: _Optional[float] = ..., open_runs: _Optional[int] = ..., waiting_runs: _Optional[int] = ..., alive: bool = ...) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: int
    def __init__(self, shard: _Optional[int] = ...) -> None: ...

class ListShardsResponse(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("shard", "dispatcher_id", "term", "watermark", "floor", "watermark_lag_s", "terms")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_LAG_S_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    dispatcher_id: str
    term: int
    watermark: int
    floor: int
    watermark_lag_s: float
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    def __init__(self, shard: _Optional[int] = ..., dispatcher_id: _Optional[str] = ..., term: _Optional[int] = ..., watermark: _Optional[int] = ..., floor: _Optional[int] = ..., watermark_lag_s: _Optional[float] = ..., terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("term", "dispatcher_id", "from_bucket", "to_bucket", "state", "open_time", "reason")
    TERM_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_BUCKET_FIELD_NUMBER: _ClassVar[int]
    TO_BUCKET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    term: int
    dispatcher_id: str
    from_bucket: int
    to_bucket: int
    state: TermState
    open_time: _timestamp_pb2.Timestamp
    reason: str
    def __init__(self, term: _Optional[int] = ..., dispatcher_id: _Optional[str] = ..., from_bucket: _Optional[int] = ..., to_bucket: _Optional[int] = ..., state: _Optional[_Union[TermState, str]] = ..., open_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class GetClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("version", "database", "database_isolation", "etcd_version", "tzdata_version", "shard_count", "bucket_width_ms", "leader", "leader_address", "replica", "dispatchers", "owned_shards", "unowned_shards", "problems")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ISOLATION_FIELD_NUMBER: _ClassVar[int]
    ETCD_VERSION_FIELD_NUMBER: _ClassVar[int]
    TZDATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUCKET_WIDTH_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    DISPATCHERS_FIELD_NUMBER: _ClassVar[int]
    OWNED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    version: str
    database: str
    database_isolation: str
    etcd_version: str
    tzdata_version: str
    shard_count: int
    bucket_width_ms: int
    leader: str
    leader_address: str
    replica: str
    dispatchers: int
    owned_shards: int
    unowned_shards: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., database: _Optional[str] = ..., database_isolation: _Optional[str] = ..., etcd_version: _Optional[str] = ..., tzdata_version: _Optional[str] = ..., shard_count: _Optional[int] = ..., bucket_width_ms: _Optional[int] = ..., leader: _Optional[str] = ..., leader_address: _Optional[str] = ..., replica: _Optional[str] = ..., dispatchers: _Optional[int] = ..., owned_shards: _Optional[int] = ..., unowned_shards: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...
