"""The one table from errors to gRPC codes, with google.rpc details. Pure.

A caller learns the code, one line, the fields at fault and whether to come again; never a trace, and never more than
fits into a trailer.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from controlplane.api.violations import BadRequest
from core.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    OutcomeUnknown,
    RequestReused,
    StaleCount,
    StaleEtag,
    TidewheelError,
    Unavailable,
)

DETAILS_TRAILER = "grpc-status-details-bin"
_DOMAIN = "tidewheel"
# Of the 8 KiB that a peer takes as metadata.
_MESSAGE_CHARS = 500
_RULE_CHARS = 300
_FIELD_CHARS = 120
_SHOWN_VIOLATIONS = 10
_RETRY_AFTER_MS = 200


class Overloaded(Unavailable):
    """Too many calls are under way; this one was not begun."""


# The first class that fits decides. DEADLINE_EXCEEDED is the code whose meaning includes "it may have happened": the
# caller repeats the call with the same request id.
_TABLE: tuple[tuple[type[TidewheelError], grpc.StatusCode, str], ...] = (
    (BadRequest, grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
    (NotFound, grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS"),
    (RequestReused, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_REUSED"),
    (StaleEtag, grpc.StatusCode.ABORTED, "STALE_ETAG"),
    (StaleCount, grpc.StatusCode.ABORTED, "STALE_COUNT"),
    (Conflict, grpc.StatusCode.FAILED_PRECONDITION, "CONFLICT"),
    (Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"),
    (Unavailable, grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
    (OutcomeUnknown, grpc.StatusCode.DEADLINE_EXCEEDED, "OUTCOME_UNKNOWN"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What goes out for an error; `details` is a serialized google.rpc.Status."""

    code: grpc.StatusCode
    message: str
    details: bytes


class RefusedByLeader(TidewheelError):
    """The leader refused a call that was forwarded to it: the caller gets its words."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refusal_of(error: TidewheelError) -> Refusal | None:
    """What a caller is told of `error`; None when it is not the caller's business what broke."""
    if isinstance(error, RefusedByLeader):
        return error.refusal
    for kind, code, reason in _TABLE:
        if isinstance(error, kind):
            return _refusal(code, _cut(str(error), _MESSAGE_CHARS), _details(error, reason))
    return None


def internal_refusal(reference: str) -> Refusal:
    """For a defect of ours: the trace is in the log under `reference`."""
    return _refusal(grpc.StatusCode.INTERNAL, f"internal error; the server's log says more under {reference}", [])


def _details(error: TidewheelError, reason: str) -> list[Message]:
    info = error_details_pb2.ErrorInfo(reason=reason, domain=_DOMAIN)
    made: list[Message] = [info]
    if isinstance(error, BadRequest | Invalid):
        faults = error.violations if isinstance(error, BadRequest) else (error,)
        made.append(_bad_request(faults[:_SHOWN_VIOLATIONS]))
    elif isinstance(error, NotFound):
        info.metadata.update({"kind": error.kind, "name": _cut(error.name, _FIELD_CHARS)})
    elif isinstance(error, Conflict) and error.field:
        info.metadata["field"] = error.field
    elif isinstance(error, Unavailable | OutcomeUnknown):
        made.append(error_details_pb2.RetryInfo(retry_delay=Duration(nanos=_RETRY_AFTER_MS * 1_000_000)))
    return made


def _bad_request(faults: tuple[Invalid, ...]) -> Message:
    violation = error_details_pb2.BadRequest.FieldViolation
    message: Message = error_details_pb2.BadRequest(
        field_violations=[
            violation(field=_cut(fault.field, _FIELD_CHARS), description=_cut(fault.rule, _RULE_CHARS))
            for fault in faults
        ]
    )
    return message


def _refusal(code: grpc.StatusCode, message: str, details: list[Message]) -> Refusal:
    number: int = code.value[0]
    packed = []
    for each in details:
        wrapped = AnyMessage()
        wrapped.Pack(each)
        packed.append(wrapped)
    status = status_pb2.Status(code=number, message=message, details=packed)
    return Refusal(code, message, status.SerializeToString())


def _cut(text: str, limit: int) -> str:
    # A lone surrogate, which a string read from elsewhere may hold, cannot be sent.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
