"""From the options of `job create` and `job update` to a Job message, and the paths of what was given.

What the message itself cannot express is refused here (a time without an offset, an unknown word); ranges and rules are
the server's, which names the field. Called by jobs.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.exits import usage
from tools.cli.instants import read_instant, read_length

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
    from tidewheel.v1 import job_pb2

WHEN, WHAT, POLICIES = "When", "What", "Policies"
LARGEST_PAYLOAD_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Field:
    """One option of the two commands."""

    name: str
    annotation: Any

    @property
    def parameter(self) -> inspect.Parameter:
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=self.annotation)


def _text(name: str, panel: str, what: str, metavar: str = "TEXT") -> Field:
    return Field(name, Annotated[str | None, _option(panel, what, metavar)])


def _texts(name: str, panel: str, what: str, metavar: str) -> Field:
    return Field(name, Annotated[list[str] | None, _option(panel, what, metavar)])


def _option(panel: str, what: str, metavar: str) -> Any:
    return typer.Option(help=what, rich_help_panel=panel, metavar=metavar, show_default=False)


FIELDS = (
    _text("handler", WHAT, "Name under which workers registered the function."),
    _text("queue", WHAT, "Which workers may take the runs. Default: default."),
    _text("payload", WHAT, "Text handed to the handler; its type is JSON if it parses as such."),
    Field("payload_file", Annotated[Path | None, _option(WHAT, "File whose bytes are handed to the handler.", "FILE")]),
    _text("payload_type", WHAT, "Media type of the payload."),
    _text("description", WHAT, "For people."),
    _text("contact", WHAT, "Who is told of dead runs."),
    _texts("label", WHAT, "key=value; may be repeated.", "KEY=VALUE"),
    _texts("cron", WHEN, "Cron line of 5, 6 or 7 fields, or a macro such as @daily; may be repeated.", "LINE"),
    _text("zone", WHEN, "IANA name of the zone in which cron lines are read. Default: UTC.", "ZONE"),
    _text("every", WHEN, "Interval of elapsed time, such as 10s or 1h30m.", "LENGTH"),
    _text("at", WHEN, "Once: RFC 3339 with offset, or `in 5m`.", "INSTANT"),
    _text("anchor", WHEN, "Instant that --every counts from. Default: the registration.", "INSTANT"),
    _text("start", WHEN, "No occurrence before this instant.", "INSTANT"),
    _text("end", WHEN, "No occurrence at or after this instant.", "INSTANT"),
    _text("gap", WHEN, "For wall times that do not exist: end, shift or skip.", "RULE"),
    _text("repeat", WHEN, "For wall times that occur twice: first, second or both.", "RULE"),
    Field("retry_attempts", Annotated[int | None, _option(POLICIES, "Most attempts of a run. Default: 4.", "N")]),
    _text("retry_first_delay", POLICIES, "Delay before the second attempt. Default: 10s.", "LENGTH"),
    Field("retry_factor", Annotated[float | None, _option(POLICIES, "How delays grow. Default: 2.", "FACTOR")]),
    _text("retry_max_delay", POLICIES, "Longest delay. Default: 10m.", "LENGTH"),
    Field("retry_jitter", Annotated[float | None, _option(POLICIES, "How delays spread. Default: 0.1.", "SHARE")]),
    _text("overlap", POLICIES, "While a run is open: skip (default) or allow.", "POLICY"),
    _text("catch_up", POLICIES, "For occurrences found late: latest (default) or skip.", "POLICY"),
    _text("grace", POLICIES, "How late an occurrence is run whatever --catch-up says. Default: 60s.", "LENGTH"),
    _text("time_limit", POLICIES, "Longest time of one attempt (start_to_close_timeout). Default: 1h.", "LENGTH"),
)


def takes_job_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Give an async command all of FIELDS as options; it receives them as one dict, `given`."""
    signature = inspect.signature(body, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "given"]
    names = {field.name for field in FIELDS}

    async def command(call: Any, **values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        await body(call, **values, given={name: value for name, value in given.items() if value not in (None, [])})

    extended = [own[0], *own[1:], *(field.parameter for field in FIELDS)]
    head, rest = extended[0], [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in extended[1:]]
    command.__signature__ = inspect.Signature([head, *rest])  # type: ignore[attr-defined]
    command.__doc__ = body.__doc__
    return command


def fill(job: job_pb2.Job, given: dict[str, Any], now: datetime | None = None) -> list[str]:
    """Put what was given into `job`; returns the paths below Job that were touched. Raises Failure(USAGE)."""
    reader = _Reader(given, now or datetime.now(UTC))
    paths = [path for path, fill_field in _FILLERS.items() if fill_field(job, reader)]
    return sorted(paths)


class _Reader:
    """The given options, read as what they mean; each failure names its option."""

    def __init__(self, given: dict[str, Any], now: datetime) -> None:
        self.given = given
        self._now = now

    def any(self, *names: str) -> bool:
        return any(name in self.given for name in names)

    def instant(self, name: str) -> Any:
        from tidewheel.schedules import timestamp

        return timestamp(name, read_instant(self.given[name], _flag(name), self._now))

    def length(self, name: str) -> Any:
        from tidewheel.schedules import duration

        return duration(read_length(self.given[name], _flag(name)))

    def word(self, name: str, kind: EnumTypeWrapper, prefix: str) -> Any:
        names = kind.keys()
        known = [key.removeprefix(prefix).lower() for key in names if not key.endswith("_UNSPECIFIED")]
        if self.given[name].lower() not in known:
            raise usage(f"{_flag(name)}: must be one of {', '.join(known)}, not {self.given[name]!r}")
        return kind.Value(prefix + self.given[name].upper())


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _simple(name: str) -> Callable[[job_pb2.Job, _Reader], bool]:
    def fill_field(job: job_pb2.Job, reader: _Reader) -> bool:
        if name not in reader.given:
            return False
        setattr(job, name, reader.given[name])
        return True

    return fill_field


def _payload(job: job_pb2.Job, reader: _Reader) -> bool:
    if not reader.any("payload", "payload_file"):
        return False
    job.payload, derived_type = read_payload(reader.given.get("payload"), reader.given.get("payload_file"))
    if "payload_type" not in reader.given:
        job.payload_type = derived_type
    return True


def _payload_type(job: job_pb2.Job, reader: _Reader) -> bool:
    if "payload_type" in reader.given:
        job.payload_type = reader.given["payload_type"]
    # A new payload brings its type with it.
    return reader.any("payload_type", "payload", "payload_file")


def _labels(job: job_pb2.Job, reader: _Reader) -> bool:
    for pair in reader.given.get("label", ()):
        key, equals, value = pair.partition("=")
        if not equals:
            raise usage(f"--label {pair}: takes key=value")
        job.labels[key] = value
    return reader.any("label")


def _schedule(job: job_pb2.Job, reader: _Reader) -> bool:
    """The schedule is one field: what is given replaces it whole, unless a file gave one to begin with."""
    from tidewheel.v1 import job_pb2

    kinds = [name for name in ("at", "every", "cron") if name in reader.given]
    if len(kinds) > 1:
        raise usage(f"only one of {' and '.join(map(_flag, kinds))} can be given", "make one job of each")
    if not reader.any("at", "every", "cron", "zone", "anchor", "start", "end", "gap", "repeat"):
        return False
    if kinds:
        for other in ("at", "every", "cron", "anchor"):
            job.schedule.ClearField(other)
    elif not job.HasField("schedule"):
        raise usage("the schedule needs --cron, --every or --at", "it is replaced as a whole")
    job.schedule.cron.extend(reader.given.get("cron", ()))
    job.schedule.zone = reader.given.get("zone", job.schedule.zone)
    for name in ("at", "anchor", "start", "end"):
        if name in reader.given:
            getattr(job.schedule, name).CopyFrom(reader.instant(name))
    if "every" in reader.given:
        job.schedule.every.CopyFrom(reader.length("every"))
    if "gap" in reader.given:
        job.schedule.gap = reader.word("gap", job_pb2.GapRule, "GAP_RULE_")
    if "repeat" in reader.given:
        job.schedule.repeat = reader.word("repeat", job_pb2.RepeatRule, "REPEAT_RULE_")
    return True


def _retry(job: job_pb2.Job, reader: _Reader) -> bool:
    given = reader.given
    if "retry_attempts" in given:
        job.retry.max_attempts = given["retry_attempts"]
    if "retry_factor" in given:
        job.retry.factor = given["retry_factor"]
    if "retry_jitter" in given:
        job.retry.jitter = given["retry_jitter"]
    for name in ("first_delay", "max_delay"):
        if f"retry_{name}" in given:
            getattr(job.retry, name).CopyFrom(reader.length(f"retry_{name}"))
    return any(name.startswith("retry_") for name in given)


def _overlap(job: job_pb2.Job, reader: _Reader) -> bool:
    from tidewheel.v1 import job_pb2

    if "overlap" in reader.given:
        job.overlap = reader.word("overlap", job_pb2.OverlapPolicy, "OVERLAP_POLICY_")
    return reader.any("overlap")


def _catch_up(job: job_pb2.Job, reader: _Reader) -> bool:
    from tidewheel.v1 import job_pb2

    if "catch_up" in reader.given:
        job.catch_up.mode = reader.word("catch_up", job_pb2.CatchUpMode, "CATCH_UP_MODE_")
    if "grace" in reader.given:
        job.catch_up.grace.CopyFrom(reader.length("grace"))
    return reader.any("catch_up", "grace")


def _time_limit(job: job_pb2.Job, reader: _Reader) -> bool:
    if "time_limit" in reader.given:
        job.start_to_close_timeout.CopyFrom(reader.length("time_limit"))
    return reader.any("time_limit")


_FILLERS: dict[str, Callable[[Any, _Reader], bool]] = {
    **{name: _simple(name) for name in ("handler", "queue", "description", "contact")},
    "payload": _payload,
    "payload_type": _payload_type,
    "labels": _labels,
    "schedule": _schedule,
    "retry": _retry,
    "overlap": _overlap,
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
