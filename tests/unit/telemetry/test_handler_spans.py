"""The span of a handler in a worker of ours: a child of its attempt's, and no burden while the collector is dead."""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

from core.config import TelemetrySettings
from core.states import AttemptOutcome
from core.telemetry.tracing import RunRef, start_tracing
from tests.support.otlp_collector import OtlpCollector, silent_collector

RUN_ID = UUID("0e2a019b-7c3f-8c00-4f3d-6a1e9b2c7d58")

# A tracer provider is made once a process, so each case runs in one of its own. The SDK opens the span.
WORKER = """
import sys
from types import SimpleNamespace
from core.config import TelemetrySettings
from core.telemetry.handler_spans import export_handler_spans
from tidewheel.tracing import handler_tracer

spans = export_handler_spans(TelemetrySettings(otlp_endpoint=sys.argv[1]), role="worker", instance="w-1", environ={})
tracer = handler_tracer()
context = SimpleNamespace(
    traceparent=sys.argv[2], handler="exec", namespace="n", job="j", job_id="", run_id="r", attempt=1, queue="q"
)
if tracer is None:
    print("untraced")
else:
    with tracer.span(context):
        pass
    print(spans.close(float(sys.argv[3])))
"""


async def run_worker(endpoint: str, traceparent: str, limit_s: float = 30.0) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, endpoint, traceparent, str(limit_s)), stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return said.decode().strip()


async def test_a_handler_s_span_is_a_child_of_its_attempt_s() -> None:
    async with OtlpCollector() as collector:
        settings = TelemetrySettings(otlp_endpoint=collector.endpoint)
        dispatcher = start_tracing(settings, role="dispatcher", instance="d-1", environ={})
        assert await run_worker(collector.endpoint, dispatcher.attempt_traceparent(RUN_ID, 1)) == "True"
        dispatcher.record_attempt(
            RunRef(RUN_ID, "n", "j", 1, 1),
            attempt=1,
            worker="w-1",
            outcome=AttemptOutcome.SUCCEEDED,
            leased_us=1,
            ended_us=2,
        )
        assert await asyncio.to_thread(dispatcher.close, 30.0)
        attempt = await collector.span("attempt 1")
        handler = await collector.span("tidewheel.handler exec")
    assert (handler.trace_id, handler.parent_span_id) == (RUN_ID.hex, attempt.span_id)
    assert (handler.service, handler.instance) == ("tidewheel-worker", "w-1")


async def test_the_handler_of_a_run_outside_the_sample_leaves_no_span() -> None:
    async with OtlpCollector() as collector:
        assert await run_worker(collector.endpoint, f"00-{RUN_ID.hex}-{7:016x}-00") == "True"
        assert collector.spans == []


async def test_b125_a_worker_ends_on_time_though_the_collector_is_dead() -> None:
    async with silent_collector() as endpoint:
        assert await run_worker(endpoint, f"00-{RUN_ID.hex}-{7:016x}-01", limit_s=1.0) == "False"


async def test_without_an_endpoint_handlers_are_not_traced() -> None:
    assert await run_worker("", "") == "untraced"
