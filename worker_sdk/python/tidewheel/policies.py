"""How a job is retried, what is made up of what it missed, and what happens when two of its runs meet: plain values.

Ranges and defaults are those of proto/tidewheel/v1/job.proto; the control plane checks them. Called by client.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidewheel.schedules import duration
from tidewheel.v1 import job_pb2, job_service_pb2
from tidewheel.words import member


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how late a failed attempt is repeated; what is None takes the server's default."""

    max_attempts: int | None = None
    first_delay: timedelta | None = None
    factor: float | None = None
    max_delay: timedelta | None = None
    jitter: float | None = None


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What is made up of occurrences that are found later than `grace`: "latest", "skip" or "all".

    `max_runs` and `order` ("oldest_first" or "newest_first") are for "all"; what is later than `window` is skipped.
    What is None takes the server's default.
    """

    mode: str | None = None
    grace: timedelta | None = None
    max_runs: int | None = None
    window: timedelta | None = None
    order: str | None = None


def retry_message(retry: RetryPolicy) -> job_pb2.RetryPolicy:
    return job_pb2.RetryPolicy(
        max_attempts=retry.max_attempts or 0,
        first_delay=None if retry.first_delay is None else duration(retry.first_delay),
        factor=retry.factor or 0.0,
        max_delay=None if retry.max_delay is None else duration(retry.max_delay),
        jitter=retry.jitter,
    )


def catch_up_message(policy: str | CatchUp) -> job_pb2.CatchUpPolicy:
    """A word is a policy with that mode and the server's defaults. ValueError for an unknown word."""
    said = CatchUp(policy) if isinstance(policy, str) else policy
    message = job_pb2.CatchUpPolicy(
        grace=None if said.grace is None else duration(said.grace),
        max_runs=said.max_runs or 0,
        window=None if said.window is None else duration(said.window),
    )
    if said.mode is not None:
        message.mode = member("catch_up", job_pb2.CatchUpMode, "CATCH_UP_MODE", said.mode)
    if said.order is not None:
        message.order = member("catch_up.order", job_pb2.CatchUpOrder, "CATCH_UP_ORDER", said.order)
    return message


def overlap_value(overlap: str) -> job_pb2.OverlapPolicy:
    """ "skip", "allow", "buffer_one", "buffer_all" or "cancel_other"."""
    value: job_pb2.OverlapPolicy = member("overlap", job_pb2.OverlapPolicy, "OVERLAP_POLICY", overlap)
    return value


def paused_value(paused: str) -> job_service_pb2.PausedOccurrences:
    """ "skip" or "catch_up"."""
    value: job_service_pb2.PausedOccurrences = member(
        "paused", job_service_pb2.PausedOccurrences, "PAUSED_OCCURRENCES", paused
    )
    return value
