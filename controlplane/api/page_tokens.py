"""Page tokens: opaque to callers, valid only for the listing that gave them. Pure.

A token is URL-safe base64 of a version, a digest over the method, the namespace and every filter, and the key after
which the next page begins. It is not a secret and not a right: a forged one shows nothing that a listing would not.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import blake2b

from core.errors import Invalid

_VERSION = b"\x01"
_DIGEST_BYTES = 12
_MAX_CHARS = 1024
_FIELD = "page_token"

Key = list[str | int]


def encode(listing: Sequence[object], key: Key) -> str:
    """The token for what follows `key` in the listing described by `listing` (its method, namespace and filters)."""
    body = _VERSION + _digest(listing) + json.dumps(key, separators=(",", ":")).encode()
    return urlsafe_b64encode(body).rstrip(b"=").decode()


def decode(token: str, listing: Sequence[object], *, shape: Sequence[type]) -> Key | None:
    """The key in a token, None for the first page. Raises Invalid for a token of another listing, or none at all."""
    if not token:
        return None
    body = _bytes(token)
    head = len(_VERSION) + _DIGEST_BYTES
    if len(body) <= head or body[: len(_VERSION)] != _VERSION:
        raise Invalid(_FIELD, "is not a page token of this service")
    if body[len(_VERSION) : head] != _digest(listing):
        raise Invalid(_FIELD, "belongs to another listing: the namespace and the filters must stay the same")
    try:
        key = json.loads(body[head:])
    except ValueError:
        key = None
    if not isinstance(key, list) or [type(part) for part in key] != list(shape):
        raise Invalid(_FIELD, "is not a page token of this service")
    return key


def _bytes(token: str) -> bytes:
    try:
        if len(token) > _MAX_CHARS or not token.isascii():
            raise ValueError
        return urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (NotBase64, ValueError):
        raise Invalid(_FIELD, "is not a page token of this service") from None


def _digest(listing: Sequence[object]) -> bytes:
    text = json.dumps([str(part) for part in listing])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=b"tw-page-token").digest()
