"""Reads a message from a JSON or TOML file, strictly: a misspelt key is refused with its path, never dropped.

The form is that of the message's protobuf JSON, as `--output json` prints it, with three liberties: names of enums may
be short (`skip`), lengths of time may have any unit (`1h30m`), and a TOML time may stand where a timestamp is expected.
Called by job_file.py and calendars.py.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tidewheel.schedules import duration

from tools.cli.exits import Failure, usage
from tools.cli.instants import LENGTH_HINT, read_length, write_instant
from tools.cli.words import name_of, words_of

_TIMESTAMP, _LENGTH = "google.protobuf.Timestamp", "google.protobuf.Duration"


def read_document(file: Path, thing: str) -> dict[str, Any]:
    """The table that the file holds; `thing` is what it describes. Raises Failure(USAGE) that names the file."""
    document = _document(file, thing)
    if not isinstance(document, dict):
        raise usage(f"{file}: must be one {thing}: a table of its fields")
    return document


def merge(message: Message, document: dict[str, Any], place: str, *, others: Sequence[str] = ()) -> None:
    """Put the document into the message. `others` are keys that the caller knows beside it.

    Raises Failure(USAGE) that names the file, the field and the rule.
    """
    normal = _normal(document, message.DESCRIPTOR, "", place, others)
    # Field by field, so that a value of the wrong type is named by its field.
    for name, value in normal.items():
        try:
            json_format.ParseDict({name: value}, message)
        except json_format.ParseError as error:
            raise usage(f"{place}: {name}: {_reason(error)}") from error


def _document(file: Path, thing: str) -> Any:
    if file.suffix not in (".json", ".toml"):
        raise usage(f"{file}: a {thing}'s file ends with .json or .toml")
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text, object_pairs_hook=_no_doubles)
    except OSError as error:
        raise usage(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise usage(f"{file}: is not {file.suffix[1:].upper()}: {error}") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("the same key stands twice")
    return document


def _normal(value: Any, descriptor: Any, path: str, place: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """The same document with names and values as json_format takes them; refuses what does not belong there."""
    if not isinstance(value, dict):
        raise usage(f"{place}: {path} must be a table of its fields")
    known = {name: field for field in descriptor.fields for name in (field.name, field.json_name)}
    normal = {}
    for name, item in value.items():
        here = f"{path}.{name}" if path else name
        field = known.get(name)
        if field is None:
            raise _unknown(here, name, [*(f.name for f in descriptor.fields), *others], place)
        normal[field.name] = _value(item, field, here, place)
    return normal


def _value(item: Any, field: FieldDescriptor, path: str, place: str) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return item
    if not field.is_repeated:
        return _single(item, field, path, place)
    if not isinstance(item, list):
        raise usage(f"{place}: {path} must be a list", f"write [{json.dumps(item, default=str)}]")
    return [_single(one, field, f"{path}[{index}]", place) for index, one in enumerate(item)]


def _single(item: Any, field: FieldDescriptor, path: str, place: str) -> Any:
    if isinstance(item, datetime):
        if item.tzinfo is None:
            raise usage(f"{place}: {path} has no offset from UTC", "add Z or an offset such as +02:00")
        return write_instant(item)
    if field.enum_type is not None and isinstance(item, str):
        return _enum_name(item, field, path, place)
    if field.type == FieldDescriptor.TYPE_BYTES and isinstance(item, str):
        return _base64(item, path, place)
    nested = field.message_type
    if nested is None or nested.full_name == _TIMESTAMP:
        return item
    if nested.full_name == _LENGTH:
        return _length(item, path, place)
    return _normal(item, nested, path, place)


def _base64(item: str, path: str, place: str) -> str:
    try:
        base64.b64decode(item, validate=True)
    except binascii.Error:
        raise usage(f"{place}: {path} must be base64", "payload_text and payload_json take it as it is") from None
    return item


def _length(item: Any, path: str, place: str) -> str:
    if not isinstance(item, str):
        raise usage(f"{place}: {path} must be a length of time", LENGTH_HINT)
    return duration(read_length(item, f"{place}: {path}")).ToJsonString()


def _enum_name(word: str, field: FieldDescriptor, path: str, place: str) -> str:
    assert field.enum_type is not None
    full = name_of(field.enum_type, word)
    if full is None:
        raise usage(f"{place}: {path} must be one of {', '.join(words_of(field.enum_type))}, not {word!r}")
    return full


def _reason(error: json_format.ParseError) -> str:
    """The library's text without its own way of naming the field, which stands before it already."""
    return str(error).splitlines()[0].removeprefix("Failed to parse ").rstrip(".")


def _unknown(path: str, name: str, known: list[str], place: str) -> Failure:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return usage(f"{place}: unknown field {path}", f"did you mean {nearest}?")
