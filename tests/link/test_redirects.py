"""Runs change their dispatcher while their handlers run: the worker follows, and loses neither attempt nor result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tidewheel import RunContext, Worker
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import (
    ScriptedDispatcher,
    ScriptedStream,
    acknowledgement,
    assignment,
    dispatchers,
    running,
)
from tests.support.polling import eventually

REDIRECT, RETRY = pb.VERDICT_REDIRECT, pb.VERDICT_RETRY


@dataclass
class Handler:
    """Runs until the test lets it end."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    starts: int = 0
    stopped: bool = False

    async def __call__(self, context: RunContext) -> str:
        self.starts += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        return "done"


@asynccontextmanager
async def working(*known: ScriptedDispatcher) -> AsyncIterator[Handler]:
    """A worker that knows these dispatchers; its one handler takes its time."""
    worker, handler = Worker(dispatchers=[one.address for one in known]), Handler()
    worker.handler("work")(handler.__call__)
    async with running(worker):
        yield handler


async def assigned(dispatcher: ScriptedDispatcher, handler: Handler) -> tuple[ScriptedStream, pb.Assignment]:
    stream, made = await dispatcher.stream(), assignment()
    stream.assign(made)
    await eventually(lambda: handler.starts == 1)
    return stream, made


def says(stream: ScriptedStream, made: pb.Assignment, to: ScriptedDispatcher) -> None:
    """REDIRECT without having been asked."""
    told = acknowledgement(made.ref, REDIRECT, to.address)
    stream.say(acknowledgements=pb.Acknowledgements(items=[told]))


def beats(dispatcher: ScriptedDispatcher, made: pb.Assignment) -> int:
    """How often it heard a heartbeat of the attempt."""
    frames = [frame for stream in dispatcher.streams for frame in stream.heartbeats]
    return sum(item.ref == made.ref for frame in frames for item in frame.items)


def result(dispatcher: ScriptedDispatcher, made: pb.Assignment) -> pb.Result | None:
    found = [stream.result_of(made) for stream in dispatcher.streams]
    return next((each for each in found if each is not None), None)


async def test_row_13_a_running_attempt_is_redirected_unasked_and_its_heartbeats_go_there_at_once() -> None:
    """Long before the next one is due: a successor is told while the lease is young."""
    async with dispatchers(2, heartbeat_interval_s=20.0, lease_s=60.0) as (old, new), working(old, new) as handler:
        stream, made = await assigned(old, handler)
        await new.stream(with_credit=0)
        says(stream, made, new)
        await eventually(lambda: beats(new, made) == 1)
        handler.go_on.set()
        await eventually(lambda: result(new, made))
        assert (handler.starts, handler.stopped, result(old, made)) == (1, False, None)


async def test_a_dispatcher_that_nobody_named_before_is_connected_to() -> None:
    async with dispatchers(2, lease_s=60.0) as (old, new), working(old) as handler:
        stream, made = await assigned(old, handler)
        says(stream, made, new)
        await eventually(lambda: beats(new, made) >= 1)
        assert list(new.streams[0].hello.holding) == [made.ref]
        handler.go_on.set()
        await eventually(lambda: result(new, made))


async def test_whoever_is_named_may_name_another_and_the_attempt_goes_on() -> None:
    async with dispatchers(3, lease_s=60.0) as (old, middle, new), working(old, middle, new) as handler:
        stream, made = await assigned(old, handler)
        middle.verdict_of_heartbeat = lambda ref: acknowledgement(ref, REDIRECT, new.address)
        middle.verdict_of_result = lambda ref: acknowledgement(ref, REDIRECT, new.address)
        says(stream, made, middle)
        await eventually(lambda: beats(new, made) >= 1)
        handler.go_on.set()
        await eventually(lambda: result(new, made))
        assert (handler.starts, handler.stopped) == (1, False)


async def test_a_result_is_redirected_twice_and_kept_until_it_is_accepted() -> None:
    async with dispatchers(3, lease_s=60.0) as (old, middle, new), working(old, middle, new) as handler:
        _, made = await assigned(old, handler)
        old.verdict_of_result = lambda ref: acknowledgement(ref, REDIRECT, middle.address)
        answers = [RETRY, REDIRECT]
        middle.verdict_of_result = lambda ref: acknowledgement(ref, answers.pop(0), new.address)
        handler.go_on.set()
        await eventually(lambda: result(new, made))
        assert (answers, handler.starts) == ([], 1)


async def test_a_new_owner_that_is_not_ready_is_asked_again_before_the_next_interval() -> None:
    """It takes the run home on the first word, and would acknowledge the second one."""
    async with dispatchers(2, heartbeat_interval_s=20.0, lease_s=60.0) as (old, new), working(old, new) as handler:
        stream, made = await assigned(old, handler)
        answers: list[pb.Acknowledgement | None] = [acknowledgement(made.ref, RETRY), acknowledgement(made.ref, RETRY)]
        new.verdict_of_heartbeat = lambda ref: answers.pop(0) if answers else None
        says(stream, made, new)
        await eventually(lambda: beats(new, made) == 3)
        assert (handler.starts, handler.stopped) == (1, False)


async def test_a_redirect_that_is_said_twice_is_said_once() -> None:
    async with dispatchers(2, heartbeat_interval_s=20.0, lease_s=60.0) as (old, new), working(old, new) as handler:
        stream, made = await assigned(old, handler)
        await new.stream(with_credit=0)
        says(stream, made, new)
        says(stream, made, new)
        await eventually(lambda: beats(new, made) >= 1)
        handler.go_on.set()
        await eventually(lambda: result(new, made))
        assert beats(new, made) == 1


async def test_a_cancel_counts_on_the_stream_of_the_new_owner() -> None:
    async with dispatchers(2, lease_s=60.0) as (old, new), working(old, new) as handler:
        stream, made = await assigned(old, handler)
        there = await new.stream(with_credit=0)
        says(stream, made, new)
        await eventually(lambda: beats(new, made) >= 1)
        there.cancel(made.ref)
        ended = await eventually(lambda: result(new, made))
        assert ended is not None
        assert (ended.WhichOneof("outcome"), handler.stopped) == ("canceled", True)


async def test_every_hello_has_a_greater_number_than_the_one_before() -> None:
    async with dispatchers(2) as (one, other), working(one, other):
        await one.stream(with_credit=0)
        await other.stream(with_credit=0)
        await one.stop()
        await one.start()
        await eventually(lambda: len(one.streams) >= 2)
        numbers = [stream.hello.sequence for stream in one.streams]
        assert numbers == sorted(set(numbers))
        assert min(numbers) > 0
        assert other.streams[0].hello.sequence not in numbers
