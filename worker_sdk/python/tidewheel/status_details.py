"""Reads google.rpc.BadRequest and ErrorInfo out of the `grpc-status-details-bin` trailer. Called by failover.py.

The trailer is a serialised google.rpc.Status. Neither grpcio-status nor googleapis-common-protos is imported: they pin
protobuf ranges of their own, and a second definition of google/rpc/status.proto in the process-wide descriptor pool
would collide with theirs wherever a user has them installed. Four messages with string fields only need a reader of
two wire types:

    Status      3: repeated google.protobuf.Any details
    Any         1: string type_url, 2: bytes value
    BadRequest  1: repeated FieldViolation {1: string field, 2: string description}
    ErrorInfo   1: string reason
"""

from __future__ import annotations

from collections.abc import Iterator

from tidewheel.errors import FieldViolation

TRAILER = "grpc-status-details-bin"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def field_violations(status: bytes) -> tuple[FieldViolation, ...]:
    """The violations of every BadRequest in a serialised google.rpc.Status; none if the bytes cannot be read."""
    try:
        return tuple(_violations(status))
    except (IndexError, ValueError):
        return ()


def _violations(status: bytes) -> Iterator[FieldViolation]:
    for detail in _byte_fields(status, 3):
        if not _text(detail, 1).endswith("/google.rpc.BadRequest"):
            continue
        for bad_request in _byte_fields(detail, 2):
            for violation in _byte_fields(bad_request, 1):
                yield FieldViolation(_text(violation, 1), _text(violation, 2))


def error_reason(status: bytes) -> str:
    """The reason of the ErrorInfo in a serialised google.rpc.Status; empty if there is none."""
    try:
        for detail in _byte_fields(status, 3):
            if _text(detail, 1).endswith("/google.rpc.ErrorInfo"):
                return "".join(_text(info, 1) for info in _byte_fields(detail, 2))
    except (IndexError, ValueError):
        pass
    return ""


def _text(message: bytes, number: int) -> str:
    return b"".join(list(_byte_fields(message, number))[-1:]).decode("utf-8", "replace")


def _byte_fields(message: bytes, number: int) -> Iterator[bytes]:
    """The values of the length-delimited field `number`, in order; other fields are stepped over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, at = _varint(message, at)
        elif wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
        elif wire_type == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("truncated field")
            if tag >> 3 == number:
                yield message[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {wire_type}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The base-128 number at `at`, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
