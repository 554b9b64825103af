"""From the options of `job create` and `job update` to a Job message, and the paths of what was given.

What the message itself cannot express is refused here (a time without an offset, an unknown word); ranges and rules are
the server's, which names the field. Called by jobs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cli import schedule_options
from tools.cli.exits import usage
from tools.cli.option_fields import Reader, option

if TYPE_CHECKING:
    from tidewheel.v1 import job_pb2

WHAT, POLICIES = "What", "Policies"
LARGEST_PAYLOAD_BYTES = 262_144

FIELDS = (
    option("handler", str, WHAT, "Name under which workers registered the function."),
    option("queue", str, WHAT, "Which workers may take the runs. Default: default."),
    option("payload", str, WHAT, "Text handed to the handler; its type is JSON if it parses as such."),
    option("payload_file", Path, WHAT, "File whose bytes are handed to the handler.", "FILE"),
    option("payload_type", str, WHAT, "Media type of the payload."),
    option("description", str, WHAT, "For people."),
    option("contact", str, WHAT, "Who is told of dead runs."),
    option("label", list[str], WHAT, "key=value; repeatable.", "KEY=VALUE"),
    *schedule_options.FIELDS,
    option("retry_attempts", int, POLICIES, "Most attempts of a run. Default: 4.", "N"),
    option("retry_first_delay", str, POLICIES, "Delay before the second attempt. Default: 10s.", "LENGTH"),
    option("retry_factor", float, POLICIES, "How delays grow. Default: 2.", "FACTOR"),
    option("retry_max_delay", str, POLICIES, "Longest delay. Default: 10m.", "LENGTH"),
    option("retry_jitter", float, POLICIES, "How delays spread. Default: 0.1.", "SHARE"),
    option(
        "overlap",
        str,
        POLICIES,
        "While a run is open: skip (default), allow, buffer-one, buffer-all or cancel-other.",
        "POLICY",
    ),
    option("max_buffered", int, POLICIES, "With buffer-all: so many runs wait at most. Default: 100.", "N"),
    option("catch_up", str, POLICIES, "For occurrences found late: latest (default), skip or all.", "POLICY"),
    option("grace", str, POLICIES, "How late an occurrence is run whatever --catch-up says. Default: 60s.", "LENGTH"),
    option("catch_up_max", int, POLICIES, "With --catch-up all: the newest so many are run. Default: 6.", "N"),
    option("catch_up_window", str, POLICIES, "What is later than this is skipped. Default: 366d.", "LENGTH"),
    option("catch_up_order", str, POLICIES, "With --catch-up all: oldest (default) or newest first.", "ORDER"),
    option("time_limit", str, POLICIES, "Longest time of one attempt (start_to_close_timeout). Default: 1h.", "LENGTH"),
)

# Fields of a job that options change in part: what is not given stays as it is.
PARTLY: Mapping[str, tuple[str, ...]] = {
    "schedule": schedule_options.NAMES,
    "retry": ("retry_attempts", "retry_first_delay", "retry_factor", "retry_max_delay", "retry_jitter"),
    "catch_up": ("catch_up", "grace", "catch_up_max", "catch_up_window", "catch_up_order"),
}


def changed_in_part(given: Mapping[str, Any]) -> list[str]:
    """The fields of a job whose present value is needed before `fill`."""
    return [path for path, names in PARTLY.items() if any(name in given for name in names)]


def fill(job: job_pb2.Job, given: dict[str, Any], now: datetime | None = None) -> list[str]:
    """Put what was given into `job`; returns the paths below Job that were touched. Raises Failure(USAGE)."""
    reader = Reader(given, now or datetime.now(UTC))
    paths = [path for path, fill_field in _FILLERS.items() if fill_field(job, reader)]
    return sorted(paths)


def _simple(name: str) -> Callable[[job_pb2.Job, Reader], bool]:
    def fill_field(job: job_pb2.Job, reader: Reader) -> bool:
        if name not in reader.given:
            return False
        setattr(job, name, reader.given[name])
        return True

    return fill_field


def _payload(job: job_pb2.Job, reader: Reader) -> bool:
    if not reader.any("payload", "payload_file"):
        return False
    job.payload, derived_type = read_payload(reader.given.get("payload"), reader.given.get("payload_file"))
    if "payload_type" not in reader.given:
        job.payload_type = derived_type
    return True


def _payload_type(job: job_pb2.Job, reader: Reader) -> bool:
    if "payload_type" in reader.given:
        job.payload_type = reader.given["payload_type"]
    # A new payload brings its type with it.
    return reader.any("payload_type", "payload", "payload_file")


def _labels(job: job_pb2.Job, reader: Reader) -> bool:
    for key, value in read_labels(reader.texts("label")).items():
        job.labels[key] = value
    return reader.any("label")


def read_labels(pairs: Iterable[str]) -> dict[str, str]:
    """The labels that `key=value` texts stand for. Raises Failure(USAGE)."""
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise usage(f"--label {pair}: takes key=value")
        labels[key] = value
    return labels


def _schedule(job: job_pb2.Job, reader: Reader) -> bool:
    if not reader.any(*schedule_options.NAMES):
        return False
    schedule_options.fill_schedule(job.schedule, reader)
    return True


def _retry(job: job_pb2.Job, reader: Reader) -> bool:
    for field in ("max_attempts", "factor", "jitter"):
        reader.put_number(job.retry, field, f"retry_{field.removeprefix('max_')}")
    for name in ("first_delay", "max_delay"):
        if reader.any(f"retry_{name}"):
            getattr(job.retry, name).CopyFrom(reader.length(f"retry_{name}"))
    return reader.any(*PARTLY["retry"])


def _max_buffered(job: job_pb2.Job, reader: Reader) -> bool:
    reader.put_number(job, "max_buffered", "max_buffered")
    return reader.any("max_buffered")


def _overlap(job: job_pb2.Job, reader: Reader) -> bool:
    from tidewheel.v1 import job_pb2

    if "overlap" in reader.given:
        job.overlap = reader.word("overlap", job_pb2.OverlapPolicy)
    return reader.any("overlap")


def _catch_up(job: job_pb2.Job, reader: Reader) -> bool:
    from tidewheel.v1 import job_pb2

    if "catch_up" in reader.given:
        job.catch_up.mode = reader.word("catch_up", job_pb2.CatchUpMode)
    if "grace" in reader.given:
        job.catch_up.grace.CopyFrom(reader.length("grace"))
    reader.put_number(job.catch_up, "max_runs", "catch_up_max")
    if "catch_up_window" in reader.given:
        job.catch_up.window.CopyFrom(reader.length("catch_up_window"))
    if "catch_up_order" in reader.given:
        job.catch_up.order = reader.word("catch_up_order", job_pb2.CatchUpOrder)
    return reader.any(*PARTLY["catch_up"])


def _time_limit(job: job_pb2.Job, reader: Reader) -> bool:
    if "time_limit" in reader.given:
        job.start_to_close_timeout.CopyFrom(reader.length("time_limit"))
    return reader.any("time_limit")


_FILLERS: dict[str, Callable[[Any, Reader], bool]] = {
    **{name: _simple(name) for name in ("handler", "queue", "description", "contact")},
    "payload": _payload,
    "payload_type": _payload_type,
    "labels": _labels,
    "schedule": _schedule,
    "retry": _retry,
    "overlap": _overlap,
    "max_buffered": _max_buffered,
    "catch_up": _catch_up,
    "start_to_close_timeout": _time_limit,
}


def read_payload(text: str | None, file: Path | None) -> tuple[bytes, str]:
    """The bytes of a payload and their media type. Raises Failure(USAGE)."""
    import json

    from tidewheel.payloads import BYTES_TYPE, JSON_TYPE, TEXT_TYPE

    if text is not None and file is not None:
        raise usage("only one of --payload and --payload-file can be given")
    if file is not None:
        try:
            data, derived = file.read_bytes(), BYTES_TYPE
        except OSError as error:
            raise usage(f"--payload-file: {file}: {error.strerror}") from error
    else:
        data, derived = (text or "").encode(errors="surrogateescape"), TEXT_TYPE
    if len(data) > LARGEST_PAYLOAD_BYTES:
        raise usage(
            f"job.payload: {len(data):,} bytes; at most {LARGEST_PAYLOAD_BYTES:,} are taken", "hand over a reference"
        )
    try:
        json.loads(data)
    except ValueError:
        return data, derived
    return data, JSON_TYPE
