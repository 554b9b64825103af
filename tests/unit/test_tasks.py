"""Tasks and wake-ups: failures are seen, nothing outlives its set, hints coalesce, and a lost one costs a tick."""

from __future__ import annotations

import asyncio
import logging

import pytest

from core import tasks as tasks_module
from core.tasks import Tasks, Wake, repeat
from tests.support.clock import ManualClock, settle


async def test_a_task_that_fails_is_reported_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    forever = tasks.spawn(asyncio.Event().wait(), name="forever")

    async def fail() -> None:
        raise ValueError("broken")

    tasks.spawn(fail(), name="a loop")
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(tasks.failed.wait(), 5)
    assert isinstance(tasks.failure, ValueError)
    assert "task a loop failed: broken" in caplog.text
    assert not forever.done()
    await tasks.close()
    assert forever.cancelled()


async def test_the_first_failure_is_the_one_that_counts() -> None:
    tasks = Tasks()

    async def fail(text: str) -> None:
        raise ValueError(text)

    first = tasks.spawn(fail("first"), name="first")
    await asyncio.wait({first})
    second = tasks.spawn(fail("second"), name="second")
    await asyncio.wait({second})
    assert str(tasks.failure) == "first"


async def test_closing_waits_until_every_task_has_cleaned_up() -> None:
    tasks, cleaned = Tasks(), []

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    tasks.spawn(slow_to_end(), name="slow to end")
    await settle()
    await tasks.close()
    assert cleaned == [True]
    assert tasks.failure is None, "a cancelled task has not failed"


async def test_a_task_whose_cancellation_was_swallowed_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_CANCEL_AGAIN_S", 0.01)
    tasks = Tasks()
    swallowed: list[bool] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(swallowed) == 2:
                    raise
                swallowed.append(True)

    tasks.spawn(stubborn(), name="stubborn")
    await settle()
    await asyncio.wait_for(tasks.close(), 5)
    assert len(swallowed) == 2


async def test_a_hint_wakes_at_once_and_many_hints_are_one(clock: ManualClock) -> None:
    wake = Wake()
    wake.set()
    wake.set()
    assert await wake.wait(clock, 10.0)
    waiting = asyncio.create_task(wake.wait(clock, 10.0))
    await settle()
    assert not waiting.done()
    wake.set()
    await settle()
    assert waiting.result() is True


async def test_without_a_hint_the_tick_wakes(clock: ManualClock) -> None:
    waiting = asyncio.create_task(Wake().wait(clock, 10.0))
    await clock.advance(9.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert waiting.result() is False


async def test_a_wait_leaves_no_tasks_behind(clock: ManualClock) -> None:
    wake = Wake()
    for _ in range(3):
        waiting = asyncio.create_task(wake.wait(clock, 10.0))
        await settle()
        waiting.cancel()
        await settle()
    wake.set()
    await wake.wait(clock, 10.0)
    await settle()
    assert clock.sleeping == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_step_is_repeated_at_once_at_hints_and_at_ticks(clock: ManualClock) -> None:
    steps, wake = [], Wake()

    async def step() -> None:
        steps.append(clock.monotonic_s())

    task = asyncio.create_task(repeat(clock, wake, 1.0, step))
    await clock.advance(2.5)
    assert steps == [0.0, 1.0, 2.0]
    wake.set()
    await settle()
    assert steps == [0.0, 1.0, 2.0, 2.5]
    task.cancel()
