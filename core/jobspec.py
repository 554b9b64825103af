"""What a version of a job says: handler, queue, schedule and policies, as one frozen value with a strict JSON form.

The control plane makes it from requests, core/store keeps it in `job_versions.spec`, dispatchers read it back. The
payload is kept beside it, since it is bytes and may be large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.calendars import CalendarPin
from core.clock import US_PER_S
from core.errors import Invalid
from core.policy import MAX_BUFFERED, WEEK_US, CatchUp, CatchUpMode, CatchUpOrder, Overlap, Retry
from core.schedule import Schedule

MAX_PAYLOAD_BYTES = 262_144
MAX_RESULT_BYTES = 262_144
MAX_PROGRESS_BYTES = 16_384
MAX_ERROR_CHARS = 4_096

_NAMESPACE = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_WORD = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_LABEL_KEY = re.compile(r"[A-Za-z0-9._/-]{1,63}\Z")


def check_namespace(value: str, at: str = "namespace") -> str:
    """The namespace, `default` for empty. Raises Invalid."""
    value = value or "default"
    if not _NAMESPACE.match(value):
        raise Invalid(at, "must be 1 to 63 characters of a-z, 0-9 and -, beginning with a letter")
    return value


def check_job_name(value: str, at: str = "name") -> str:
    """The job's name as it is. Raises Invalid."""
    if not _JOB_NAME.match(value):
        raise Invalid(
            at, "must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        )
    return value


def check_word(value: str, at: str) -> str:
    """A handler's or a queue's name. Raises Invalid."""
    if not _WORD.match(value):
        raise Invalid(at, "must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '_', ':' and '-'")
    return value


def check_payload(payload: bytes, at: str = "payload") -> bytes:
    """The payload as it is. Raises Invalid above 262,144 bytes."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Invalid(at, f"is {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are taken")
    return payload


@dataclass(frozen=True, slots=True)
class Pins:
    """What was fixed when the version was made, so that its occurrences are the same for ever and on every node.

    `jitter_offset_us` is in [0, schedule.jitter_us]. `last_us` is the last nominal instant that `schedule.max_runs`
    allows, None without such a limit. `calendars` holds the version of each calendar that the schedule names.
    """

    jitter_offset_us: int = 0
    last_us: int | None = None
    calendars: Mapping[str, CalendarPin] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "jitter_offset_us": self.jitter_offset_us,
            "last_us": self.last_us,
            "calendars": {name: pin.to_json() for name, pin in sorted(self.calendars.items())},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Pins:
        """Read the stored form back. Raises KeyError, TypeError or ValueError where it is not one."""
        calendars = {name: CalendarPin.from_json(pin) for name, pin in stored["calendars"].items()}
        return cls(int(stored["jitter_offset_us"]), stored["last_us"], calendars)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One version of a job, without its payload. `timeout_us` is the start-to-close time of one attempt.

    `max_buffered` bounds how many runs wait under Overlap.BUFFER_ALL.
    """

    handler: str
    queue: str = "default"
    payload_type: str = ""
    schedule: Schedule | None = None
    retry: Retry = field(default_factory=Retry)
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = field(default_factory=CatchUp)
    timeout_us: int = 3600 * US_PER_S
    description: str = ""
    contact: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    max_buffered: int = 100
    pins: Pins = field(default_factory=Pins)

    def __post_init__(self) -> None:
        check_word(self.handler, "handler")
        check_word(self.queue, "queue")
        if not 0 < self.timeout_us <= WEEK_US:
            raise Invalid("start_to_close_timeout", "must be above 0 s and at most 7 days")
        _check_length(self.payload_type, 128, "payload_type")
        _check_length(self.description, 1024, "description")
        _check_length(self.contact, 256, "contact")
        if not 1 <= self.max_buffered <= MAX_BUFFERED:
            raise Invalid("max_buffered", "must lie within 1 and 1000")
        if len(self.labels) > 32:
            raise Invalid("labels", "at most 32 entries are taken")
        for key, value in self.labels.items():
            if not _LABEL_KEY.match(key):
                rule = "must be 1 to 63 characters of A-Z, a-z, 0-9, '.', '_', '/', '-'"
                raise Invalid("labels", f"key {key[:80]!r} {rule}")
            _check_length(value, 128, f"labels[{key}]")

    def to_json(self) -> dict[str, Any]:
        """The stored form; `from_json` gives the same value back.

        Defaults are written out, so that a later release's other defaults do not change jobs that were accepted.
        """
        return {
            "handler": self.handler,
            "queue": self.queue,
            "payload_type": self.payload_type,
            "schedule": None if self.schedule is None else self.schedule.to_json(),
            "retry": {
                "max_attempts": self.retry.max_attempts,
                "first_delay_us": self.retry.first_delay_us,
                "factor": self.retry.factor,
                "max_delay_us": self.retry.max_delay_us,
                "jitter": self.retry.jitter,
            },
            "overlap": self.overlap.name,
            "catch_up": {
                "mode": self.catch_up.mode.name,
                "grace_us": self.catch_up.grace_us,
                "max_runs": self.catch_up.max_runs,
                "window_us": self.catch_up.window_us,
                "order": self.catch_up.order.name,
            },
            "timeout_us": self.timeout_us,
            "description": self.description,
            "contact": self.contact,
            "labels": dict(self.labels),
            "max_buffered": self.max_buffered,
            "pins": self.pins.to_json(),
        }

    @classmethod
    def from_json(
        cls, stored: Mapping[str, Any], read_schedule: Callable[[str], Schedule] = Schedule.from_json
    ) -> JobSpec:
        """Read the stored form back; `read_schedule` may share equal schedules.

        Raises Invalid when it is not one (a row spoilt by hand, field bug B108).
        """
        try:
            schedule = stored["schedule"]
            return cls(
                handler=stored["handler"],
                queue=stored["queue"],
                payload_type=stored["payload_type"],
                schedule=None if schedule is None else read_schedule(schedule),
                retry=Retry(**stored["retry"]),
                overlap=Overlap[stored["overlap"]],
                catch_up=_catch_up(stored["catch_up"]),
                timeout_us=stored["timeout_us"],
                description=stored["description"],
                contact=stored["contact"],
                labels=dict(stored["labels"]),
                max_buffered=stored["max_buffered"],
                pins=Pins.from_json(stored["pins"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid("spec", f"the stored form is not readable: {error}") from error


def _catch_up(stored: Mapping[str, Any]) -> CatchUp:
    return CatchUp(
        CatchUpMode[stored["mode"]],
        stored["grace_us"],
        stored["max_runs"],
        stored["window_us"],
        CatchUpOrder[stored["order"]],
    )


def _check_length(value: str, limit: int, at: str) -> None:
    if len(value) > limit:
        raise Invalid(at, f"is {len(value)} characters long; at most {limit} are taken")
    if "\0" in value:
        raise Invalid(at, "must not contain the NUL character")
