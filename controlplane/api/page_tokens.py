"""Pages of listings: their size, and their tokens, opaque to callers, valid only for the listing that gave them. Pure.

A token is URL-safe base64 of a version, a digest over the method, the namespace and every filter, and the key after
which the next page begins. It is not a secret and not a right: a forged one shows nothing that a listing would not.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar
from uuid import UUID

from controlplane.api import fields
from controlplane.api.violations import Violations
from core.civil import END_US
from core.errors import Invalid
from core.jobspec import check_job_name

_VERSION = b"\x01"
_DIGEST_BYTES = 12
_MAX_CHARS = 1024
_FIELD = "page_token"

_END_VERSION = 2**63  # what the column holds

Key = list[str | int]
After = TypeVar("After")


class Listing(Protocol):
    """The request for one page of a listing."""

    page_size: int
    page_token: str


def encode(listing: Sequence[object], key: Key) -> str:
    """The token for what follows `key` in the listing described by `listing` (its method, namespace and filters)."""
    body = _VERSION + _digest(listing) + json.dumps(key, separators=(",", ":")).encode()
    return urlsafe_b64encode(body).rstrip(b"=").decode()


def following(listing: Sequence[object], after: str | int | tuple[int, UUID] | None) -> str:
    """The token for what follows `after`, which the readers below read back; "" where nothing follows: None."""
    if after is None:
        return ""
    parts = after if isinstance(after, tuple) else (after,)
    return encode(listing, [part.hex if isinstance(part, UUID) else part for part in parts])


def decode(token: str, listing: Sequence[object], *, shape: Sequence[type]) -> Key | None:
    """The key in a token, None for the first page. Raises Invalid for a token of another listing, or none at all."""
    if not token:
        return None
    body = _bytes(token)
    head = len(_VERSION) + _DIGEST_BYTES
    if len(body) <= head or body[: len(_VERSION)] != _VERSION:
        raise _not_ours()
    if body[len(_VERSION) : head] != _digest(listing):
        raise Invalid(_FIELD, "belongs to another listing: the namespace and the filters must stay the same")
    try:
        key = json.loads(body[head:])
    except ValueError:
        key = None
    if not isinstance(key, list) or [type(part) for part in key] != list(shape):
        raise _not_ours()
    return key


def page(
    request: Listing, listing: Sequence[object], faults: Violations, shape: Sequence[type], read: Callable[[Key], After]
) -> tuple[int, After | None]:
    """The size of the page asked for, and what `read` makes of its token's key: None for the first page.

    The last step of decoding: raises BadRequest with every fault that was noted before, or is found here.
    """
    size, after = 0, None
    with faults.noted():
        size = fields.page_size(request.page_size)
    with faults.noted():
        key = decode(request.page_token, listing, shape=shape)
        after = None if key is None else read(key)
    faults.refuse()
    return size, after


def within(value: int, lowest: int, end: int) -> int:
    """A number out of a key, from `lowest` on and below `end`."""
    if not lowest <= value < end:
        raise _not_ours()
    return value


def name(key: Key) -> str:
    """Reads the key of a listing by name."""
    return check_job_name(str(key[0]), _FIELD)


def version(key: Key) -> int:
    """Reads the key of a listing by version."""
    return within(int(key[0]), 0, _END_VERSION)


def instant_and_id(key: Key) -> tuple[int, UUID]:
    """Reads the key of a listing by an instant in microseconds and an id."""
    return within(int(key[0]), 0, END_US), fields.uuid(str(key[1]), _FIELD)


def _bytes(token: str) -> bytes:
    try:
        if len(token) > _MAX_CHARS or not token.isascii():
            raise ValueError
        return urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (NotBase64, ValueError):
        raise _not_ours() from None


def _digest(listing: Sequence[object]) -> bytes:
    text = json.dumps([str(part) for part in listing])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=b"tw-page-token").digest()


def _not_ours() -> Invalid:
    return Invalid(_FIELD, "is not a page token of this service")
