"""Traces: one a run, told when its parts are over, and one span an API call. Nothing is exported without an endpoint.

The server's spans of a run have ids derived from the run id (core/telemetry/run_traces): no span object lives beside a
run, and a run that one dispatcher fired and another completed still has one whole trace. Whoever ends the run records
its root. Built once by each role's main function; called by the dispatcher's loops and by the API.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from core.config import TelemetrySettings
from core.states import AttemptOutcome, RunState
from core.telemetry.run_traces import (
    Part,
    RunTrace,
    TraceContext,
    attempt_context,
    is_sampled,
    parse_traceparent,
    run_trace,
    span_id,
)
from core.telemetry.spans import SpanPipe, open_pipe

__all__ = ["RunRef", "RunTrace", "Tracing", "run_trace", "start_tracing"]

_SCOPE = InstrumentationScope("tidewheel")
_SHOWN_ERROR_CHARACTERS = 256
_FLAWED_OUTCOMES = frozenset({AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST})
_FLAWED_STATES = frozenset({RunState.FAILED, RunState.DEAD})
_UNSET = Status(StatusCode.UNSET)


@dataclass(frozen=True, slots=True)
class RunRef:
    """What every span of a run says about it.

    `origin` is the traceparent of the request that triggered the run, else of the one that made the job's version.
    """

    run_id: UUID
    namespace: str
    job: str
    shard: int
    term: int
    origin: str = ""


class Tracing:
    """Records finished spans; instants are microseconds since the epoch. No method waits for anything but `close`."""

    def __init__(self, pipe: SpanPipe | None, resource: Resource, sample_ratio: float) -> None:
        self._pipe = pipe
        self._resource = resource
        self.sample_ratio = sample_ratio

    @property
    def enabled(self) -> bool:
        """False without an endpoint; callers on a hot path ask it once a batch."""
        return self._pipe is not None

    @property
    def dropped(self) -> int:
        """Spans that did not reach the collector, since the start."""
        return self._pipe.dropped if self._pipe else 0

    @property
    def exported(self) -> int:
        """Spans that the collector took, since the start."""
        return self._pipe.exported if self._pipe else 0

    def run_traceparent(self, run_id: UUID) -> str:
        """What the API shows of a run; empty while tracing is off."""
        return run_trace(run_id, self.sample_ratio).traceparent if self._pipe else ""

    def attempt_traceparent(self, run_id: UUID, attempt: int) -> str:
        """What an assignment carries, and the handler's span continues. Empty while tracing is off, so that a worker
        with an exporter of its own begins a trace of its own."""
        return attempt_context(run_id, attempt, self.sample_ratio).traceparent if self._pipe else ""

    def record_fire(
        self, run: RunRef, *, attempt: int, waits_from_us: int, due_us: int, began_us: int, committed_us: int
    ) -> None:
        """A due row was fired: span "due" from `waits_from_us` (scheduled_for; for a retry, the end of the attempt
        before) until firing began, and span "fire" until its commit."""
        if self._takes(run, spans=2):
            said = {"tidewheel.attempt": attempt, "tidewheel.lateness_ms": max(0, committed_us - due_us) / 1000}
            self._put_part(run, Part.DUE, attempt, (waits_from_us, began_us), said)
            self._put_part(run, Part.FIRE, attempt, (began_us, committed_us), said)

    def record_dispatch(self, run: RunRef, *, attempt: int, committed_us: int, sent_us: int) -> None:
        """An attempt was sent: span "dispatch" from the commit that made it possible until it left for the worker."""
        if self._takes(run, spans=1):
            self._put_part(run, Part.DISPATCH, attempt, (committed_us, sent_us), {"tidewheel.attempt": attempt})

    def record_attempt(
        self,
        run: RunRef,
        *,
        attempt: int,
        worker: str,
        outcome: AttemptOutcome,
        leased_us: int,
        ended_us: int,
        error: str = "",
    ) -> None:
        """An attempt ended: span "attempt n", the parent of the handler's span."""
        if not self._takes(run, spans=1):
            return
        self._put(
            f"attempt {attempt}",
            attempt_context(run.run_id, attempt, self.sample_ratio),
            self._root(run),
            (leased_us, ended_us),
            {
                **_attributes(run),
                "tidewheel.attempt": attempt,
                "tidewheel.worker": worker,
                "tidewheel.outcome": outcome.name.lower(),
            },
            kind=SpanKind.PRODUCER,
            status=_status(outcome in _FLAWED_OUTCOMES, error),
            origin=run.origin,
        )

    def record_run(
        self,
        run: RunRef,
        *,
        handler: str,
        scheduled_for_us: int,
        ended_us: int,
        state: RunState,
        attempts: int,
        error: str = "",
    ) -> None:
        """A run ended: the root span "run <handler>", linked to the request that made the job or the run."""
        if not self._takes(run, spans=1):
            return
        self._put(
            f"run {handler}",
            self._root(run),
            None,
            (scheduled_for_us, ended_us),
            {
                **_attributes(run),
                "tidewheel.handler": handler,
                "tidewheel.attempts": attempts,
                "tidewheel.state": state.name.lower(),
            },
            status=_status(state in _FLAWED_STATES, error),
            origin=run.origin,
        )

    def record_call(
        self,
        here: TraceContext,
        parent: TraceContext | None,
        name: str,
        began_us: int,
        ended_us: int,
        code: str,
        flawed: bool,
    ) -> None:
        """An API call ended: its server span. `name` is package.Service/Method, `code` the name of a gRPC status.

        It is kept if its caller keeps the trace; a call that begins a trace of its own is sampled as runs are.
        """
        sampled = here.sampled if parent else is_sampled(here.trace_id, self.sample_ratio)
        if self._pipe is None or not sampled or not self._pipe.has_room(1):
            return
        service, _, method = name.rpartition("/")
        said = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, "rpc.grpc.status_code": code}
        kept = TraceContext(here.trace_id, here.span_id, sampled=True)
        self._put(name, kept, parent, (began_us, ended_us), said, kind=SpanKind.SERVER, status=_status(flawed, code))

    def close(self, limit_s: float) -> bool:
        """Send what waits within `limit_s`, then give up; true when all was sent. It blocks: call it at the very end,
        after the leases are released and off the event loop."""
        return self._pipe.close(limit_s) if self._pipe else True

    def _takes(self, run: RunRef, *, spans: int) -> bool:
        if self._pipe is None or not is_sampled(run.run_id.int, self.sample_ratio):
            return False
        return self._pipe.has_room(spans)

    def _root(self, run: RunRef) -> TraceContext:
        trace = run_trace(run.run_id, self.sample_ratio)
        return TraceContext(trace.trace_id, trace.root_span_id, trace.sampled)

    def _put_part(
        self, run: RunRef, part: Part, attempt: int, span_us: tuple[int, int], said: Mapping[str, AttributeValue]
    ) -> None:
        root = self._root(run)
        here = TraceContext(root.trace_id, span_id(run.run_id, part, attempt), root.sampled)
        self._put(part.name.lower(), here, root, span_us, {**_attributes(run), **said})

    def _put(
        self,
        name: str,
        here: TraceContext,
        parent: TraceContext | None,
        span_us: tuple[int, int],
        attributes: Mapping[str, AttributeValue],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        status: Status = _UNSET,
        origin: str = "",
    ) -> None:
        assert self._pipe is not None, "recorded while tracing is off"
        began_us, ended_us = span_us
        asked_by = parse_traceparent(origin) if origin else None
        self._pipe.put(
            ReadableSpan(
                name,
                context=_context(here, is_remote=False),
                parent=_context(parent, is_remote=True) if parent else None,
                resource=self._resource,
                attributes=attributes,
                links=(Link(_context(asked_by, is_remote=True)),) if asked_by else (),
                kind=kind,
                status=status,
                start_time=began_us * 1000,
                end_time=max(began_us, ended_us) * 1000,
                instrumentation_scope=_SCOPE,
            )
        )


