"""`to_the_end`: what must not be left half done is finished first, and the cancellation is raised afterwards."""

from __future__ import annotations

import asyncio

import pytest

from core.tasks import to_the_end


class Work:
    """Waits to be let go on, then answers or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.let_go = asyncio.Event()
        self.ended = False
        self._error = error

    async def __call__(self) -> str:
        await self.let_go.wait()
        self.ended = True
        if self._error is not None:
            raise self._error
        return "done"


async def _started(work: Work) -> asyncio.Task[str]:
    caller = asyncio.create_task(to_the_end(work()))
    await asyncio.sleep(0)
    return caller


async def test_without_a_cancellation_it_is_the_work_itself() -> None:
    work = Work()
    caller = await _started(work)
    work.let_go.set()
    assert await caller == "done"


async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    work = Work(ValueError("no"))
    caller = await _started(work)
    work.let_go.set()
    with pytest.raises(ValueError, match="no"):
        await caller


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_a_cancelled_caller_waits_for_the_works_end(error: Exception | None) -> None:
    work = Work(error)
    caller = await _started(work)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not caller.done()
    work.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended
