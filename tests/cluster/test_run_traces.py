"""Case B128 on a whole system: every attempt is linked to the request that made the job, over a failover too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import grpc
import pytest
import pytest_asyncio
from tidewheel import At, Every, RetryPolicy
from tidewheel.policies import retry_message
from tidewheel.schedules import schedule_message
from tidewheel.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc

from tests.support.live_system import LiveSystem, Size
from tests.support.otlp_collector import CollectedSpan, OtlpCollector
from tests.support.polling import eventually
from tools.servers.homes import temporary_home

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHIN_S = 60.0
CREATE = "tidewheel.v1.JobService/CreateJob"
# Fails once, then succeeds.
FLAKY = b'{"argv": ["sh", "-c", "test $TIDEWHEEL_ATTEMPT -ge 2"]}'


@dataclass(frozen=True)
class Traced:
    """A system of one control plane, two dispatchers and a worker for commands, and what its spans are sent to."""

    system: LiveSystem
    collector: OtlpCollector

    async def create(self, trace_id: str, span_id: str, job: job_pb2.Job) -> CollectedSpan:
        """Register a job as a client does that traces; returns the span of that call."""
        async with grpc.aio.insecure_channel(self.system.control_planes[0].address) as channel:
            await job_service_pb2_grpc.JobServiceStub(channel).CreateJob(
                job_service_pb2.CreateJobRequest(job=job, request_id=job.name),
                metadata=(("traceparent", f"00-{trace_id}-{span_id}-01"),),
            )
        await eventually(lambda: self.collector.trace(trace_id), WITHIN_S, what="the span of the call arrives")
        (call,) = self.collector.trace(trace_id)
        assert (call.name, call.kind, call.parent_span_id) == (CREATE, "server", span_id)
        return call


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced() -> AsyncIterator[Traced]:
    with temporary_home() as home:
        async with OtlpCollector() as collector:
            environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
            async with LiveSystem(home, environ, Size(control_planes=1, workers=0)) as system:
                system.fleet.start_worker("exec-worker")
                yield Traced(system, collector)


async def test_b128_both_attempts_are_linked_to_the_creating_request_over_a_failover(traced: Traced) -> None:
    system, collector = traced.system, traced.collector
    soon = datetime.now(UTC) + timedelta(seconds=4)  # the call comes before it on a busy machine too
    job = job_pb2.Job(name="flaky", handler="exec", payload=FLAKY, payload_type="application/json")
    job.schedule.CopyFrom(schedule_message(At(soon)))
    job.retry.CopyFrom(retry_message(RetryPolicy(first_delay=timedelta(seconds=10), jitter=0.0)))
    call = await traced.create("5e" * 16, "ab" * 8, job)

    first = await collector.span("attempt 1", WITHIN_S, tidewheel__job="flaky")
    await collector.span("tidewheel.handler exec", WITHIN_S, tidewheel__job="flaky", tidewheel__attempt=1)
    (owner,) = [each for each in system.dispatchers if system.owner_id(each) == first.instance]
    system.fleet.kill(owner)

    root = await collector.span("run exec", WITHIN_S, tidewheel__job="flaky")
    second = await collector.span("attempt 2", WITHIN_S, tidewheel__job="flaky")
    await collector.span("tidewheel.handler exec", WITHIN_S, tidewheel__job="flaky", tidewheel__attempt=2)
    assert second.instance != first.instance, "the failover lay in between"
    asked_by = ((call.trace_id, call.span_id),)
    assert root.links == first.links == second.links == asked_by
    assert first.parent_span_id == second.parent_span_id == root.span_id
    assert (first.attributes["tidewheel.outcome"], second.attributes["tidewheel.outcome"]) == ("failed", "succeeded")
    assert first.error
    assert (root.attributes["tidewheel.state"], root.attributes["tidewheel.attempts"]) == ("succeeded", 2)

    (run,) = await system.rows("SELECT run_id FROM runs r JOIN jobs j ON j.job_id = r.job_id WHERE j.name = 'flaky'")
    trace = collector.trace(run["run_id"].hex)
    assert {span.attributes["tidewheel.run_id"] for span in trace} == {str(run["run_id"])}
    for attempt in (first, second):
        number = attempt.attributes["tidewheel.attempt"]
        (handler,) = [span for span in trace if span.parent_span_id == attempt.span_id]
        assert (handler.name, handler.service) == ("tidewheel.handler exec", "tidewheel-worker")
        assert handler.attributes["tidewheel.attempt"] == number
        stages = [span for span in trace if span.name in ("due", "fire", "dispatch")]
        assert {"due", "fire", "dispatch"} == {s.name for s in stages if s.attributes["tidewheel.attempt"] == number}
    assert len(collector.trace(call.trace_id)) == 1, "the caller's trace did not grow"


async def test_b128_each_run_of_a_recurring_job_has_a_trace_of_its_own(traced: Traced) -> None:
    collector = traced.collector
    job = job_pb2.Job(name="ticking", handler="exec", payload=b'{"argv": ["true"]}', payload_type="application/json")
    job.schedule.CopyFrom(schedule_message(Every(timedelta(seconds=1))))
    call = await traced.create("6f" * 16, "cd" * 8, job)

    def roots() -> list[CollectedSpan]:
        return collector.named("run exec", tidewheel__job="ticking")

    await eventually(lambda: len(roots()) >= 3, WITHIN_S, what="three runs have ended")
    assert {root.links for root in roots()} == {((call.trace_id, call.span_id),)}, "all linked to the job's creation"
    assert len({root.trace_id for root in roots()}) == len(roots()), "no endless trace"
    for root in roots():
        assert root.trace_id == str(root.attributes["tidewheel.run_id"]).replace("-", "")
        assert root.parent_span_id == ""
    assert len(collector.trace(call.trace_id)) == 1