def start_tracing(
    settings: TelemetrySettings, *, role: str, instance: str, environ: Mapping[str, str] = os.environ
) -> Tracing:
    """Tracing of one process, on if there is an endpoint.

    `role` becomes part of service.name, `instance` is service.instance.id. Raises Invalid for an endpoint that is none.
    """
    endpoint = endpoint_of(settings, environ)
    resource = Resource.create({"service.name": f"tidewheel-{role}", "service.instance.id": instance})
    return Tracing(open_pipe(endpoint) if endpoint else None, resource, settings.trace_sample_ratio)


def endpoint_of(settings: TelemetrySettings, environ: Mapping[str, str]) -> str:
    """The collector's URL: that of the settings, else of OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT; empty: do not trace."""
    return (
        settings.otlp_endpoint
        or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
        or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    )


def _attributes(run: RunRef) -> dict[str, AttributeValue]:
    return {
        "tidewheel.run_id": str(run.run_id),
        "tidewheel.namespace": run.namespace,
        "tidewheel.job": run.job,
        "tidewheel.shard": run.shard,
        "tidewheel.term": run.term,
    }


def _context(of: TraceContext, *, is_remote: bool) -> SpanContext:
    return SpanContext(of.trace_id, of.span_id, is_remote, TraceFlags(TraceFlags.SAMPLED if of.sampled else 0))


def _status(flawed: bool, error: str) -> Status:
    return Status(StatusCode.ERROR, error[:_SHOWN_ERROR_CHARACTERS]) if flawed else _UNSET
