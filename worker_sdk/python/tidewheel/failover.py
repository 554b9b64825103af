"""Unary calls over several control planes: one channel per address, and the next address when one does not answer.

A call that ends UNAVAILABLE or without an answer in time is repeated as it is, with the same request id, at the next
address, until the caller's time is used up; so a caller sees no failed call while one control plane of two is killed,
frozen or cut off. Every other status is an answer, and becomes the exception that says what to do.
Called by client.py. Belongs to one event loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from tidewheel.channels import call_channel
from tidewheel.clock import Clock
from tidewheel.errors import (
    AlreadyExists,
    CallFailed,
    Conflict,
    InvalidArgument,
    NotFound,
    StaleEtag,
    TidewheelError,
    Unavailable,
)
from tidewheel.status_details import TRAILER, error_reason, field_violations

# CANCELLED is what a caller sees when a server that shuts down aborts the call; our own cancellation is no status.
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
# No single address may use up all the time while another one could answer.
_ONE_TRY_S = 2.0


class Failover:
    """The control planes, as one callee. `addresses` must not be empty."""

    def __init__(self, addresses: Sequence[str], clock: Clock) -> None:
        self._addresses = tuple(addresses)
        self._clock = clock
        self._channels: dict[str, grpc.aio.Channel] = {}
        # The address that answered last: the next call begins there.
        self._favourite = 0

    async def call(
        self, stub: Callable[[grpc.aio.Channel], Any], method: str, request: Any, *, timeout_s: float
    ) -> Any:
        """The answer of `stub(channel).method(request)` from whichever address answers within `timeout_s`."""
        ends_s = self._clock.monotonic_s() + timeout_s
        tries = 0
        while True:
            at = (self._favourite + tries) % len(self._addresses)
            left_s = ends_s - self._clock.monotonic_s()
            try:
                bound = getattr(stub(self._channel(self._addresses[at])), method)
                answer = await bound(request, timeout=max(0.001, min(left_s, self._try_s(timeout_s))))
            except grpc.aio.AioRpcError as error:
                if not _is_worth_repeating(error):
                    self._favourite = at
                    raise _exception(error) from error
                tries += 1
                pause_s = self._pause_s(tries)
                if self._clock.monotonic_s() + pause_s >= ends_s:
                    raise self._unavailable(error, request, timeout_s) from error
                await self._clock.sleep(pause_s)
            else:
                self._favourite = at
                return answer

    def _try_s(self, timeout_s: float) -> float:
        return timeout_s if len(self._addresses) == 1 else min(_ONE_TRY_S, timeout_s / 2)

    def _pause_s(self, tries: int) -> float:
        """Nothing before each address was tried once; then growing, and spread so that callers do not come in step."""
        rounds, in_round = divmod(tries, len(self._addresses))
        if in_round:
            return 0.0
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (rounds - 1)) * random.uniform(0.5, 1.0)  # noqa: S311

    def _unavailable(self, error: grpc.aio.AioRpcError, request: Any, timeout_s: float) -> Unavailable:
        tried = ", ".join(self._addresses)
        request_id = getattr(request, "request_id", "")
        return Unavailable(f"no answer from {tried} within {timeout_s:g} s: {error.details()}", request_id)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = call_channel(address)
        return channel

    async def close(self) -> None:
        """Close every channel. The object can be used again afterwards."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()


def _is_worth_repeating(error: grpc.aio.AioRpcError) -> bool:
    """No answer; or a control plane with too much to do, which did not begin. Other exhausted resources are answers."""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return error_reason(_details(error)) == "OVERLOADED"
    return error.code() in _NO_ANSWER


def _exception(error: grpc.aio.AioRpcError) -> TidewheelError:
    """The exception that says what to do about a status that is an answer."""
    code, message = error.code(), error.details() or ""
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidArgument(message, field_violations(_details(error)))
    simple = _BY_CODE.get(code)
    return CallFailed(code.name, message) if simple is None else simple(message)


_BY_CODE: dict[grpc.StatusCode, type[TidewheelError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: StaleEtag,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
}


def _details(error: grpc.aio.AioRpcError) -> bytes:
    for key, value in error.trailing_metadata() or ():
        if key == TRAILER:
            return value if isinstance(value, bytes) else value.encode("latin-1")
    return b""
