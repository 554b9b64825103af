"""Reads a job from a JSON or TOML file, strictly: a misspelt key is refused with its path, never dropped.

The form is that of the protobuf JSON of a Job, as `tidewheel job get --output json` prints it, with the liberties of
message_file.py; and a payload may be given as `payload_text` or `payload_json` instead of base64. Called by jobs.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidewheel.payloads import JSON_TYPE, TEXT_TYPE
from tidewheel.v1 import job_pb2

from tools.cli.exits import usage
from tools.cli.message_file import merge, read_document

OUTPUT_ONLY = frozenset(
    {
        "job_id",
        "state",
        "version",
        "create_time",
        "update_time",
        "next_occurrence",
        "error",
        "next_due",
        "jitter_offset",
    }
)
_OTHER_KEYS = ("payload_text", "payload_json")


def read_job(file: Path) -> job_pb2.Job:
    """The job that a file describes. Raises Failure(USAGE) that names the file, the field and the rule."""
    document = read_document(file, "job")
    payload = _payload(document, str(file))
    document = {key: value for key, value in document.items() if key not in _OTHER_KEYS}
    job = job_pb2.Job()
    merge(job, document, str(file), others=_OTHER_KEYS)
    if payload is not None:
        job.payload, derived_type = payload
        job.payload_type = job.payload_type or derived_type
    for name in OUTPUT_ONLY:
        job.ClearField(name)
    return job


def _payload(document: Mapping[str, Any], place: str) -> tuple[bytes, str] | None:
    given = [key for key in ("payload", *_OTHER_KEYS) if key in document]
    if len(given) > 1:
        raise usage(f"{place}: only one of {' and '.join(given)} can be given")
    if "payload_text" in document:
        if not isinstance(document["payload_text"], str):
            raise usage(f"{place}: payload_text must be text")
        return document["payload_text"].encode(), TEXT_TYPE
    if "payload_json" in document:
        return json.dumps(document["payload_json"], separators=(",", ":")).encode(), JSON_TYPE
    return None
