"""Streams that live long, and streams that are ended at any moment: neither may cost anything for ever."""

from __future__ import annotations

import asyncio
import gc
import random

import psutil
import pytest
from tidewheel import Worker

from tests.link.scripted_dispatcher import dispatchers, running
from tests.support.polling import eventually


async def cycle(worker_of: str, at_random: random.Random) -> None:
    """One worker that connects, exchanges a few messages, and is cancelled at some point of it."""
    worker = Worker(dispatchers=[worker_of], slots=2)
    worker.handler("work")(lambda ctx: None)
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(at_random.choice((0.0, 0.001, 0.005, 0.02)))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def leak_check(cycles: int, growth_mib: int) -> None:
    at_random = random.Random(1)
    process = psutil.Process()
    async with dispatchers() as (dispatcher,):
        for _ in range(50):
            await cycle(dispatcher.address, at_random)
        gc.collect()
        tasks, connections = len(asyncio.all_tasks()), len(process.net_connections())
        memory = process.memory_info().rss
        for _ in range(cycles):
            await cycle(dispatcher.address, at_random)
        gc.collect()
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, 30)
        await eventually(lambda: len(process.net_connections()) <= connections, 30)
        grown = (process.memory_info().rss - memory) / 2**20
        assert grown < growth_mib, f"{grown:.1f} MiB more after {cycles} streams"


async def test_b83_streams_that_are_cancelled_at_any_point_leave_nothing_behind() -> None:
    await leak_check(300, 30)


@pytest.mark.long
async def test_b83_two_thousand_streams_leave_nothing_behind() -> None:
    await leak_check(2_000, 50)


@pytest.mark.long
async def test_b84_an_idle_worker_is_never_disconnected_for_its_keepalive() -> None:
    """Pings leave every 10 s; a server that minds answers the third one with GOAWAY."""
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])
        worker.handler("work")(lambda ctx: None)
        async with running(worker):
            await dispatcher.stream()
            await asyncio.sleep(50)
    assert len(dispatcher.streams) == 1
