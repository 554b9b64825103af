"""A shell command's trace, from the API call to the handler in the exec worker, and the end with a dead collector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.store.migrations import migrate
from tests.support.command import environment, tidewheel
from tests.support.otlp_collector import OtlpCollector, absent_collector
from tests.support.polling import eventually
from tools.fleet import Fleet, until_served
from tools.servers.embedded import Backing

END_WITHIN_S = 30.0


@asynccontextmanager
async def fleet_that_exports_to(endpoint: str) -> AsyncIterator[Fleet]:
    """One process of each role, all told of the collector by the standard variable."""
    with Backing() as backing:
        await migrate(backing.database_url)
        fleet = Fleet(backing, backing.home / "log", environment({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}))
        try:
            fleet.start_control_plane()
            fleet.start_dispatcher()
            fleet.start_worker()
            await until_served(fleet, dispatchers=1)
            yield fleet
        finally:
            await asyncio.to_thread(fleet.stop)


async def triggered(fleet: Fleet) -> str:
    """The id of a run that has succeeded."""

    async def call(*words: str) -> dict[str, str]:
        done = await asyncio.to_thread(tidewheel, *words, "-o", "json", "--address", fleet.addresses)
        document: dict[str, str] = done.document
        return document

    payload = json.dumps({"argv": ["true"]})
    await call("job", "create", "traced", "--handler", "exec", "--payload", payload)
    run_id = (await call("job", "trigger", "traced"))["runId"]

    async def succeeded() -> bool:
        return (await call("run", "get", run_id))["state"] == "RUN_STATE_SUCCEEDED"

    await eventually(succeeded, within_s=30)
    return run_id


async def test_b128_a_commands_span_is_a_child_of_its_attempt_in_the_runs_own_trace() -> None:
    async with OtlpCollector() as collector, fleet_that_exports_to(collector.endpoint) as fleet:
        run_id = await triggered(fleet)
        handler = await collector.span("tidewheel.handler exec", tidewheel__job="traced")
        attempt = await collector.span("attempt 1", tidewheel__run_id=run_id)
        await collector.span("run exec", tidewheel__run_id=run_id)
    assert handler.trace_id == attempt.trace_id == run_id.replace("-", "")
    assert handler.parent_span_id == attempt.span_id
    assert handler.service == "tidewheel-worker"
    assert handler.attributes["tidewheel.run_id"] == run_id


async def test_b125_every_role_ends_well_although_the_collector_is_away() -> None:
    with absent_collector() as endpoint:
        async with fleet_that_exports_to(endpoint) as fleet:
            await triggered(fleet)
            for member in list(fleet.members)[::-1]:
                member.child.process.terminate()
                assert await asyncio.to_thread(member.child.process.wait, END_WITHIN_S) == 0, member.name
