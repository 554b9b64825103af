"""Case B87: a worker that was frozen comes back after its run was given to another; nothing that it says counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from tidewheel import Client, RetryPolicy
from tidewheel.v1.worker_service_pb2 import VERDICT_ACCEPTED, VERDICT_STALE

from tests.support.live_system import LiveSystem, Size
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker
from tools.servers.homes import temporary_home

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = RetryPolicy(first_delay=timedelta(milliseconds=100), max_attempts=4)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[LiveSystem]:
    """One control plane, one dispatcher, two workers; the lease of an attempt is 3 s."""
    with temporary_home() as home:
        async with LiveSystem(home, size=Size(control_planes=1, dispatchers=1)) as system:
            yield system


async def test_b87_a_worker_frozen_in_the_middle_of_a_run_is_replaced_and_told_to_stop(live: LiveSystem) -> None:
    async with live.client() as client:
        await client.create_job("work", handler="slow", payload="60,0.5", retry=AT_ONCE)
        run = await client.trigger_job("work")
        (first,) = await eventually(lambda: live.starts("work"), within_s=20, what="the run starts")
        frozen = live.workers[first.worker]
        frozen.freeze()
        try:
            await eventually(lambda: _state(client, run.run_id, "SUCCEEDED"), within_s=40, what="another one does it")
        finally:
            frozen.thaw()
        (stopped,) = await eventually(lambda: live.noted("stop", "work"), within_s=20, what="its handler is told to")
        assert (stopped.worker, stopped.attempt) == (first.worker, 1)

        first_start, second_start = live.starts("work")
        assert second_start.worker != first_start.worker
        assert second_start.fencing > first_start.fencing, "a sink that compares refuses the older one"
        await _stands(client, run.run_id, result=f"done by {second_start.worker}".encode())
        # It is a sound worker again: with the other one gone, it does the next run.
        live.kill_worker(second_start.worker)
        await client.create_job("next", handler="record")
        following = await client.trigger_job("next")
        await eventually(lambda: _state(client, following.run_id, "SUCCEEDED"), within_s=30)
        assert {start.worker for start in live.starts("next")} == {first.worker}


async def test_b87_heartbeat_progress_and_result_of_a_stale_attempt_are_refused(live: LiveSystem) -> None:
    address = live.dispatchers[0].address
    async with live.client() as client:
        await client.create_job("slow-lane", handler="scripted", retry=AT_ONCE)
        async with ScriptedWorker(address, "silent", ["scripted"]) as silent:
            await silent.grant(1)
            run = await client.trigger_job("slow-lane")
            old = (await silent.assignment(attempt=1)).ref
            async with ScriptedWorker(address, "steady", ["scripted"]) as steady:
                await steady.grant(1)
                async with steady.beating():
                    new = (await steady.assignment(attempt=2)).ref
                    assert new.run_id == old.run_id == run.run_id
                    assert new.token != old.token

                    await silent.heartbeat(old, progress=b"half done")
                    assert await silent.verdict(old) == VERDICT_STALE
                    silent.acknowledgements.clear()
                    await silent.succeed(old, b"late")
                    assert await silent.verdict(old) == VERDICT_STALE
                    assert await _state(client, run.run_id, "LEASED"), "the newer attempt goes on"
                    (row,) = await live.rows("SELECT progress, result FROM runs WHERE run_id = $1", run.run_id)
                    assert (row["progress"], row["result"]) == (None, None), "nothing of it was written"

                    await steady.succeed(new, b"in time")
                    assert await steady.verdict(new) == VERDICT_ACCEPTED
                silent.acknowledgements.clear()
                await silent.succeed(old, b"later still")
                assert await silent.verdict(old) == VERDICT_STALE
        await _stands(client, run.run_id, result=b"in time")


async def _state(client: Client, run_id: str, wanted: str) -> bool:
    return (await client.get_run(run_id)).state == wanted


async def _stands(client: Client, run_id: str, *, result: bytes) -> None:
    """The run succeeded at its second attempt with that result, the first one was lost."""
    run = await client.get_run(run_id)
    assert (run.state, run.attempt, run.result) == ("SUCCEEDED", 2, result)
    assert [attempt.outcome for attempt in await client.list_attempts(run_id)] == ["LOST", "SUCCEEDED"]
