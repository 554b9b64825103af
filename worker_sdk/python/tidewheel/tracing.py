"""The handler's span. The only module that imports OpenTelemetry, and only if it is installed (extra `otel`).

With a tracer provider configured, each handler runs within a span "tidewheel.handler <handler>", a child of the trace
context that came with the assignment; without one, or without OpenTelemetry, nothing happens. Exporting is the
application's affair. Called by worker.py (once) and executor.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from tidewheel.context import RunContext


class HandlerTracer(Protocol):
    """Opens the span that a handler runs in."""

    def span(self, context: RunContext) -> AbstractContextManager[Any]:
        """Current within the block; an exception that leaves it is recorded and marks the span as failed."""
        ...


def handler_tracer() -> HandlerTracer | None:
    """None if OpenTelemetry is not installed, or no tracer provider is configured."""
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return _OpenTelemetry(trace.get_tracer("tidewheel"), TraceContextTextMapPropagator(), trace.SpanKind.CONSUMER)


class _OpenTelemetry:
    def __init__(self, tracer: Any, propagator: Any, kind: Any) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._kind = kind

    def span(self, context: RunContext) -> AbstractContextManager[Any]:
        parent = self._propagator.extract({"traceparent": context.traceparent}) if context.traceparent else None
        span: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            f"tidewheel.handler {context.handler}",
            context=parent,
            kind=self._kind,
            attributes={
                "tidewheel.namespace": context.namespace,
                "tidewheel.job": context.job,
                "tidewheel.job_id": context.job_id,
                "tidewheel.run_id": context.run_id,
                "tidewheel.attempt": context.attempt,
                "tidewheel.queue": context.queue,
            },
        )
        return span
