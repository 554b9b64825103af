"""Exports the spans of handlers that run in a process of ours (`tidewheel worker exec`).

The SDK opens a span around each handler if the process has an OpenTelemetry tracer provider; in a user's worker that is
the user's affair, in our own worker it is this. Spans leave by the same bounded pipe as those of the servers, so a dead
collector never holds a command or the end of the process up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from core.config import TelemetrySettings
from core.telemetry.spans import SpanPipe, open_pipe
from core.telemetry.tracing import endpoint_of


class HandlerSpans:
    """The worker's exporter; `close` is for the end of the process, when the last handler has ended."""

    def __init__(self, pipe: SpanPipe | None) -> None:
        self._pipe = pipe

    def close(self, limit_s: float) -> bool:
        """Send what waits within `limit_s`, then give up; true when all was sent. It blocks."""
        return self._pipe.close(limit_s) if self._pipe else True


def export_handler_spans(
    settings: TelemetrySettings, *, role: str, instance: str, environ: Mapping[str, str] = os.environ
) -> HandlerSpans:
    """Make this process's tracer provider, before the worker is made. Once a process; nothing without an endpoint.

    A handler's span is kept if its run's trace is. Raises Invalid for an endpoint that is none.
    """
    endpoint = endpoint_of(settings, environ)
    if not endpoint:
        return HandlerSpans(None)
    pipe = open_pipe(endpoint)
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(settings.trace_sample_ratio),
        resource=Resource.create({"service.name": f"tidewheel-{role}", "service.instance.id": instance}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(_ToPipe(pipe))
    trace.set_tracer_provider(provider)
    return HandlerSpans(pipe)


class _ToPipe(SpanProcessor):
    """Hands ended spans to the pipe; the pipe's owner closes it."""

    def __init__(self, pipe: SpanPipe) -> None:
        self._pipe = pipe

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing happens before the end."""

    def on_end(self, span: ReadableSpan) -> None:
        if span.context and span.context.trace_flags.sampled and self._pipe.has_room(1):
            self._pipe.put(span)

    def shutdown(self) -> None:
        """Nobody but the pipe's owner ends it."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True
