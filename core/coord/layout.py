"""What Tidewheel keeps in etcd: the names of its keys and the documents under them. Pure: no I/O.

    /tidewheel/<cluster>/members/<dispatcher>  Member      on the dispatcher's lease
    /tidewheel/<cluster>/owners/<shard>        Owner       on the owner's lease
    /tidewheel/<cluster>/election/<lease>      LeaderInfo  on the candidate's lease
    /tidewheel/<cluster>/plan                  Plan        one document, written by the leader

Whoever can write to etcd can write nonsense, so reading is strict: a field too many, too few, of another type or out
of range is Invalid, and its reader logs and skips the key. Etcd is advice: nonsense costs a needless move at worst.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from core.errors import Invalid

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ZONE = re.compile(r"[A-Za-z0-9._-]{0,63}")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"[A-Za-z0-9.\[\]:_-]{1,255}:[0-9]{1,5}")
_MAX_INT = 2**63 - 1
_MAX_SHARDS = 2**16
_MAX_DOCUMENT = 8 * 1024
_MAX_PLAN = 1_400_000  # under the 1.5 MiB that etcd takes in a request


@dataclass(frozen=True, slots=True)
class Member:
    """A dispatcher that is alive: where workers reach it (host:port), where its metrics are ("" for nowhere)."""

    dispatcher_id: str
    address: str
    metrics_address: str
    started_us: int
    # Thousandths of the share that a dispatcher of weight 1 gets; where it stands ("" for nowhere named).
    weight_milli: int = 1_000
    zone: str = ""

    def __post_init__(self) -> None:
        _check_int("member.weight_milli", self.weight_milli, 1, 1_000_000)
        if not isinstance(self.zone, str) or not _ZONE.fullmatch(self.zone):
            raise Invalid("member.zone", "must be at most 63 letters, digits, '.', '_' or '-'")
        _check_id("member.dispatcher_id", self.dispatcher_id)
        _check_address("member.address", self.address)
        if self.metrics_address != "":
            _check_address("member.metrics_address", self.metrics_address)
        _check_int("member.started_us", self.started_us, 0, _MAX_INT)


@dataclass(frozen=True, slots=True)
class Owner:
    """A term of a shard that its dispatcher has claimed in SQL, published for readers."""

    shard: int
    term: int
    from_bucket: int
    dispatcher_id: str

    def __post_init__(self) -> None:
        _check_int("owner.shard", self.shard, 0, _MAX_SHARDS - 1)
        _check_int("owner.term", self.term, 1, _MAX_INT)
        _check_int("owner.from_bucket", self.from_bucket, 0, _MAX_INT)
        _check_id("owner.dispatcher_id", self.dispatcher_id)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The leader's order: `dispatcher_id` is to own `shard`, by replacing exactly that term of that owner.

    replaces_term 0 with replaces_owner "" orders the first claim of a shard that never had a term. `seize` orders a
    takeover: claim at once. Without it a live owner's term is split at a bucket boundary, and only if that term was
    opened at least `residency_us` microseconds ago (rule of ownership 17). `move_id` is the planned move that is
    carried out, "" for none.
    """

    shard: int
    dispatcher_id: str
    replaces_term: int
    replaces_owner: str
    seize: bool = False
    residency_us: int = 0
    move_id: str = ""

    def __post_init__(self) -> None:
        if self.move_id != "":
            _check_uuid("assignment.move_id", self.move_id)
        _check_int("assignment.residency_us", self.residency_us, 0, _MAX_INT)
        _check_int("assignment.shard", self.shard, 0, _MAX_SHARDS - 1)
        _check_id("assignment.dispatcher_id", self.dispatcher_id)
        _check_int("assignment.replaces_term", self.replaces_term, 0, _MAX_INT)
        if self.replaces_owner != "":
            _check_id("assignment.replaces_owner", self.replaces_owner)
        if not isinstance(self.seize, bool):
            raise Invalid("assignment.seize", "must be true or false")

    @property
    def planned_move(self) -> UUID | None:
        """The id of the planned move that is carried out."""
        return UUID(self.move_id) if self.move_id else None


