"""Tidewheel for Python: a client that registers and steers jobs, and a worker that runs them.

Importing this package loads nothing: each name is fetched from its module at its first use, so that a program which
only wants the exceptions, or only the stubs under `tidewheel.v1`, does not pay for gRPC.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewheel.client import Client
    from tidewheel.context import RunContext
    from tidewheel.errors import (
        AlreadyExists,
        CallFailed,
        Cancelled,
        Conflict,
        FieldViolation,
        InvalidArgument,
        NotFound,
        NotRetryable,
        StaleEtag,
        TidewheelError,
        Unavailable,
        WorkerRefused,
    )
    from tidewheel.policies import CatchUp, RetryPolicy
    from tidewheel.records import Attempt, Job, Run
    from tidewheel.schedules import At, Cron, Every, Schedule
    from tidewheel.worker import Worker

__all__ = [
    "AlreadyExists",
    "At",
    "Attempt",
    "CallFailed",
    "Cancelled",
    "CatchUp",
    "Client",
    "Conflict",
    "Cron",
    "Every",
    "FieldViolation",
    "InvalidArgument",
    "Job",
    "NotFound",
    "NotRetryable",
    "RetryPolicy",
    "Run",
    "RunContext",
    "Schedule",
    "StaleEtag",
    "TidewheelError",
    "Unavailable",
    "Worker",
    "WorkerRefused",
]

_HOMES = MappingProxyType(
    {
        "Client": "client",
        "RunContext": "context",
        "Worker": "worker",
        **dict.fromkeys(("Attempt", "Job", "Run"), "records"),
        **dict.fromkeys(("CatchUp", "RetryPolicy"), "policies"),
        **dict.fromkeys(("At", "Cron", "Every", "Schedule"), "schedules"),
    }
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tidewheel' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidewheel.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
