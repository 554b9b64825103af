"""The functions that a worker can run, by name. Called by worker.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tidewheel.context import RunContext

HandlerFunction = Callable[[RunContext], Awaitable[Any]] | Callable[[RunContext], Any]

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function. Async ones run in the event loop, others in a thread."""

    call: Callable[[RunContext], Any]
    is_async: bool


def handler_of(function: HandlerFunction) -> Handler:
    """What kind of function it is. TypeError if it cannot be called."""
    if not callable(function):
        raise TypeError(f"a handler must be a function of one RunContext, not {function!r}")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return Handler(function, is_async)


def checked_name(name: str) -> str:
    """ValueError if jobs could not name such a handler (or queue)."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: must be 1 to 128 characters of [A-Za-z0-9._:-]")
    return name
