from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MoveState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOVE_STATE_UNSPECIFIED: _ClassVar[MoveState]
    MOVE_STATE_PENDING: _ClassVar[MoveState]
    MOVE_STATE_ORDERED: _ClassVar[MoveState]
    MOVE_STATE_SPLIT: _ClassVar[MoveState]
    MOVE_STATE_COMPLETED: _ClassVar[MoveState]
    MOVE_STATE_ROLLED_BACK: _ClassVar[MoveState]

class MoveCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOVE_CAUSE_UNSPECIFIED: _ClassVar[MoveCause]
    MOVE_CAUSE_OPERATOR: _ClassVar[MoveCause]
    MOVE_CAUSE_REBALANCE: _ClassVar[MoveCause]
    MOVE_CAUSE_DRAIN: _ClassVar[MoveCause]

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_DUE_BELOW_WATERMARK: _ClassVar[FindingKind]
    FINDING_KIND_TERMS_DO_NOT_TILE: _ClassVar[FindingKind]
    FINDING_KIND_RUN_NOT_STANDING: _ClassVar[FindingKind]
    FINDING_KIND_RUN_WITHOUT_HOME: _ClassVar[FindingKind]
    FINDING_KIND_LEASE_OVERRUN: _ClassVar[FindingKind]
    FINDING_KIND_RETRY_WITHOUT_DUE_ROW: _ClassVar[FindingKind]
    FINDING_KIND_LOST_CHAIN: _ClassVar[FindingKind]
    FINDING_KIND_LOST_CANCEL: _ClassVar[FindingKind]
    FINDING_KIND_FORGOTTEN_RUN: _ClassVar[FindingKind]
    FINDING_KIND_FROZEN_SHARD: _ClassVar[FindingKind]

class PlacementRuleKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACEMENT_RULE_KIND_UNSPECIFIED: _ClassVar[PlacementRuleKind]
    PLACEMENT_RULE_KIND_FREEZE_ALL: _ClassVar[PlacementRuleKind]
    PLACEMENT_RULE_KIND_FREEZE_SHARD: _ClassVar[PlacementRuleKind]
    PLACEMENT_RULE_KIND_DRAIN_DISPATCHER: _ClassVar[PlacementRuleKind]

class TermState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERM_STATE_UNSPECIFIED: _ClassVar[TermState]
    TERM_STATE_OPEN: _ClassVar[TermState]
    TERM_STATE_CLOSED: _ClassVar[TermState]
    TERM_STATE_VOID: _ClassVar[TermState]
MOVE_STATE_UNSPECIFIED: MoveState
MOVE_STATE_PENDING: MoveState
MOVE_STATE_ORDERED: MoveState
MOVE_STATE_SPLIT: MoveState
MOVE_STATE_COMPLETED: MoveState
MOVE_STATE_ROLLED_BACK: MoveState
MOVE_CAUSE_UNSPECIFIED: MoveCause
MOVE_CAUSE_OPERATOR: MoveCause
MOVE_CAUSE_REBALANCE: MoveCause
MOVE_CAUSE_DRAIN: MoveCause
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_DUE_BELOW_WATERMARK: FindingKind
FINDING_KIND_TERMS_DO_NOT_TILE: FindingKind
FINDING_KIND_RUN_NOT_STANDING: FindingKind
FINDING_KIND_RUN_WITHOUT_HOME: FindingKind
FINDING_KIND_LEASE_OVERRUN: FindingKind
FINDING_KIND_RETRY_WITHOUT_DUE_ROW: FindingKind
FINDING_KIND_LOST_CHAIN: FindingKind
FINDING_KIND_LOST_CANCEL: FindingKind
FINDING_KIND_FORGOTTEN_RUN: FindingKind
FINDING_KIND_FROZEN_SHARD: FindingKind
PLACEMENT_RULE_KIND_UNSPECIFIED: PlacementRuleKind
PLACEMENT_RULE_KIND_FREEZE_ALL: PlacementRuleKind
PLACEMENT_RULE_KIND_FREEZE_SHARD: PlacementRuleKind
PLACEMENT_RULE_KIND_DRAIN_DISPATCHER: PlacementRuleKind
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
    __slots__ = ("dispatcher_id", "address", "metrics_address", "start_time", "shards", "fires_per_second", "open_runs", "waiting_runs", "alive", "weight", "zone", "draining", "cpu", "ailments")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RUNS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    AILMENTS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    address: str
    metrics_address: str
    start_time: _timestamp_pb2.Timestamp
    shards: int
    fires_per_second: float
    open_runs: int
    waiting_runs: int
    alive: bool
    weight: float
    zone: str
    draining: bool
    cpu: float
    ailments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dispatcher_id: _Optional[str] = ..., address: _Optional[str] = ..., metrics_address: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., shards: _Optional[int] = ..., fires_per_second: _Optional[float] = ..., open_runs: _Optional[int] = ..., waiting_runs: _Optional[int] = ..., alive: bool = ..., weight: _Optional[float] = ..., zone: _Optional[str] = ..., draining: bool = ..., cpu: _Optional[float] = ..., ailments: _Optional[_Iterable[str]] = ...) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: int
    def __init__(self, shard: _Optional[int] = ...) -> None: ...

