"""Translation between our records and etcd's bytes, and the paths of its calls.

The only module that touches the generated messages besides the callers of its functions in this room. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from core.coord import etcd_pb2 as pb
from core.coord import records

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Request, Response]):
    """One call of etcd: its path and its codec."""

    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], Response]


def _rpc(path: str, request: type[Request], response: type[Response]) -> Rpc[Request, Response]:
    return Rpc(path=path, encode=request.SerializeToString, decode=response.FromString)


RANGE = _rpc("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
PUT = _rpc("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
DELETE = _rpc("/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
TXN = _rpc("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = _rpc("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = _rpc("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
GRANT = _rpc("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = _rpc("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = _rpc("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
TIME_TO_LIVE = _rpc("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse)
AUTHENTICATE = _rpc("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
STATUS = _rpc("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)


class _Headed(Protocol):
    @property
    def header(self) -> pb.ResponseHeader: ...


def key_bytes(key: str) -> bytes:
    """The key as etcd stores it."""
    return key.encode("utf-8", "surrogateescape")


def key_text(key: bytes) -> str:
    """The key as we name it; never fails, whatever somebody stored."""
    return key.decode("utf-8", "surrogateescape")


def prefix_end(prefix: bytes) -> bytes:
    """The first key after every key that starts with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


def point(response: _Headed) -> records.StorePoint:
    """Which store answered."""
    header = response.header
    return records.StorePoint(cluster_id=header.cluster_id, revision=header.revision, raft_term=header.raft_term)


def key_value(kv: pb.KeyValue) -> records.KeyValue:
    """One key."""
    return records.KeyValue(
        key=key_text(kv.key),
        value=kv.value,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        version=kv.version,
        lease=kv.lease,
    )


def range_request(key: str, *, prefix: bool, count_only: bool = False) -> pb.RangeRequest:
    """A linearizable read of one key or of a prefix."""
    raw = key_bytes(key)
    return pb.RangeRequest(key=raw, range_end=prefix_end(raw) if prefix else b"", count_only=count_only)


def range_result(response: pb.RangeResponse, at: records.StorePoint | None = None) -> records.RangeResult:
    """The answer to a read; inside a transaction the header is that of the transaction."""
    return records.RangeResult(
        at=at or point(response), kvs=tuple(key_value(kv) for kv in response.kvs), count=response.count
    )


def delete_request(op: records.Delete) -> pb.DeleteRangeRequest:
    """The removal of one key or of a prefix."""
    raw = key_bytes(op.key)
    return pb.DeleteRangeRequest(key=raw, range_end=prefix_end(raw) if op.prefix else b"")


def put_request(op: records.Put) -> pb.PutRequest:
    """The write of one key."""
    return pb.PutRequest(key=key_bytes(op.key), value=op.value, lease=op.lease)


def txn_request(
    compares: Iterable[records.Compare], then: Iterable[records.Op], otherwise: Iterable[records.Op]
) -> pb.TxnRequest:
    """A guarded transaction."""
    return pb.TxnRequest(
        compare=[_compare(compare) for compare in compares],
        success=[_op(op) for op in then],
        failure=[_op(op) for op in otherwise],
    )


def txn_result(response: pb.TxnResponse) -> records.TxnResult:
    """The answer to a transaction."""
    at = point(response)
    reads = (op.response_range for op in response.responses if op.WhichOneof("response") == "response_range")
    return records.TxnResult(at=at, succeeded=response.succeeded, reads=tuple(range_result(r, at) for r in reads))


def watch_create(prefix: str, start_revision: int) -> pb.WatchRequest:
    """A watch over a prefix: fragmented, because one revision may hold more than a message should."""
    raw = key_bytes(prefix)
    create = pb.WatchCreateRequest(
        key=raw, range_end=prefix_end(raw), start_revision=start_revision, progress_notify=True, fragment=True
    )
    return pb.WatchRequest(create_request=create)


def watch_progress() -> pb.WatchRequest:
    """Asks the server for a sign of life."""
    return pb.WatchRequest(progress_request=pb.WatchProgressRequest())


def events(found: Sequence[pb.Event]) -> tuple[records.Event, ...]:
    """The changes in one answer of a watch."""
    return tuple(records.Event(kv=key_value(e.kv), deleted=e.type == pb.Event.DELETE) for e in found)


_RELATIONS = {
    records.Relation.EQUAL: pb.Compare.EQUAL,
    records.Relation.GREATER: pb.Compare.GREATER,
    records.Relation.LESS: pb.Compare.LESS,
    records.Relation.NOT_EQUAL: pb.Compare.NOT_EQUAL,
}
_TARGETS = {
    records.Field.VERSION: pb.Compare.VERSION,
    records.Field.CREATE_REVISION: pb.Compare.CREATE,
    records.Field.MOD_REVISION: pb.Compare.MOD,
    records.Field.VALUE: pb.Compare.VALUE,
    records.Field.LEASE: pb.Compare.LEASE,
}


def _compare(compare: records.Compare) -> pb.Compare:
    message = pb.Compare(
        key=key_bytes(compare.key), result=_RELATIONS[compare.relation], target=_TARGETS[compare.field]
    )
    setattr(message, compare.field.value, compare.operand)
    return message


def _op(op: records.Op) -> pb.RequestOp:
    match op:
        case records.Put():
            return pb.RequestOp(request_put=put_request(op))
        case records.Delete():
            return pb.RequestOp(request_delete_range=delete_request(op))
        case records.Get():
            return pb.RequestOp(request_range=range_request(op.key, prefix=op.prefix))
