"""Identities of traces and spans, and the W3C traceparent that carries them. Pure.

The trace of a run is its run id: nothing has to be stored, every process that knows the run knows its trace, and
whoever has a run id can paste it (without its dashes) into the tracing system's search. Span ids are derived from the
run id and the span's name, so that a span reported twice is one span, and a worker's handler span finds its parent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LOW_64 = (1 << 64) - 1
# Odd, so that multiples of it are all different modulo 2^64; its bits are well mixed (2^64 over the golden ratio).
_STRIDE = 0x9E37_79B9_7F4A_7C15


class Part(IntEnum):
    """The spans of a run; all but RUN exist once an attempt. Below 8: see `span_id`."""

    RUN = 0
    DUE = 1
    FIRE = 2
    DISPATCH = 3
    ATTEMPT = 4


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where a span stands: its trace, itself, and whether the trace is kept."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.sampled else '00'}"


@dataclass(frozen=True, slots=True)
class RunTrace:
    """The trace of one run."""

    trace_id: int
    root_span_id: int
    sampled: bool

    @property
    def traceparent(self) -> str:
        return TraceContext(self.trace_id, self.root_span_id, self.sampled).traceparent


def run_trace(run_id: UUID, sample_ratio: float) -> RunTrace:
    """The trace of a run, of which the share `sample_ratio` is kept (the same runs in every process)."""
    return RunTrace(run_id.int, span_id(run_id, Part.RUN), is_sampled(run_id.int, sample_ratio))


def is_sampled(trace_id: int, sample_ratio: float) -> bool:
    """Whether a trace is kept, by its lower 64 bits, which are a digest or random."""
    return (trace_id & _LOW_64) < sample_ratio * (1 << 64)


def span_id(run_id: UUID, part: Part, attempt: int = 0) -> int:
    """The id of one span of a run, never 0: steps from the run id's digest. A hash would cost more than all the rest of
    an assignment's trace context, and this is no less unique."""
    return (run_id.int + (attempt * 8 + part + 1) * _STRIDE) & _LOW_64 or 1


def attempt_context(run_id: UUID, attempt: int, sample_ratio: float) -> TraceContext:
    """Where the span of an attempt stands: the parent of the handler's span."""
    return TraceContext(run_id.int, span_id(run_id, Part.ATTEMPT, attempt), is_sampled(run_id.int, sample_ratio))


def parse_traceparent(text: str) -> TraceContext | None:
    """The context in a traceparent header; None where it is empty or not one (then it is ignored, as W3C asks)."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (found[1] == "00" and found[5]):
        return None
    return TraceContext(int(found[2], 16), int(found[3], 16), bool(int(found[4], 16) & 1))