class ListShardsResponse(_message.Message):
    __slots__ = ("shards", "loads_known")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    LOADS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    loads_known: bool
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., loads_known: bool = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("shard", "dispatcher_id", "term", "watermark", "floor", "watermark_lag_s", "terms", "fires_per_second", "open_runs", "waiting_runs", "hottest_jobs", "move", "frozen")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_LAG_S_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RUNS_FIELD_NUMBER: _ClassVar[int]
    HOTTEST_JOBS_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    shard: int
    dispatcher_id: str
    term: int
    watermark: int
    floor: int
    watermark_lag_s: float
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    fires_per_second: float
    open_runs: int
    waiting_runs: int
    hottest_jobs: _containers.RepeatedCompositeFieldContainer[HotJob]
    move: Move
    frozen: bool
    def __init__(self, shard: _Optional[int] = ..., dispatcher_id: _Optional[str] = ..., term: _Optional[int] = ..., watermark: _Optional[int] = ..., floor: _Optional[int] = ..., watermark_lag_s: _Optional[float] = ..., terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ..., fires_per_second: _Optional[float] = ..., open_runs: _Optional[int] = ..., waiting_runs: _Optional[int] = ..., hottest_jobs: _Optional[_Iterable[_Union[HotJob, _Mapping]]] = ..., move: _Optional[_Union[Move, _Mapping]] = ..., frozen: bool = ...) -> None: ...

class HotJob(_message.Message):
    __slots__ = ("job_id", "namespace", "name", "fires_per_second")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIRES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    namespace: str
    name: str
    fires_per_second: float
    def __init__(self, job_id: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., fires_per_second: _Optional[float] = ...) -> None: ...