@dataclass(frozen=True, slots=True)
class Plan:
    """Who should own what. `version` grows by every plan that is written; each shard stands in it at most once."""

    version: int
    assignments: tuple[Assignment, ...]

    def __post_init__(self) -> None:
        _check_int("plan.version", self.version, 1, _MAX_INT)
        if len({each.shard for each in self.assignments}) < len(self.assignments):
            raise Invalid("plan.assignments", "a shard is assigned twice")

    @property
    def by_shard(self) -> dict[int, Assignment]:
        """The order for each shard."""
        return {each.shard: each for each in self.assignments}


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The control plane replica that leads, and where it serves (host:port)."""

    replica_id: str
    address: str

    def __post_init__(self) -> None:
        _check_id("leader.replica_id", self.replica_id)
        _check_address("leader.address", self.address)


Document = Member | Owner | LeaderInfo | Plan


class Layout:
    """The key names of one cluster."""

    def __init__(self, cluster: str) -> None:
        if not _CLUSTER.fullmatch(cluster):
            raise Invalid("cluster", "must be 1 to 63 of a-z, 0-9 and -, not starting with -")
        self.prefix = f"/tidewheel/{cluster}/"
        self.members = f"{self.prefix}members/"
        self.owners = f"{self.prefix}owners/"
        self.election = f"{self.prefix}election/"
        self.plan = f"{self.prefix}plan"

    def member(self, dispatcher_id: str) -> str:
        """The key of a dispatcher."""
        _check_id("dispatcher_id", dispatcher_id)
        return self.members + dispatcher_id

    def owner(self, shard: int) -> str:
        """The key of a shard's owner."""
        _check_int("shard", shard, 0, _MAX_SHARDS - 1)
        return f"{self.owners}{shard}"

    def read(self, key: str, value: bytes) -> Document:
        """The document under a key of this cluster; raises Invalid when it is not what its key says."""
        if key.startswith(self.members):
            member = decode_member(value)
            _check_named(key, self.member(member.dispatcher_id))
            return member
        if key.startswith(self.owners):
            owner = decode_owner(value)
            _check_named(key, self.owner(owner.shard))
            return owner
        if key.startswith(self.election):
            return decode_leader(value)
        if key == self.plan:
            return decode_plan(value)
        raise Invalid("key", f"{key!r} is not a key of this cluster")


def encode(document: Document) -> bytes:
    """The document as compact JSON, the same bytes for the same document."""
    body = {field.name: getattr(document, field.name) for field in fields(document)}
    if isinstance(document, Plan):
        body["assignments"] = [_as_dict(each) for each in document.assignments]
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()
    if len(data) > (_MAX_PLAN if isinstance(document, Plan) else _MAX_DOCUMENT):
        raise Invalid(type(document).__name__.lower(), f"is {len(data)} bytes as JSON, more than etcd should hold")
    return data


def decode_member(value: bytes) -> Member:
    """Read a Member; raises Invalid."""
    return Member(**_object("member", value, Member))


def decode_owner(value: bytes) -> Owner:
    """Read an Owner; raises Invalid."""
    return Owner(**_object("owner", value, Owner))


def decode_leader(value: bytes) -> LeaderInfo:
    """Read a LeaderInfo; raises Invalid."""
    return LeaderInfo(**_object("leader", value, LeaderInfo))


def decode_plan(value: bytes) -> Plan:
    """Read a Plan; raises Invalid."""
    body = _object("plan", value, Plan, limit=_MAX_PLAN)
    listed = body["assignments"]
    if not isinstance(listed, list):
        raise Invalid("plan.assignments", "must be a list")
    made = (Assignment(**_exactly("assignment", each, Assignment)) for each in listed)
    return Plan(version=body["version"], assignments=tuple(made))


def _as_dict(assignment: Assignment) -> dict[str, object]:
    return {field.name: getattr(assignment, field.name) for field in fields(assignment)}


def _object(name: str, value: bytes, shape: type[Any], *, limit: int = _MAX_DOCUMENT) -> dict[str, Any]:
    if len(value) > limit:
        raise Invalid(name, f"is {len(value)} bytes, more than {limit}")
    try:
        found = json.loads(value.decode(), object_pairs_hook=_without_repeats(name))
    except (ValueError, RecursionError):
        raise Invalid(name, "is not JSON in UTF-8") from None
    return _exactly(name, found, shape)


def _without_repeats(name: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise Invalid(name, "names a field twice")
        return made

    return build


def _exactly(name: str, found: object, shape: type[Any]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Invalid(name, "must be a JSON object")
    wanted = {field.name for field in fields(shape)}
    if found.keys() != wanted:
        raise Invalid(name, f"must have exactly the fields {', '.join(sorted(wanted))}")
    return found


def _check_named(key: str, expected: str) -> None:
    if key != expected:
        raise Invalid("key", f"{key!r} holds what belongs under {expected!r}")


def _check_id(field: str, value: object) -> None:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid(field, "must be 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit")


def _check_uuid(field: str, value: object) -> None:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise Invalid(field, "must be a UUID in lower case")


def _check_address(field: str, value: object) -> None:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value) or int(value.rpartition(":")[2]) > 65535:
        raise Invalid(field, "must be host:port")


def _check_int(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Invalid(field, f"must be an integer from {low} to {high}")
