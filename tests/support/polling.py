"""Waiting for something to become true, with a bound and a clear failure."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

Value = TypeVar("Value")

EVERY_S = 0.02
SHOWN_CHARACTERS = 500


@overload
async def eventually(
    predicate: Callable[[], Awaitable[Value | None]], within_s: float = ..., *, what: str = ...
) -> Value: ...


@overload
async def eventually(predicate: Callable[[], Value | None], within_s: float = ..., *, what: str = ...) -> Value: ...


async def eventually(
    predicate: Callable[[], Value | Awaitable[Value | None] | None],
    within_s: float = 30.0,
    *,
    what: str = "",
) -> Value:
    """Call `predicate` (sync or async) until its value is true, and return that value.

    An AssertionError inside it counts as "not yet". When the time is up, fails with what was waited for and what was
    seen last. `within_s` bounds liveness, on a busy machine too; it never measures performance.
    """
    began_s = time.monotonic()
    while True:
        seen: object
        try:
            value = predicate()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            seen = f"last value {value!r}"
        except AssertionError as unmet:
            seen = f"last assertion: {unmet}"
        if time.monotonic() - began_s > within_s:
            raise AssertionError(f"not within {within_s:g} s: {what or _source(predicate)}; {seen}"[:SHOWN_CHARACTERS])
        await asyncio.sleep(EVERY_S)


def _source(predicate: Callable[..., object]) -> str:
    """The predicate's own text where it is a lambda, else its name."""
    name = getattr(predicate, "__qualname__", repr(predicate))
    if "<lambda>" not in name:
        return str(name)
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):
        return str(name)
