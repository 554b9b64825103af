"""Cases B125 and B126: a collector that is dead costs neither time nor memory, and the process ends on time."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

from core.config import TelemetrySettings
from core.states import RunState
from core.telemetry.spans import BATCH_LIMIT, QUEUE_LIMIT
from core.telemetry.tracing import RunRef, Tracing, start_tracing
from tests.support.otlp_collector import OtlpCollector, absent_collector, silent_collector
from tests.support.polling import eventually

# The process says when it begins to close and when it has closed; then it ends.
ENDING_PROCESS = """
import sys
from core.config import TelemetrySettings
from core.telemetry.tracing import start_tracing
from tests.unit.telemetry.test_dead_collectors import record

tracing = start_tracing(TelemetrySettings(otlp_endpoint=sys.argv[1]), role="dispatcher", instance="d-1", environ={})
record(tracing, 2_000)
print("closing", flush=True)
tracing.close(limit_s=1.0)
print("closed", tracing.dropped, flush=True)
"""


@pytest.fixture(params=["refuses", "never says a byte", "takes calls and never answers"])
async def dead_endpoint(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if request.param == "refuses":
            yield stack.enter_context(absent_collector())
        elif request.param == "never says a byte":
            yield await stack.enter_async_context(silent_collector())
        else:
            collector = await stack.enter_async_context(OtlpCollector())
            collector.answering.clear()
            yield collector.endpoint


def tracing_to(endpoint: str) -> Tracing:
    return start_tracing(TelemetrySettings(otlp_endpoint=endpoint), role="dispatcher", instance="d-1", environ={})


def record(tracing: Tracing, runs: int) -> None:
    """The root spans of so many runs."""
    for number in range(runs):
        run = RunRef(UUID(int=number + 1), "default", f"job-{number}", 1, 1)
        tracing.record_run(
            run, handler="work", scheduled_for_us=0, ended_us=1_000, state=RunState.SUCCEEDED, attempts=1
        )


async def test_b125_a_process_ends_within_its_limit_though_the_collector_is_dead(dead_endpoint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDING_PROCESS, dead_endpoint, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"closing\n"
        closed = await asyncio.wait_for(process.stdout.readline(), 8)
        assert closed == b"closed 2000\n"
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_b126_recording_never_waits_for_a_dead_collector(dead_endpoint: str) -> None:
    tracing = tracing_to(dead_endpoint)
    record(tracing, BATCH_LIMIT)  # the exporter's thread is at work on a whole batch from here on
    longest_s = 0.0
    for _ in range(40):
        began_s = time.monotonic()
        record(tracing, 10)  # 200 a second
        await asyncio.sleep(0.05)
        longest_s = max(longest_s, time.monotonic() - began_s)
    assert longest_s < 5.0, "the event loop stood still"  # an export takes ten seconds until it is given up
    await asyncio.to_thread(tracing.close, 0.1)
    assert tracing.dropped == BATCH_LIMIT + 400
    assert tracing.exported == 0


async def test_b126_memory_stays_flat_and_every_span_too_many_is_counted() -> None:
    async with silent_collector() as endpoint:
        tracing = tracing_to(endpoint)
        offered = 0

        def full_behind_a_batch_under_way() -> bool:
            nonlocal offered
            offered += QUEUE_LIMIT
            record(tracing, QUEUE_LIMIT)
            return offered - tracing.dropped == QUEUE_LIMIT + BATCH_LIMIT

        await eventually(full_behind_a_batch_under_way)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            record(tracing, 50_000)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 1_000_000
        assert tracing.dropped >= 50_000
        await asyncio.to_thread(tracing.close, 0.1)
        assert tracing.dropped == offered + 50_000


async def test_a_collector_that_comes_back_gets_the_spans_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with OtlpCollector() as collector:
            tracing = tracing_to(collector.endpoint)
            collector.refusing = True
            record(tracing, 1)
            await eventually(lambda: tracing.dropped == 1)
            record(tracing, 1)
            await eventually(lambda: tracing.dropped == 2)
            collector.refusing = False
            record(tracing, 3)
            await eventually(lambda: tracing.exported == 3)
            assert await asyncio.to_thread(tracing.close, 30.0)
    said = [
        entry.getMessage() for entry in caplog.records if entry.name.startswith(("core.telemetry", "opentelemetry"))
    ]
    assert len(said) == 2, "one line when it breaks, one when it works again"
    assert said[0].startswith(f"traces do not reach {collector.endpoint}, their spans are dropped: ")
    assert "PERMISSION_DENIED" in said[0]
    assert said[1] == f"traces reach {collector.endpoint} again; 2 spans were dropped meanwhile"
