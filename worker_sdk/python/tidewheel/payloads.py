"""Plain Python values to bytes with a media type, and back. Called for payloads, results and progress."""

from __future__ import annotations

import json

BYTES_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"


def encode(value: object) -> tuple[bytes, str]:
    """Bytes as they are, text as UTF-8, everything else as JSON; None is nothing, with no type.

    TypeError or ValueError if the value has no JSON form.
    """
    if value is None:
        return b"", ""
    if isinstance(value, bytes):
        return value, BYTES_TYPE
    if isinstance(value, str):
        return value.encode(), TEXT_TYPE
    if isinstance(value, bytearray | memoryview):
        return bytes(value), BYTES_TYPE
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(), JSON_TYPE
