"""From what a handler did to what is reported: a returned value, or an exception, becomes a Result. Pure.

Called by executor.py for real runs and by testing.py for tests of handlers, so that both mean the same.
"""

from __future__ import annotations

import asyncio
import traceback

from tidewheel.context import Stop, StopKind
from tidewheel.errors import Cancelled, NotRetryable
from tidewheel.payloads import encode
from tidewheel.v1.worker_service_pb2 import Canceled, Failure, Result

MOST_RESULT_BYTES = 262_144
MOST_MESSAGE_CHARACTERS = 4_096


def settle_value(result: Result, value: object, stop: Stop | None) -> None:
    """The handler returned `value`. After its time limit that is too late; any other order to stop it may outrun."""
    if stop is not None and stop.kind is StopKind.TIMED_OUT:
        settle_timeout(result)
        return
    try:
        data, kind = encode(value)
    except (TypeError, ValueError) as error:
        _fail(result, f"the handler's result has no JSON form: {error}", not_retryable=True)
        return
    if len(data) > MOST_RESULT_BYTES:
        _fail(result, f"result of {len(data):,} bytes; at most {MOST_RESULT_BYTES:,} are kept", not_retryable=True)
        return
    result.success.result = data
    result.success.result_type = kind


def settle_error(result: Result, error: BaseException, stop: Stop | None) -> None:
    """The handler raised `error`."""
    if stop is not None and stop.kind is StopKind.TIMED_OUT:
        settle_timeout(result)
    elif not isinstance(error, asyncio.CancelledError | Cancelled):
        _fail(result, _described(error), not_retryable=isinstance(error, NotRetryable))
    elif stop is None:
        _fail(result, "the handler cancelled itself")
    elif stop.kind is StopKind.CANCEL:
        result.canceled.CopyFrom(Canceled())
    else:
        # Nobody asked for the run's end: this attempt stops, and the run goes on elsewhere.
        _fail(result, f"stopped: {stop.reason}")


def settle_timeout(result: Result) -> None:
    """The attempt ran into its start_to_close_timeout."""
    result.failure.CopyFrom(Failure(message="timed out: start_to_close_timeout is over", timed_out=True))


def result_size(result: Result) -> int:
    """About the bytes that the outcome adds to a frame."""
    return len(result.success.result) + 4 * len(result.failure.message)


def _fail(result: Result, message: str, *, not_retryable: bool = False) -> None:
    # Lone surrogates have no UTF-8 form and NUL none in SQL text; neither may keep a failure from being reported.
    text = message.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    result.failure.CopyFrom(Failure(message=text[:MOST_MESSAGE_CHARACTERS], not_retryable=not_retryable))


def _described(error: BaseException) -> str:
    """Type, text and place: what an operator needs to find the line."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    name = type(error).__qualname__
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    where = f" [{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}]" if frames else ""
    head = f"{name}: {text}" if text else name
    return head[: MOST_MESSAGE_CHARACTERS - len(where)] + where
