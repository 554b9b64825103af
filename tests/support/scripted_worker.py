"""A worker whose every word a test speaks itself, over the real stream to a real dispatcher.

async with ScriptedWorker(dispatcher.address, "stubborn", ["work"]) as worker:
    await worker.grant(1)
    assignment = await worker.assignment()
    await worker.succeed(assignment.ref, b"done")
    verdict = await worker.verdict(assignment.ref)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from tidewheel.v1 import worker_service_pb2 as pb
from tidewheel.v1 import worker_service_pb2_grpc as pb_grpc

from tests.support.polling import eventually

WITHIN_S = 30.0


class ScriptedWorker:
    """One stream. It says nothing by itself, not even heartbeats, and keeps everything that it is told."""

    def __init__(self, address: str, worker_id: str, handlers: Sequence[str], slots: int = 1) -> None:
        self._address = address
        self._hello = pb.Hello(protocol_version=1, worker_id=worker_id, handlers=handlers, slots=slots)
        self._heartbeats = 0
        self.assignments: list[pb.Assignment] = []
        self.acknowledgements: list[pb.Acknowledgement] = []
        self.heartbeat_exceptions: list[pb.Acknowledgement] = []

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._address)
        self._stream = pb_grpc.WorkerServiceStub(self._channel).Connect()
        await self._stream.write(pb.WorkerFrame(hello=self._hello))
        welcome: Any = await asyncio.wait_for(self._stream.read(), WITHIN_S)
        assert welcome.WhichOneof("frame") == "welcome", welcome
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._stream.cancel()
        await self._channel.close()

    async def grant(self, total: int) -> None:
        await self._stream.write(pb.WorkerFrame(grant=pb.Grant(total=total)))

    async def assignment(self, attempt: int = 1) -> pb.Assignment:
        """The first assignment with that attempt number; waits for it."""

        def found() -> pb.Assignment | None:
            return next((one for one in self.assignments if one.ref.attempt == attempt), None)

        return await eventually(found, WITHIN_S, what=f"an assignment of attempt {attempt}")

    async def heartbeat(self, ref: pb.AttemptRef, progress: bytes) -> None:
        self._heartbeats += 1
        items = [pb.Heartbeat(ref=ref, progress=progress)]
        await self._stream.write(pb.WorkerFrame(heartbeats=pb.Heartbeats(sequence=self._heartbeats, items=items)))

    async def succeed(self, ref: pb.AttemptRef, result: bytes) -> None:
        said = pb.Result(ref=ref, success=pb.Success(result=result, result_type="text/plain"))
        await self._stream.write(pb.WorkerFrame(results=pb.Results(items=[said])))

    async def verdict(self, ref: pb.AttemptRef) -> pb.Verdict:
        """The last verdict, other than RETRY, that was given on a word about the attempt; waits for one."""

        def found() -> pb.Acknowledgement | None:
            said = [
                one
                for one in self.acknowledgements
                if (one.run_id, one.attempt) == (ref.run_id, ref.attempt) and one.verdict != pb.VERDICT_RETRY
            ]
            return said[-1] if said else None

        return (await eventually(found, WITHIN_S, what=f"a verdict on attempt {ref.attempt}")).verdict

    async def _read(self) -> None:
        frame: Any
        while (frame := await self._stream.read()) is not grpc.aio.EOF:
            self.assignments += frame.assignments.items
            self.acknowledgements += frame.acknowledgements.items
            self.heartbeat_exceptions += frame.heartbeat_replies.exceptions
