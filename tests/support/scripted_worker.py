"""A worker whose every word a test speaks itself, over the real stream to a real dispatcher.

async with ScriptedWorker(dispatcher.address, "stubborn", ["work"]) as worker:
    await worker.grant(1)
    assignment = await worker.assignment()
    await worker.succeed(assignment.ref, b"done")
    verdict = await worker.verdict(assignment.ref)

One object is one stream: a worker that comes back is another object with the same worker id and what it is `holding`.
It says nothing by itself, not even heartbeats, unless the test asks for `work` (which also says a result again where it
is told to, on one of its `peers` if need be) or `beating`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from tidewheel.v1 import worker_service_pb2 as pb
from tidewheel.v1 import worker_service_pb2_grpc as pb_grpc

from tests.support.polling import eventually

WITHIN_S = 60.0

Answer = Callable[[pb.Assignment], "pb.Result | None"]


@dataclass(frozen=True)
class Start:
    """One attempt as the worker got it; instants in microseconds, `at_us` by the machine's clock."""

    run_id: str
    attempt: int
    due_at_us: int
    at_us: int


def success(given: pb.Assignment) -> pb.Result:
    """The result of a handler that did its work."""
    return pb.Result(ref=given.ref, success=pb.Success(result=b"done", result_type="text/plain"))


def failure(given: pb.Assignment, **changes: Any) -> pb.Result:
    """The result of a handler that broke."""
    return pb.Result(ref=given.ref, failure=pb.Failure(**({"message": "it broke"} | changes)))


