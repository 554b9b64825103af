"""Job messages as core values: the fields named by a mask, each checked, every fault noted with its path. Pure.

`JOB_PATHS` is the one list of what a caller may set; creation reads all of it, an update what its mask names. A field
that the mask names and the message leaves out goes back to its default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from tidewheel.v1 import job_pb2

from controlplane.api.decode_schedule import WantedSchedule, decode_schedule
from controlplane.api.fields import duration_us
from controlplane.api.violations import Violations
from core.errors import Invalid
from core.jobspec import JobSpec, check_payload, check_word
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap, Retry

_OVERLAPS = {
    job_pb2.OVERLAP_POLICY_UNSPECIFIED: Overlap.SKIP,
    job_pb2.OVERLAP_POLICY_SKIP: Overlap.SKIP,
    job_pb2.OVERLAP_POLICY_ALLOW: Overlap.ALLOW,
    job_pb2.OVERLAP_POLICY_BUFFER_ONE: Overlap.BUFFER_ONE,
    job_pb2.OVERLAP_POLICY_BUFFER_ALL: Overlap.BUFFER_ALL,
    job_pb2.OVERLAP_POLICY_CANCEL_OTHER: Overlap.CANCEL_OTHER,
}
_CATCH_UPS = {
    job_pb2.CATCH_UP_MODE_UNSPECIFIED: CatchUpMode.LATEST,
    job_pb2.CATCH_UP_MODE_LATEST: CatchUpMode.LATEST,
    job_pb2.CATCH_UP_MODE_SKIP: CatchUpMode.SKIP,
    job_pb2.CATCH_UP_MODE_ALL: CatchUpMode.ALL,
}
_ORDERS = {
    job_pb2.CATCH_UP_ORDER_UNSPECIFIED: CatchUpOrder.OLDEST_FIRST,
    job_pb2.CATCH_UP_ORDER_OLDEST_FIRST: CatchUpOrder.OLDEST_FIRST,
    job_pb2.CATCH_UP_ORDER_NEWEST_FIRST: CatchUpOrder.NEWEST_FIRST,
}


@dataclass(frozen=True, slots=True)
class WantedJob:
    """What a caller asked for: fields of a JobSpec, and beside them payload and schedule where they were named.

    `schedule` is None both for "not named" and for "no schedule"; `names_schedule` tells the two apart.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes | None = None
    schedule: WantedSchedule | None = None
    names_schedule: bool = False

    def new_spec(self) -> JobSpec:
        """The first version of a job."""
        return JobSpec(**self.fields, schedule=self.schedule.schedule if self.schedule else None)

    def edited_spec(self, present: JobSpec) -> JobSpec:
        """The version after `present`."""
        if not self.names_schedule:
            return replace(present, **self.fields)
        schedule = self.schedule.following(present.schedule) if self.schedule else None
        return replace(present, **self.fields, schedule=schedule)


def decode_job(job: job_pb2.Job, paths: Collection[str], *, now_us: int, hash_key: str) -> WantedJob:
    """Read the fields of `job` that `paths` names. Raises BadRequest with paths that begin with `job.`."""
    faults = Violations()
    fields: dict[str, Any] = {}
    for path in (each for each in JOB_PATHS if each in paths):
        read = _READERS.get(path)
        if read is not None:
            with faults.noted():
                name, value = read(job, f"job.{path}")
                fields[name] = value
    payload = None
    if "payload" in paths:
        with faults.noted():
            payload = check_payload(job.payload, "job.payload")
    schedule = None
    if "schedule" in paths and job.HasField("schedule"):
        with faults.noted():
            schedule = decode_schedule(job.schedule, "job.schedule", now_us=now_us, hash_key=hash_key)
    _check_texts(faults, fields)
    faults.refuse()
    return WantedJob(fields, payload, schedule, "schedule" in paths)


def decode_mask(mask: FieldMask) -> frozenset[str]:
    """The paths of an update. Raises Invalid for none, and for one that cannot be set."""
    for path in mask.paths:
        if path not in JOB_PATHS:
            raise Invalid("update_mask", f"{path[:64]!r} cannot be set; what can: {', '.join(JOB_PATHS)}")
    if not mask.paths:
        raise Invalid("update_mask", f"is required: name what is to change, of {', '.join(JOB_PATHS)}")
    return frozenset(mask.paths)


