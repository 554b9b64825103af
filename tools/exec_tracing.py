"""The spans of the exec worker's handler, sent through the same bounded way out as those of the servers.

Without an endpoint nothing is loaded and nothing recorded; with a collector that is away nothing waits, the end of the
process included. Called by exec_worker.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.config import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from core.telemetry.spans import SpanPipe


@contextmanager
def handler_traces(settings: TelemetrySettings, instance: str) -> Iterator[None]:
    """Handlers of the SDK run in spans within it. The last spans are sent at its end, for at most `flush_limit_s`.

    Raises Invalid for an endpoint that is none.
    """
    if not settings.otlp_endpoint:
        yield
        return
    from opentelemetry import trace

    from core.telemetry.spans import open_pipe

    pipe = open_pipe(settings.otlp_endpoint)
    # The one registry that OpenTelemetry itself keeps for the process; the SDK looks there.
    trace.set_tracer_provider(_provider(pipe, settings.trace_sample_ratio, instance))
    try:
        yield
    finally:
        pipe.close(settings.flush_limit_s)


def _provider(pipe: SpanPipe, ratio: float, instance: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class IntoPipe(SpanProcessor):
        """Hands over what was sampled; called in the event loop's thread, where handlers of commands end."""

        def on_end(self, span: ReadableSpan) -> None:
            if span.context is not None and span.context.trace_flags.sampled and pipe.has_room(1):
                pipe.put(span)

    resource = Resource.create({"service.name": "tidewheel-worker", "service.instance.id": instance})
    # The assignment's own decision holds; a run without one is decided here.
    sampler = ParentBased(TraceIdRatioBased(ratio))
    provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(IntoPipe())
    return provider
