"""What etcd's failures mean to a caller: each gRPC status becomes one error, named by what to do next.

The one question that matters for a write is whether it may have happened. Only answers known to be given before
anything was proposed count as "certainly not applied"; whatever is not on that list leaves the outcome unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

import grpc

from core.errors import Conflict, Invalid, TidewheelError, Unavailable


class AccessDenied(TidewheelError):
    """Etcd refuses this user, or wants one. Only another configuration, here or there, changes that."""


class LeaseGone(Conflict):
    """There is no such lease any more: it expired, was revoked, or the store was replaced."""


class LeadershipLost(Conflict):
    """The election key is no longer ours: whatever was to be written was refused. Stop leading at once."""


class Compacted(TidewheelError):
    """The history asked for is gone: list again and watch from there. `revision` is the oldest left (0: not told)."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"history before revision {revision} was compacted")
        self.revision = revision


class StoreReplaced(TidewheelError):
    """Another store answers (restored from a backup, or emptied): nothing remembered about the old one holds."""


class Verdict(Enum):
    """What a failed try allows."""

    NOT_APPLIED = auto()  # certainly nothing happened; another try, elsewhere, is allowed for anything
    ANSWER_LOST = auto()  # a write may have happened; only reads are tried again
    TOKEN = auto()  # certainly nothing happened; authenticate again, then once more
    FINAL = auto()  # the server decided; `error` is for the caller


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed try, judged. `reason` is one line for a log."""

    verdict: Verdict
    reason: str
    error: TidewheelError | None = None


# Said by grpc before it has a connection, or by etcd before it proposes anything.
_NEVER_PROPOSED = re.compile(
    r"failed to connect to all addresses|DNS resolution failed|etcdserver: no leader|etcdserver: too many requests"
)
_TOKEN = re.compile(r"invalid auth token|revision of auth store is old|user name is empty")
_ANSWER_LOST = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DATA_LOSS,
}


def judge(code: grpc.StatusCode, details: str) -> Fault:
    """Name the consequence of a failed call."""
    reason = f"{code.name}: {details}" if details else code.name
    if _TOKEN.search(details):
        return Fault(Verdict.TOKEN, reason, AccessDenied(reason))
    if _NEVER_PROPOSED.search(details):
        return Fault(Verdict.NOT_APPLIED, reason)
    if code in _ANSWER_LOST:
        return Fault(Verdict.ANSWER_LOST, reason)
    return Fault(Verdict.FINAL, reason, _refusal(code, details, reason))


def judge_error(error: grpc.aio.AioRpcError) -> Fault:
    """Name the consequence of a failed call."""
    return judge(error.code(), error.details() or "")


def _refusal(code: grpc.StatusCode, details: str, reason: str) -> TidewheelError:
    if "lease not found" in details:
        return LeaseGone(details)
    if "has been compacted" in details:
        return Compacted(0)
    if "authentication failed" in details:
        return AccessDenied(reason)
    match code:
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            return AccessDenied(reason)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return Invalid("etcd", reason)
        case grpc.StatusCode.RESOURCE_EXHAUSTED | grpc.StatusCode.UNIMPLEMENTED:
            return Unavailable(f"etcd: {reason}")
        case _:
            return Conflict(f"etcd: {reason}")
