"""Runs as messages: what they look like now, with the trace that tracing keeps of them."""

from __future__ import annotations

from tidewheel.v1 import run_pb2

from controlplane.api.encode import encode_run
from controlplane.seams import CallTracing
from core.clock import Clock
from core.store.runs import RunRecord


class RunViews:
    """Renders runs."""

    def __init__(self, clock: Clock, tracing: CallTracing) -> None:
        self._clock = clock
        self._tracing = tracing

    def shown(self, run: RunRecord) -> run_pb2.Run:
        """The run as a message."""
        return encode_run(run, now_us=self._clock.now_us(), traceparent=self._tracing.run_traceparent)

    def rendered(self, run: RunRecord) -> bytes:
        """The run as the bytes of its message."""
        return self.shown(run).SerializeToString()
