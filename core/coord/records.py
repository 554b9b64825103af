"""What etcd holds and answers, as plain frozen values: the only shapes in which it is seen outside the wire module.

Keys are text (bytes that are not UTF-8 survive as surrogate escapes), values are bytes, revisions and lease ids are
etcd's own integers. Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as it stood at one revision; `lease` is 0 where none is attached."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class StorePoint:
    """Which store answered, and where it stood: how a restored or emptied etcd is told from the one before."""

    cluster_id: int
    revision: int
    raft_term: int


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys as of `at.revision`, in key order. `count` is the number in the whole range."""

    at: StorePoint
    kvs: tuple[KeyValue, ...]
    count: int

    @property
    def first(self) -> KeyValue | None:
        """The only key of a single-key read, or None where it is absent."""
        return self.kvs[0] if self.kvs else None


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A fresh lease; the server may have raised the TTL that was asked for."""

    lease: int
    ttl_s: int


class Field(Enum):
    """What a comparison looks at. An absent key has 0 for every number and fails any comparison of its value."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"
    LEASE = "lease"


class Relation(Enum):
    """How a comparison relates what is stored to the operand."""

    EQUAL = "equal"
    GREATER = "greater"
    LESS = "less"
    NOT_EQUAL = "not_equal"


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds when the field of `key` stands in `relation` to `operand` (bytes for VALUE, an integer otherwise)."""

    key: str
    field: Field
    operand: int | bytes
    relation: Relation = Relation.EQUAL

    def __post_init__(self) -> None:
        if isinstance(self.operand, bytes) != (self.field is Field.VALUE):
            raise TypeError(f"operand of {self.field.name} has the wrong type: {self.operand!r}")


@dataclass(frozen=True, slots=True)
class Put:
    """Write `value` under `key`, attached to `lease` (0: to none)."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove `key`, or every key that starts with it."""

    key: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Get:
    """Read `key`, or every key that starts with it."""

    key: str
    prefix: bool = False


Op = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`reads` holds the answers of the Gets of the branch that ran, in their order."""

    at: StorePoint
    succeeded: bool
    reads: tuple[RangeResult, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. For a deletion `kv` has an empty value, and its mod_revision is the revision of the deletion."""

    kv: KeyValue
    deleted: bool


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """What a watch yields. No events: a sign of life, or, with `resumed`, the first after the stream was reopened."""

    at: StorePoint
    events: tuple[Event, ...] = ()
    resumed: bool = False
