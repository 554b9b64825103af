"""Plain values to the fields of a Job message, and the update mask that names them. Called by client.py."""

from __future__ import annotations

from typing import Any, Final

from tidewheel.payloads import encode
from tidewheel.policies import catch_up_message, overlap_value, retry_message
from tidewheel.schedules import duration, schedule_message
from tidewheel.v1 import job_pb2


class Unset:
    """Stands for "leave as it is" in an update, where None means "set to nothing"."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


def given(value: Any) -> Any:
    """In a creation, None means that the caller said nothing."""
    return UNSET if value is None else value


def fill(job: job_pb2.Job, **values: Any) -> list[str]:
    """Set the given fields of `job`; the paths of what was given, those set back to nothing included."""
    given = {name: value for name, value in values.items() if value is not UNSET}
    if "payload" in given:
        payload, derived_type = encode(given.pop("payload"))
        given["payload"] = payload
        given.setdefault("payload_type", derived_type)
    for name, value in given.items():
        if value is not None:
            _set(job, name, value)
    return sorted(given)


def _set(job: job_pb2.Job, name: str, value: Any) -> None:
    if name == "schedule":
        job.schedule.CopyFrom(schedule_message(value))
    elif name == "retry":
        job.retry.CopyFrom(retry_message(value))
    elif name == "catch_up":
        job.catch_up.CopyFrom(catch_up_message(value))
    elif name == "overlap":
        job.overlap = overlap_value(value)
    elif name == "start_to_close_timeout":
        job.start_to_close_timeout.CopyFrom(duration(value))
    elif name == "labels":
        job.labels.update(value)
    else:
        setattr(job, name, value)
