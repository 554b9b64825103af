"""An OTLP/gRPC collector in the test's own process, and two that are dead, for tests of traces.

async with OtlpCollector() as collector:
    ... a process that exports to collector.endpoint ...
    root = await collector.span("run hello")
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.polling import eventually

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """One span as it arrived; ids are lower-case hex, an absent parent is empty, instants are microseconds."""

    service: str
    instance: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str
    began_us: int
    ended_us: int
    attributes: dict[str, Any]
    # (trace id, span id) of each.
    links: tuple[tuple[str, str], ...]
    # None unless the span has an error status.
    error: str | None


class OtlpCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps every span it gets.

    `answering.clear()` makes it take requests without ever answering them; `refusing` makes it refuse them for good.
    """

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.requests = 0
        self.refusing = False
        self.answering = asyncio.Event()
        self.answering.set()
        self._server = grpc.aio.server()
        self._port = 0

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://{HOST}:{self._port}"

    async def Export(self, request: Any, context: Any) -> Any:
        self.requests += 1
        if self.refusing:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        await self.answering.wait()
        self.spans.extend(_spans(request))
        return trace_service_pb2.ExportTraceServiceResponse()

    async def span(self, name: str, within_s: float = 30.0, **attributes: object) -> CollectedSpan:
        """The first span of that name whose attributes (dots written as `__`) have those values; waits for it."""
        await eventually(lambda: self.named(name, **attributes), within_s, what=f"a span {name!r} with {attributes}")
        return self.named(name, **attributes)[0]

    def named(self, name: str, **attributes: object) -> list[CollectedSpan]:
        """Those that have arrived by now."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [span for span in self.spans if span.name == name and wanted.items() <= span.attributes.items()]

    def trace(self, trace_id: str) -> list[CollectedSpan]:
        """All spans of one trace that have arrived by now, in order of their beginnings."""
        return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda span: span.began_us)

    async def __aenter__(self) -> OtlpCollector:
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port(f"{HOST}:0")
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answering.set()
        await self._server.stop(grace=None)


@asynccontextmanager
async def silent_collector() -> AsyncIterator[str]:
    """The endpoint of a socket that takes connections and never says a byte."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), HOST, 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://{HOST}:{port}"
    finally:
        server.close()
        for writer in accepted:
            writer.transport.abort()
        await server.wait_closed()


@contextmanager
def absent_collector() -> Iterator[str]:
    """An endpoint that refuses every connection: its port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield f"http://{HOST}:{taken.getsockname()[1]}"


def _spans(request: Any) -> Iterator[CollectedSpan]:
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _collected(span, resource)


def _collected(span: Span, resource: dict[str, Any]) -> CollectedSpan:
    return CollectedSpan(
        service=str(resource.get("service.name", "")),
        instance=str(resource.get("service.instance.id", "")),
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        began_us=span.start_time_unix_nano // 1000,
        ended_us=span.end_time_unix_nano // 1000,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
