"""What happens around every unary API call: its span, its count, its time, and the trace context for its handler.

A server interceptor of ours, since the library's breaks stream handlers written with read and write; streams pass
untouched (their messages carry their own context). Put it first in the server's list, so that it sees the final status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
from grpc import aio

from core.clock import US_PER_S, Clock
from core.rand import Rand
from core.telemetry.run_traces import TraceContext, is_sampled, parse_traceparent
from core.telemetry.tracing import Tracing

# By OpenTelemetry's conventions for servers: the rest is the caller's doing.
_FLAWED_CODES = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
_REQUEST: ContextVar[str] = ContextVar("tidewheel_request_traceparent", default="")

CallEnded = Callable[[str, str, float], None]


def request_traceparent() -> str:
    """Inside a unary handler: the traceparent to store with what the call makes. Empty if nobody traces it."""
    return _REQUEST.get()


class CallObserver(aio.ServerInterceptor):
    """Continues the caller's trace, and reports each call that ended to `on_ended(method, code, seconds)`."""

    def __init__(self, tracing: Tracing, clock: Clock, rand: Rand, on_ended: CallEnded) -> None:
        self._tracing = tracing
        self._clock = clock
        self._rand = rand
        self._on_ended = on_ended

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        # None: no such method. It is not counted, since a caller could choose its name.
        if handler is None or handler.request_streaming or handler.response_streaming:
            return handler
        # Typed for the threaded server; under grpc.aio it is a coroutine function.
        inner: Callable[[Any, aio.ServicerContext[Any, Any]], Awaitable[Any]] = handler.unary_unary  # type: ignore[assignment]
        method = str(handler_call_details.method)
        caller = _caller(handler_call_details)

        async def observed(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            return await self._observe(method, caller, context, inner(request, context))

        return grpc.unary_unary_rpc_method_handler(
            observed,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    async def _observe(
        self, method: str, caller: TraceContext | None, context: aio.ServicerContext[Any, Any], answer: Awaitable[Any]
    ) -> Any:
        began_us, began_s = self._clock.now_us(), self._clock.monotonic_s()
        here = self._own_context(caller)
        shown = here or caller
        token = _REQUEST.set(shown.traceparent if shown else "")
        code = "OK"
        try:
            answered = await answer
            code = _code_name(context)
            return answered
        except BaseException as error:
            code = _code_of(error, context)
            raise
        finally:
            _REQUEST.reset(token)
            seconds = self._clock.monotonic_s() - began_s
            self._on_ended(method, code, seconds)
            if here is not None:
                ended_us = began_us + round(seconds * US_PER_S)
                flawed = code in _FLAWED_CODES
                self._tracing.record_call(
                    here, caller, method, code, began_us=began_us, ended_us=ended_us, flawed=flawed
                )

    def _own_context(self, caller: TraceContext | None) -> TraceContext | None:
        """Where this call's span stands: in the caller's trace, else in a new one; None while tracing is off."""
        if not self._tracing.enabled:
            return None
        span_id = int.from_bytes(self._rand.token(8), "big") or 1
        if caller is not None:
            return TraceContext(caller.trace_id, span_id, caller.sampled)
        trace_id = int.from_bytes(self._rand.token(16), "big") or 1
        return TraceContext(trace_id, span_id, is_sampled(trace_id, self._tracing.sample_ratio))


def _caller(details: grpc.HandlerCallDetails) -> TraceContext | None:
    for key, value in details.invocation_metadata or ():
        if key == "traceparent" and isinstance(value, str):
            return parse_traceparent(value)
    return None


def _code_of(error: BaseException, context: aio.ServicerContext[Any, Any]) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    name = _code_name(context)
    return name if name != "OK" else "UNKNOWN"


def _code_name(context: aio.ServicerContext[Any, Any]) -> str:
    """The status that the handler set, which the context gives as a number or as a member; OK if it set none."""
    code: Any = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    return _CODE_NAMES.get(code or 0, "UNKNOWN")