def _handler(job: job_pb2.Job, at: str) -> tuple[str, str]:
    return "handler", check_word(job.handler, at)


def _queue(job: job_pb2.Job, at: str) -> tuple[str, str]:
    return "queue", check_word(job.queue or "default", at)


def _retry(job: job_pb2.Job, at: str) -> tuple[str, Retry]:
    message, default = job.retry, Retry()
    first_us = duration_us(message.first_delay, f"{at}.first_delay") if message.HasField("first_delay") else None
    first_us = default.first_delay_us if first_us is None else first_us
    longest_us = duration_us(message.max_delay, f"{at}.max_delay") if message.HasField("max_delay") else None
    return "retry", _prefixed(
        at.removesuffix("retry"),
        lambda: Retry(
            max_attempts=message.max_attempts or default.max_attempts,
            first_delay_us=first_us,
            factor=message.factor or default.factor,
            max_delay_us=max(default.max_delay_us, first_us) if longest_us is None else longest_us,
            jitter=message.jitter if message.HasField("jitter") else default.jitter,
        ),
    )


def _overlap(job: job_pb2.Job, at: str) -> tuple[str, Overlap]:
    if job.overlap not in _OVERLAPS:
        raise Invalid(at, "is not a known policy")
    return "overlap", _OVERLAPS[job.overlap]


def _catch_up(job: job_pb2.Job, at: str) -> tuple[str, CatchUp]:
    message, default, faults = job.catch_up, CatchUp(), Violations()
    grace_us, window_us = default.grace_us, default.window_us
    if message.mode not in _CATCH_UPS:
        faults.add(f"{at}.mode", "is not a known mode")
    if message.order not in _ORDERS:
        faults.add(f"{at}.order", "is not a known order")
    with faults.noted():
        grace_us = duration_us(message.grace, f"{at}.grace") if message.HasField("grace") else grace_us
    with faults.noted():
        window_us = duration_us(message.window, f"{at}.window") if message.HasField("window") else window_us
    faults.refuse()
    return "catch_up", _prefixed(
        at.removesuffix("catch_up"),
        lambda: CatchUp(
            _CATCH_UPS[message.mode],
            grace_us,
            message.max_runs or default.max_runs,
            window_us,
            _ORDERS[message.order],
        ),
    )


def _max_buffered(job: job_pb2.Job, at: str) -> tuple[str, int]:
    return "max_buffered", job.max_buffered or JobSpec("x").max_buffered


def _timeout(job: job_pb2.Job, at: str) -> tuple[str, int]:
    if not job.HasField("start_to_close_timeout"):
        return "timeout_us", JobSpec("x").timeout_us
    return "timeout_us", duration_us(job.start_to_close_timeout, at)


def _text(name: str) -> Callable[[job_pb2.Job, str], tuple[str, Any]]:
    return lambda job, at: (name, getattr(job, name))


def _labels(job: job_pb2.Job, at: str) -> tuple[str, dict[str, str]]:
    return "labels", dict(job.labels)


_READERS: Final[Mapping[str, Callable[[job_pb2.Job, str], tuple[str, Any]]]] = {
    "handler": _handler,
    "queue": _queue,
    "payload_type": _text("payload_type"),
    "retry": _retry,
    "overlap": _overlap,
    "catch_up": _catch_up,
    "max_buffered": _max_buffered,
    "start_to_close_timeout": _timeout,
    "description": _text("description"),
    "contact": _text("contact"),
    "labels": _labels,
}
JOB_PATHS: Final = (
    "handler",
    "queue",
    "payload",
    "payload_type",
    "schedule",
    "retry",
    "overlap",
    "catch_up",
    "max_buffered",
    "start_to_close_timeout",
    "description",
    "contact",
    "labels",
)


def _check_texts(faults: Violations, fields: Mapping[str, Any]) -> None:
    """Have core's own value look at each field that it alone judges, one by one, so that no fault hides another."""
    for name in ("payload_type", "max_buffered", "timeout_us", "description", "contact", "labels"):
        if name in fields:
            with faults.noted():
                _prefixed("job.", lambda name=name: JobSpec("x", **{name: fields[name]}))  # type: ignore[misc]


def _prefixed(prefix: str, build: Callable[[], Any]) -> Any:
    """What `build` makes; its faults are named from the request's root."""
    try:
        return build()
    except Invalid as fault:
        raise Invalid(prefix + fault.field, fault.rule) from None