class MoveShardsRequest(_message.Message):
    __slots__ = ("shards", "dispatcher_id", "reason", "request_id")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_id: str
    reason: str
    request_id: str
    def __init__(self, shards: _Optional[_Iterable[int]] = ..., dispatcher_id: _Optional[str] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class MoveShardsResponse(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("move_id", "shard", "from_dispatcher_id", "from_term", "to_dispatcher_id", "cause", "state", "boundary", "new_term", "author", "reason", "request_time", "order_time", "split_time", "end_time", "error")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FROM_DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TERM_FIELD_NUMBER: _ClassVar[int]
    TO_DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    NEW_TERM_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDER_TIME_FIELD_NUMBER: _ClassVar[int]
    SPLIT_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    move_id: str
    shard: int
    from_dispatcher_id: str
    from_term: int
    to_dispatcher_id: str
    cause: MoveCause
    state: MoveState
    boundary: int
    new_term: int
    author: str
    reason: str
    request_time: _timestamp_pb2.Timestamp
    order_time: _timestamp_pb2.Timestamp
    split_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    error: str
    def __init__(self, move_id: _Optional[str] = ..., shard: _Optional[int] = ..., from_dispatcher_id: _Optional[str] = ..., from_term: _Optional[int] = ..., to_dispatcher_id: _Optional[str] = ..., cause: _Optional[_Union[MoveCause, str]] = ..., state: _Optional[_Union[MoveState, str]] = ..., boundary: _Optional[int] = ..., new_term: _Optional[int] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., request_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., order_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., split_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class GetMoveRequest(_message.Message):
    __slots__ = ("move_id",)
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    move_id: str
    def __init__(self, move_id: _Optional[str] = ...) -> None: ...

class ListMovesRequest(_message.Message):
    __slots__ = ("shard", "open_only", "page_size", "page_token")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    shard: int
    open_only: bool
    page_size: int
    page_token: str
    def __init__(self, shard: _Optional[int] = ..., open_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMovesResponse(_message.Message):
    __slots__ = ("moves", "next_page_token")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    next_page_token: str
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PlanRebalanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanRebalanceResponse(_message.Message):
    __slots__ = ("moves", "dispatchers", "loads_known", "held_back")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    DISPATCHERS_FIELD_NUMBER: _ClassVar[int]
    LOADS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[PlannedMove]
    dispatchers: _containers.RepeatedCompositeFieldContainer[ExpectedLoad]
    loads_known: bool
    held_back: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, moves: _Optional[_Iterable[_Union[PlannedMove, _Mapping]]] = ..., dispatchers: _Optional[_Iterable[_Union[ExpectedLoad, _Mapping]]] = ..., loads_known: bool = ..., held_back: _Optional[_Iterable[str]] = ...) -> None: ...

class PlannedMove(_message.Message):
    __slots__ = ("shard", "from_dispatcher_id", "to_dispatcher_id", "load")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FROM_DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    TO_DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    shard: int
    from_dispatcher_id: str
    to_dispatcher_id: str
    load: float
    def __init__(self, shard: _Optional[int] = ..., from_dispatcher_id: _Optional[str] = ..., to_dispatcher_id: _Optional[str] = ..., load: _Optional[float] = ...) -> None: ...

class ExpectedLoad(_message.Message):
    __slots__ = ("dispatcher_id", "shards_before", "shards_after", "load_before", "load_after", "fair_load")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_AFTER_FIELD_NUMBER: _ClassVar[int]
    LOAD_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LOAD_AFTER_FIELD_NUMBER: _ClassVar[int]
    FAIR_LOAD_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    shards_before: int
    shards_after: int
    load_before: float
    load_after: float
    fair_load: float
    def __init__(self, dispatcher_id: _Optional[str] = ..., shards_before: _Optional[int] = ..., shards_after: _Optional[int] = ..., load_before: _Optional[float] = ..., load_after: _Optional[float] = ..., fair_load: _Optional[float] = ...) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("reason", "request_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    request_id: str
    def __init__(self, reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DrainDispatcherRequest(_message.Message):
    __slots__ = ("dispatcher_id", "reason", "request_id")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    reason: str
    request_id: str
    def __init__(self, dispatcher_id: _Optional[str] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UndrainDispatcherRequest(_message.Message):
    __slots__ = ("dispatcher_id", "reason", "request_id")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    reason: str
    request_id: str
    def __init__(self, dispatcher_id: _Optional[str] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class FreezeShardsRequest(_message.Message):
    __slots__ = ("shard", "reason", "request_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    shard: int
    reason: str
    request_id: str
    def __init__(self, shard: _Optional[int] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UnfreezeShardsRequest(_message.Message):
    __slots__ = ("shard", "reason", "request_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    shard: int
    reason: str
    request_id: str
    def __init__(self, shard: _Optional[int] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ListPlacementRulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPlacementRulesResponse(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[PlacementRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[PlacementRule, _Mapping]]] = ...) -> None: ...

class ReconcileRequest(_message.Message):
    __slots__ = ("dry_run", "shards", "reason", "request_id", "page_token")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    shards: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    request_id: str
    page_token: str
    def __init__(self, dry_run: bool = ..., shards: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class ReconcileResponse(_message.Message):
    __slots__ = ("findings", "next_page_token")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    next_page_token: str
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "shard", "subject", "detail", "since", "repaired", "how")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    shard: int
    subject: str
    detail: str
    since: _timestamp_pb2.Timestamp
    repaired: bool
    how: str
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., shard: _Optional[int] = ..., subject: _Optional[str] = ..., detail: _Optional[str] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., repaired: bool = ..., how: _Optional[str] = ...) -> None: ...

class PlacementRule(_message.Message):
    __slots__ = ("kind", "shard", "dispatcher_id", "author", "reason", "create_time")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    kind: PlacementRuleKind
    shard: int
    dispatcher_id: str
    author: str
    reason: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[PlacementRuleKind, str]] = ..., shard: _Optional[int] = ..., dispatcher_id: _Optional[str] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

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
