"""Identities of traces: derived from the run id, equal in every process."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.ids import occurrence_run_id
from core.telemetry.run_traces import TraceContext, attempt_context, parse_traceparent, run_trace

RUN = UUID("0e2a019b-7c3f-8c00-4f3d-6a1e9b2c7d58")
TRACE = "0e2a019b7c3f8c004f3d6a1e9b2c7d58"
SPAN = "00f067aa0ba902b7"


def test_the_trace_id_of_a_run_is_its_run_id_without_dashes() -> None:
    trace = run_trace(RUN, 1.0)
    assert f"{trace.trace_id:032x}" == TRACE
    assert trace.traceparent == f"00-{TRACE}-{trace.root_span_id:016x}-01"


def test_every_attempt_has_a_span_of_its_own_that_all_processes_know() -> None:
    spans = [attempt_context(RUN, attempt, 1.0) for attempt in range(1, 100)]
    assert spans == [attempt_context(RUN, attempt, 1.0) for attempt in range(1, 100)]
    assert len({span.span_id for span in spans} | {run_trace(RUN, 1.0).root_span_id}) == 100
    assert {span.trace_id for span in spans} == {RUN.int}


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.0, 0, 0), (0.01, 1, 60), (0.5, 800, 1_200), (1.0, 2_000, 2_000)])
def test_a_sampled_share_of_the_runs_is_kept(ratio: float, low: int, high: int) -> None:
    job = UUID(int=7)
    runs = [occurrence_run_id(job, 99, 1_700_000_000_000_000 + second * 1_000_000) for second in range(2_000)]
    kept = [run for run in runs if run_trace(run, ratio).sampled]
    assert low <= len(kept) <= high
    assert all(run_trace(run, max(ratio, 0.6)).sampled for run in kept), "a higher ratio keeps what a lower one kept"


def test_a_run_that_is_not_kept_says_so_to_its_handler() -> None:
    assert attempt_context(RUN, 1, 0.0).traceparent.endswith("-00")


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(RUN.int, 0x00F067AA0BA902B7, True)),
        (f"00-{TRACE}-{SPAN}-00", TraceContext(RUN.int, 0x00F067AA0BA902B7, False)),
        (f"00-{TRACE}-{SPAN}-03", TraceContext(RUN.int, 0x00F067AA0BA902B7, True)),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", TraceContext(RUN.int, 0x00F067AA0BA902B7, True)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f" 00-{TRACE}-{SPAN}-01", None),
        ("", None),
        ("🌊" * 100, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_says_and_anything_else_is_ignored(
    text: str, context: TraceContext | None
) -> None:
    assert parse_traceparent(text) == context
