"""The way of finished spans out of the process: a bounded queue, a thread, an OTLP collector that may be dead.

Nothing here ever waits in the caller's way: a span that finds the queue full is counted and forgotten, and `close` ends
within its limit even while the exporter sleeps in its retries. Built by core/telemetry/tracing.py only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from core.errors import Invalid

log = logging.getLogger(__name__)

QUEUE_LIMIT = 4_096
BATCH_LIMIT = 512
FLUSH_EVERY_S = 1.0
# After the limit of `close` is over and the exporter was told to give up: what its thread gets to notice.
GIVE_UP_S = 0.2
_LIBRARY_LOGGERS = ("opentelemetry.exporter.otlp.proto.grpc.exporter", "opentelemetry.sdk._shared_internal")


class SpanPipe:
    """Takes finished spans from one thread (the event loop's) and hands them to an exporter in another."""

    def __init__(self, exporter: SpanExporter, *, target: str, queue_limit: int = QUEUE_LIMIT) -> None:
        self._exporter = _CountingExporter(exporter, target)
        self._queue_limit = queue_limit
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=queue_limit,
            max_export_batch_size=min(BATCH_LIMIT, queue_limit),
            schedule_delay_millis=FLUSH_EVERY_S * 1000,
        )
        self._accepted = 0
        self._turned_away = 0
        self._closing = self._closed = False

    @property
    def dropped(self) -> int:
        """Spans that did not and will not reach the collector."""
        if self._closed:
            return self._turned_away + self._accepted - self._exporter.exported
        return self._turned_away + self._exporter.failed

    @property
    def exported(self) -> int:
        """Spans that the collector took."""
        return self._exporter.exported

    def has_room(self, spans: int) -> bool:
        """Whether so many spans more would be taken. Where not, they count as dropped, and need not be built."""
        waiting = self._accepted - self._exporter.taken
        if self._closing or waiting + spans > self._queue_limit:
            self._turned_away += spans
            return False
        return True

    def put(self, span: ReadableSpan) -> None:
        """Hand over one span, after `has_room` said yes."""
        self._accepted += 1
        self._processor.on_end(span)

    def close(self, limit_s: float) -> bool:
        """Send what waits, for at most `limit_s`; then give up. True when everything was handed over in time.

        Blocks: for the end of a process, after its leases are released. What is left counts as dropped.
        """
        self._closing = True
        flush = threading.Thread(target=self._processor.shutdown, name="flush-spans", daemon=True)
        flush.start()
        flush.join(limit_s)
        in_time = not flush.is_alive()
        self._closed = True
        if not in_time:
            self._exporter.shutdown()  # ends its retry sleep and the call in flight
            flush.join(GIVE_UP_S)
            log.warning("gave up sending traces after %g s; %d spans dropped in all", limit_s, self.dropped)
        self._exporter.restore_library_logs()
        return in_time


class _CountingExporter(SpanExporter):
    """Counts what the exporter behind it took and lost, and says in one line when that changes."""

    def __init__(self, exporter: SpanExporter, target: str) -> None:
        self._exporter = exporter
        self._target = target
        self._working = True
        self._last_words = _LastWords()
        for name in _LIBRARY_LOGGERS:
            logging.getLogger(name).addFilter(self._last_words)
        self.taken = 0
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            result = SpanExportResult.FAILURE
            self._last_words.said = f"{type(error).__name__}: {error}"
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        self._tell(result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def restore_library_logs(self) -> None:
        for name in _LIBRARY_LOGGERS:
            logging.getLogger(name).removeFilter(self._last_words)

    def _tell(self, works: bool) -> None:
        if works and not self._working:
            log.warning("traces reach %s again; %d spans were dropped meanwhile", self._target, self.failed)
        elif not works and self._working:
            log.warning("traces do not reach %s, their spans are dropped: %s", self._target, self._last_words.said)
        self._working = works


class _LastWords(logging.Filter):
    """Keeps the library's own messages out of the log, and the last of them for our one line."""

    def __init__(self) -> None:
        super().__init__()
        self.said = "no reason given"

    def filter(self, record: logging.LogRecord) -> bool:
        self.said = record.getMessage()
        return False


def open_pipe(endpoint: str) -> SpanPipe:
    """A pipe to the OTLP/gRPC collector at `endpoint` (http://host:port, or https). Raises Invalid for another shape.

    The other standard variables (OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _TIMEOUT, …) are read by the exporter.
    """
    if not _is_endpoint(endpoint):
        raise Invalid("telemetry.otlp_endpoint", f"{endpoint!r} must look like http://host:4317 or https://host:4317")
    # Loaded only where traces are exported: it costs more than the rest of the telemetry together.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return SpanPipe(OTLPSpanExporter(endpoint=endpoint), target=endpoint)


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is no number
        return False
