"""Traces as a collector receives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from core.config import TelemetrySettings
from core.errors import Invalid
from core.states import AttemptOutcome, RunState
from core.telemetry.run_traces import TraceContext, attempt_context
from core.telemetry.tracing import RunRef, Tracing, start_tracing
from tests.support.otlp_collector import OtlpCollector

RUN_ID = UUID("0e2a019b-7c3f-8c00-4f3d-6a1e9b2c7d58")
ASKED_BY = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
CREATE = "tidewheel.v1.JobService/CreateJob"
DUE_US = 1_767_225_600_000_000
MS = 1_000


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as running:
        yield running


def tracing_to(collector: OtlpCollector, instance: str, ratio: float = 1.0) -> Tracing:
    settings = TelemetrySettings(otlp_endpoint=collector.endpoint, trace_sample_ratio=ratio)
    return start_tracing(settings, role="dispatcher", instance=instance, environ={})


async def close(*all_tracing: Tracing) -> None:
    for tracing in all_tracing:
        assert await asyncio.to_thread(tracing.close, 30.0)


def ref(term: int) -> RunRef:
    return RunRef(RUN_ID, "team-a", "nightly", 12, term, f"00-{ASKED_BY[0]}-{ASKED_BY[1]}-01")


def fire_and_fail(tracing: Tracing) -> None:
    """What the first owner knows of the run: fired, sent, failed."""
    run = ref(term=3)
    tracing.record_fire(
        run, attempt=1, waits_from_us=DUE_US, due_us=DUE_US, began_us=DUE_US + 2 * MS, committed_us=DUE_US + 4 * MS
    )
    tracing.record_dispatch(run, attempt=1, committed_us=DUE_US + 4 * MS, sent_us=DUE_US + 5 * MS)
    tracing.record_attempt(
        run,
        attempt=1,
        worker="worker-a",
        outcome=AttemptOutcome.FAILED,
        leased_us=DUE_US + 4 * MS,
        ended_us=DUE_US + 50 * MS,
        error="boom" * 200,
    )


def succeed(tracing: Tracing) -> None:
    """What the second owner knows of it: fired again, sent, succeeded, ended."""
    run, again_us = ref(term=4), DUE_US + 10_000 * MS
    tracing.record_fire(
        run,
        attempt=2,
        waits_from_us=DUE_US + 50 * MS,
        due_us=again_us,
        began_us=again_us,
        committed_us=again_us + 2 * MS,
    )
    tracing.record_dispatch(run, attempt=2, committed_us=again_us + 2 * MS, sent_us=again_us + 3 * MS)
    tracing.record_attempt(
        run,
        attempt=2,
        worker="worker-b",
        outcome=AttemptOutcome.SUCCEEDED,
        leased_us=again_us + 2 * MS,
        ended_us=again_us + 9 * MS,
    )
    tracing.record_run(
        run,
        handler="report",
        scheduled_for_us=DUE_US,
        ended_us=again_us + 9 * MS,
        state=RunState.SUCCEEDED,
        attempts=2,
    )


async def test_b128_one_trace_holds_both_attempts_and_links_to_the_request_though_the_owner_changed(
    collector: OtlpCollector,
) -> None:
    first, second = tracing_to(collector, "d-1"), tracing_to(collector, "d-2")
    fire_and_fail(first)
    succeed(second)
    await close(first, second)

    assert {span.trace_id for span in collector.spans} == {RUN_ID.hex}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans) == 9
    [root] = collector.named("run report")
    assert root.parent_span_id == ""
    assert (root.began_us, root.ended_us) == (DUE_US, DUE_US + 10_009 * MS)
    assert {span.parent_span_id for span in collector.spans if span is not root} == {root.span_id}
    [failed], [succeeded] = collector.named("attempt 1"), collector.named("attempt 2")
    assert root.links == failed.links == succeeded.links == (ASKED_BY,)
    for span in (root, failed, succeeded):
        assert span.attributes["tidewheel.run_id"] == str(RUN_ID)
        assert span.attributes["tidewheel.job"] == "nightly"
        assert span.attributes["tidewheel.namespace"] == "team-a"
        assert span.attributes["tidewheel.shard"] == 12
    assert (failed.attributes["tidewheel.term"], succeeded.attributes["tidewheel.term"]) == (3, 4)
    assert (failed.instance, succeeded.instance) == ("d-1", "d-2")
    assert failed.attributes["tidewheel.outcome"] == "failed"
    assert failed.error == "boom" * 64
    assert succeeded.error is root.error is None


async def test_the_parts_of_a_run_follow_each_other(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1")
    fire_and_fail(tracing)
    await close(tracing)
    shown = [(span.name, span.began_us - DUE_US, span.ended_us - DUE_US) for span in collector.trace(RUN_ID.hex)]
    assert sorted(shown, key=lambda part: part[2]) == [
        ("due", 0, 2 * MS),
        ("fire", 2 * MS, 4 * MS),
        ("dispatch", 4 * MS, 5 * MS),
        ("attempt 1", 4 * MS, 50 * MS),
    ]


async def test_a_handler_continues_the_span_of_its_attempt(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1")
    carried = tracing.attempt_traceparent(RUN_ID, 1)
    fire_and_fail(tracing)
    await close(tracing)
    [attempt] = collector.named("attempt 1")
    assert carried == f"00-{attempt.trace_id}-{attempt.span_id}-01" == attempt_context(RUN_ID, 1, 1.0).traceparent


async def test_a_span_that_is_recorded_twice_is_the_same_span(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1")
    fire_and_fail(tracing)
    fire_and_fail(tracing)
    await close(tracing)
    assert len(collector.spans) == 8
    assert len({(span.name, span.span_id) for span in collector.spans}) == 4


async def test_a_call_is_a_span_in_the_trace_of_its_caller(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "c-1", ratio=0.0)
    caller, here = (
        TraceContext(int(ASKED_BY[0], 16), int(ASKED_BY[1], 16), True),
        TraceContext(int(ASKED_BY[0], 16), 7, True),
    )
    tracing.record_call(here, caller, CREATE, DUE_US, DUE_US + 3 * MS, "OK", flawed=False)
    await close(tracing)
    [span] = collector.named(CREATE)
    assert (span.trace_id, span.parent_span_id, span.span_id) == (*ASKED_BY, f"{7:016x}")
    assert (span.kind, span.error, span.began_us, span.ended_us) == ("server", None, DUE_US, DUE_US + 3 * MS)
    assert span.attributes == {
        "rpc.system": "grpc",
        "rpc.service": "tidewheel.v1.JobService",
        "rpc.method": "CreateJob",
        "rpc.grpc.status_code": "OK",
    }


async def test_a_call_that_the_server_failed_is_an_error(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "c-1")
    tracing.record_call(TraceContext(5, 6, True), None, CREATE, DUE_US, DUE_US, "INTERNAL", flawed=True)
    await close(tracing)
    assert [(span.error, span.parent_span_id) for span in collector.spans] == [("INTERNAL", "")]


async def test_calls_are_sampled_by_their_caller_or_else_as_runs_are(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "c-1", ratio=0.5)
    kept, lost = 1, (1 << 64) - 1
    for trace_id in (kept, lost):
        tracing.record_call(TraceContext(trace_id, 2, True), None, CREATE, DUE_US, DUE_US, "OK", flawed=False)
    tracing.record_call(
        TraceContext(kept, 3, False), TraceContext(kept, 4, False), CREATE, DUE_US, DUE_US, "OK", flawed=False
    )
    await close(tracing)
    assert [(span.trace_id, span.span_id) for span in collector.spans] == [(f"{kept:032x}", f"{2:016x}")]


async def test_runs_outside_the_sample_leave_no_span(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1", ratio=0.0)
    fire_and_fail(tracing)
    await close(tracing)
    assert collector.requests == 0
    assert (tracing.dropped, tracing.exported) == (0, 0)


async def test_a_job_of_a_caller_without_a_trace_has_no_link(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1")
    run = RunRef(RUN_ID, "team-a", "nightly", 12, 3, origin="not a traceparent")
    tracing.record_run(
        run,
        handler="report",
        scheduled_for_us=DUE_US,
        ended_us=DUE_US - 1,
        state=RunState.DEAD,
        attempts=4,
        error="boom",
    )
    await close(tracing)
    [root] = collector.spans
    assert root.links == ()
    assert root.error == "boom"
    assert root.began_us == root.ended_us, "no span ends before it began"


async def test_what_was_sent_and_dropped_is_counted(collector: OtlpCollector) -> None:
    tracing = tracing_to(collector, "d-1")
    fire_and_fail(tracing)
    await close(tracing)
    assert (tracing.exported, tracing.dropped) == (4, 0)
    fire_and_fail(tracing)
    assert (tracing.exported, tracing.dropped) == (4, 4), "after the end nothing leaves any more"


def test_without_an_endpoint_nothing_is_traced() -> None:
    tracing = start_tracing(TelemetrySettings(), role="dispatcher", instance="d-1", environ={})
    assert not tracing.enabled
    assert tracing.attempt_traceparent(RUN_ID, 1) == tracing.run_traceparent(RUN_ID) == ""
    fire_and_fail(tracing)
    assert tracing.close(1.0)
    assert (tracing.exported, tracing.dropped) == (0, 0)


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
async def test_the_standard_variables_name_the_collector(collector: OtlpCollector, name: str) -> None:
    tracing = start_tracing(
        TelemetrySettings(), role="controlplane", instance="c-1", environ={name: collector.endpoint}
    )
    succeed(tracing)
    await close(tracing)
    assert {(span.service, span.instance) for span in collector.spans} == {("tidewheel-controlplane", "c-1")}


@pytest.mark.parametrize(
    "endpoint", ["jaeger:4317", "grpc://jaeger:4317", "http://", "nonsense", "http://a:port", "http://[::1"]
)
def test_an_endpoint_that_is_none_is_refused_by_name(endpoint: str) -> None:
    with pytest.raises(Invalid, match=r"telemetry\.otlp_endpoint"):
        start_tracing(TelemetrySettings(otlp_endpoint=endpoint), role="dispatcher", instance="d-1", environ={})
