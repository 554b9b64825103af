"""Checks of single fields: instants, durations, names, ids, pages. Pure; each raises Invalid with the field's path."""

from __future__ import annotations

import re
from uuid import UUID

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from core.civil import END_S
from core.clock import US_PER_S
from core.errors import Invalid

MAX_NOTE_CHARS = 1024
MAX_PAGE_SIZE = 1000
_DEFAULT_PAGE_SIZE = 100
_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,128}\Z")
_NAME_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,128}\Z")
_MAX_DURATION_S = 10_000 * 366 * 86_400


def instant_us(value: Timestamp, at: str) -> int:
    """A timestamp in microseconds; in [1970, 2200), exact to the microsecond."""
    if not 0 <= value.seconds < END_S:
        raise Invalid(at, "must lie within 1970-01-01T00:00:00Z and 2200-01-01T00:00:00Z")
    if not 0 <= value.nanos < 1_000_000_000:
        raise Invalid(at, "has nanos outside 0 and 999,999,999")
    if value.nanos % 1000:
        raise Invalid(at, "must be exact to the microsecond: finer digits are not kept")
    return value.seconds * US_PER_S + value.nanos // 1000


def duration_us(value: Duration, at: str) -> int:
    """A duration in microseconds; not negative, exact to the microsecond."""
    if value.seconds < 0 or value.nanos < 0:
        raise Invalid(at, "must not be negative")
    if value.nanos > 999_999_999:
        raise Invalid(at, "has nanos above 999,999,999")
    if value.nanos % 1000:
        raise Invalid(at, "must be exact to the microsecond: finer digits are not kept")
    if value.seconds > _MAX_DURATION_S:
        raise Invalid(at, "is longer than ten thousand years")
    return value.seconds * US_PER_S + value.nanos // 1000


def request_id(value: str) -> str:
    """The request id as it is; empty is allowed, and means no protection against repetition."""
    if value and not _REQUEST_ID.match(value):
        raise Invalid("request_id", "must be 1 to 128 printable ASCII characters")
    return value


def note(value: str, at: str = "note") -> str:
    """Free text for the record."""
    if len(value) > MAX_NOTE_CHARS:
        raise Invalid(at, f"is {len(value)} characters long; at most {MAX_NOTE_CHARS} are taken")
    if "\0" in value:
        raise Invalid(at, "must not contain the NUL character")
    return value


def name_prefix(value: str) -> str:
    """The beginning of job names."""
    if not _NAME_PREFIX.match(value):
        raise Invalid("name_prefix", "must be at most 128 of the characters that a job's name may have")
    return value


def page_size(value: int) -> int:
    """How many entries a page may have; 0 is the default."""
    if not 0 <= value <= MAX_PAGE_SIZE:
        raise Invalid("page_size", f"must lie within 0 and {MAX_PAGE_SIZE}")
    return value or _DEFAULT_PAGE_SIZE


def uuid(value: str, at: str) -> UUID:
    """An id as we print it, with or without dashes."""
    try:
        if len(value) not in (32, 36):
            raise ValueError
        return UUID(value)
    except ValueError:
        raise Invalid(at, "must be a UUID") from None


def refuse_unknown(message: Message, at: str = "") -> None:
    """Refuse fields that this release does not know: an unheard wish is not carried out silently."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise Invalid(at or "request", f"has a field number {unknown[0].field_number} that this server does not know")
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        path = f"{at}.{field.name}" if at else field.name
        if isinstance(value, Message):
            refuse_unknown(value, path)
            continue
        for index, entry in enumerate(value):
            refuse_unknown(entry, f"{path}[{index}]")