class ScriptedWorker:
    """One stream; it keeps everything that it is told. With `work` it answers each assignment as soon as it came."""

    def __init__(
        self,
        address: str,
        worker_id: str = "worker-1",
        handlers: Sequence[str] = ("work",),
        slots: int = 1,
        *,
        work: Answer | None = None,
        **hello: Any,
    ) -> None:
        self._address = address
        said: dict[str, Any] = {"protocol_version": 1, "worker_id": worker_id, "handlers": handlers, "slots": slots}
        self._hello = pb.Hello(**(said | hello))
        self._work = work
        self._speaking = asyncio.Lock()
        self._reading = asyncio.Event()
        self._reading.set()
        self._heartbeats = 0
        self._granted = 0
        self._said: dict[tuple[str, int], pb.Result] = {}
        self._answered: set[tuple[str, int]] = set()
        self.first: pb.DispatcherFrame = pb.DispatcherFrame()
        self.ended = asyncio.Event()
        # The same worker's other streams, by address: what is redirected to one of them is said again there.
        self.peers: dict[str, ScriptedWorker] = {}
        self.starts: list[Start] = []
        self.assignments: list[pb.Assignment] = []
        self.acknowledgements: list[pb.Acknowledgement] = []
        self.heartbeat_replies: list[pb.HeartbeatReplies] = []
        self.heartbeat_exceptions: list[pb.Acknowledgement] = []
        self.cancels: list[pb.CancelOrder] = []
        self.demands: list[int] = []
        self.released: list[pb.Released] = []

    # ---- the stream ----

    async def __aenter__(self) -> Self:
        await self.open()
        assert self.first.WhichOneof("frame") == "welcome", self.first
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self, first: pb.WorkerFrame | None = None) -> None:
        """Say hello, or `first` in its place, and keep the answer in `first`."""
        self._channel = grpc.aio.insecure_channel(self._address)
        self._stream = pb_grpc.WorkerServiceStub(self._channel).Connect()
        await self._stream.write(first or pb.WorkerFrame(hello=self._hello))
        async with asyncio.timeout(WITHIN_S):
            answer: Any = await self._stream.read()
        self.first = answer
        self._reader = asyncio.create_task(self._read(), name=f"stream of {self._hello.worker_id}")

    async def close(self) -> None:
        """Break the stream without a word."""
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._stream.cancel()
        await self._channel.close()
        self.ended.set()

    def stop_reading(self) -> None:
        """Leave what comes where it is, as a process does that hangs; what is said still goes out."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    def work_from_now_on(self, work: Answer) -> None:
        """Answer each assignment that comes from now on."""
        self._work = work

    @property
    def worker_id(self) -> str:
        return self._hello.worker_id

    @property
    def welcome(self) -> pb.Welcome:
        return self.first.welcome

    # ---- what it says ----

    async def say(self, **frame: Any) -> None:
        async with self._speaking:
            await self._stream.write(pb.WorkerFrame(**frame))

    async def grant(self, total: int) -> None:
        self._granted = total
        await self.say(grant=pb.Grant(total=total))

    async def heartbeat(self, *refs: pb.AttemptRef, progress: bytes | None = None) -> int:
        """One frame of heartbeats; returns its sequence number."""
        self._heartbeats += 1
        items = [pb.Heartbeat(ref=ref, progress=progress) for ref in refs]
        await self.say(heartbeats=pb.Heartbeats(sequence=self._heartbeats, items=items))
        return self._heartbeats

    async def heard(self) -> None:
        """Wait until all that it said was read, which is done in order."""
        number = await self.heartbeat()
        replies = self.heartbeat_replies
        await eventually(lambda: any(reply.sequence == number for reply in replies), WITHIN_S, what="it was heard")

    async def answer(self, *results: pb.Result) -> None:
        self._answered |= {(result.ref.run_id, result.ref.attempt) for result in results}
        await self.say(results=pb.Results(items=results))

    async def succeed(self, ref: pb.AttemptRef, result: bytes = b"done") -> None:
        await self.answer(pb.Result(ref=ref, success=pb.Success(result=result, result_type="text/plain")))

    async def fail(self, ref: pb.AttemptRef, **changes: Any) -> None:
        await self.answer(failure(pb.Assignment(ref=ref), **changes))

    async def stop(self, ref: pb.AttemptRef) -> None:
        """The handler stopped because it was told to."""
        await self.answer(pb.Result(ref=ref, canceled=pb.Canceled()))

    async def give_back(self, *refs: pb.AttemptRef) -> None:
        self._answered |= {(ref.run_id, ref.attempt) for ref in refs}
        await self.say(returns=pb.Returns(items=refs))

    @asynccontextmanager
    async def beating(self, interval_s: float = 0.3) -> AsyncIterator[None]:
        """Meanwhile everything it holds gets its heartbeats."""

        async def beat() -> None:
            while True:
                if self.holding:
                    await self.heartbeat(*self.holding)
                await asyncio.sleep(interval_s)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # ---- what it knows ----

    @property
    def holding(self) -> list[pb.AttemptRef]:
        """What it was sent and has not answered."""
        return [one.ref for one in self.assignments if (one.ref.run_id, one.ref.attempt) not in self._answered]

    async def assignment(self, attempt: int = 1, *, run_id: str = "", within_s: float = WITHIN_S) -> pb.Assignment:
        """The first assignment with that attempt number (and of that run); waits for it."""

        def found() -> pb.Assignment | None:
            fitting = (one for one in self.assignments if one.ref.attempt == attempt)
            return next((one for one in fitting if run_id in ("", one.ref.run_id)), None)

        return await eventually(found, within_s, what=f"an assignment of attempt {attempt}")

    async def assigned(self, count: int, within_s: float = WITHIN_S) -> list[pb.Assignment]:
        """The assignments, once there are so many."""
        return await eventually(
            lambda: self.assignments if len(self.assignments) >= count else None, within_s, what=f"{count} assignments"
        )

    async def verdict(self, ref: pb.AttemptRef) -> pb.Verdict:
        """The last verdict, other than RETRY, that was given on a word about the attempt; waits for one."""
        return (await self.acknowledgement(ref)).verdict

    async def acknowledgement(self, ref: pb.AttemptRef) -> pb.Acknowledgement:
        """As `verdict`, with the address of the owner where there is one."""

        def found() -> pb.Acknowledgement | None:
            said = [
                one
                for one in self.acknowledgements
                if (one.run_id, one.attempt) == (ref.run_id, ref.attempt) and one.verdict != pb.VERDICT_RETRY
            ]
            return said[-1] if said else None

        return await eventually(found, WITHIN_S, what=f"a verdict on attempt {ref.attempt}")

    async def canceled(self, ref: pb.AttemptRef, within_s: float = WITHIN_S) -> str:
        """The reason for which it was told to stop the attempt; waits for it."""

        def found() -> str | None:
            orders = (one for one in self.cancels if (one.run_id, one.attempt) == (ref.run_id, ref.attempt))
            return next((order.reason for order in orders), None)

        return await eventually(found, within_s, what=f"the order to stop attempt {ref.attempt}")

    # ---- reading ----

    async def _read(self) -> None:
        frame: Any
        try:
            while True:
                await self._reading.wait()
                frame = await self._stream.read()
                if frame is grpc.aio.EOF:
                    return
                await self._take(frame)
        except grpc.aio.AioRpcError:
            return
        finally:
            self.ended.set()

    async def _take(self, frame: pb.DispatcherFrame) -> None:
        self.acknowledgements += frame.acknowledgements.items
        await self._say_again(frame.acknowledgements.items)
        self.cancels += frame.cancels.items
        match frame.WhichOneof("frame"):
            case "heartbeat_replies":
                self.heartbeat_replies.append(frame.heartbeat_replies)
                self.heartbeat_exceptions += frame.heartbeat_replies.exceptions
            case "demand":
                self.demands.append(frame.demand.waiting)
            case "released":
                self.released.append(frame.released)
            case "assignments":
                await self._assigned(frame.assignments.items)

    async def _say_again(self, items: Sequence[pb.Acknowledgement]) -> None:
        for one in items:
            said, peer = self._said.get((one.run_id, one.attempt)), self.peers.get(one.owner_address)
            if one.verdict == pb.VERDICT_REDIRECT and said is not None and peer is not None:
                peer._said[one.run_id, one.attempt] = said
                await peer.answer(said)
        again = {(one.run_id, one.attempt) for one in items if one.verdict == pb.VERDICT_RETRY}
        results = [result for key, result in self._said.items() if key in again]
        if results:
            await asyncio.sleep(0.05)
            await self.answer(*results)

    async def _assigned(self, items: Sequence[pb.Assignment]) -> None:
        at_us = time.time_ns() // 1000
        self.starts += [Start(i.ref.run_id, i.ref.attempt, i.due_at.ToMicroseconds(), at_us) for i in items]
        self.assignments += items
        if self._work is None:
            return
        results = [result for item in items if (result := self._work(item)) is not None]
        self._said |= {(result.ref.run_id, result.ref.attempt): result for result in results}
        if results:
            await self.answer(*results)
            await self.grant(self._granted + len(results))
