"""The dispatcher's side of a worker stream, played by a test over real gRPC.

It keeps no runs and decides nothing: it records what the worker says, counts credits as the protocol demands, and says
what the test tells it to. Results are acknowledged unless the test has another verdict for them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc.aio
from tidewheel.v1 import worker_service_pb2 as pb
from tidewheel.v1.worker_service_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server

from tests.support.polling import eventually

Verdict = Callable[[pb.AttemptRef], "pb.Acknowledgement | None"]

_RUNS = itertools.count(1)


def duration(message: Any, seconds: float) -> None:
    message.seconds, message.nanos = int(seconds), round(seconds % 1 * 1e9)


def acknowledgement(ref: pb.AttemptRef, verdict: pb.Verdict, owner_address: str = "") -> pb.Acknowledgement:
    return pb.Acknowledgement(run_id=ref.run_id, attempt=ref.attempt, verdict=verdict, owner_address=owner_address)


def accepted(ref: pb.AttemptRef) -> pb.Acknowledgement:
    return acknowledgement(ref, pb.VERDICT_ACCEPTED)


def assignment(handler: str = "work", *, attempt: int = 1, timeout_s: float = 60.0, **fields: Any) -> pb.Assignment:
    """An assignment of a run of its own, due now."""
    run_id = fields.pop("run_id", "") or f"00000000-0000-4000-8000-{next(_RUNS):012d}"
    made = pb.Assignment(
        ref=pb.AttemptRef(run_id=run_id, attempt=attempt, token=bytes(32)),
        namespace="default",
        job="a-job",
        job_id="11111111-0000-4000-8000-000000000000",
        job_version=1,
        handler=handler,
        queue="default",
        max_attempts=4,
        fencing_token=attempt,
        **fields,
    )
    made.scheduled_for.FromDatetime(datetime(2030, 1, 1, tzinfo=UTC))
    made.due_at.FromDatetime(datetime(2030, 1, 1, tzinfo=UTC))
    duration(made.start_to_close_timeout, timeout_s)
    return made


@dataclass(eq=False)
class ScriptedStream:
    """One stream of one worker: what was said, and the credits as the dispatcher counts them."""

    hello: pb.Hello
    outbox: asyncio.Queue[pb.DispatcherFrame] = field(default_factory=asyncio.Queue)
    total: int = 0
    sent: int = 0
    goodbye: bool = False
    ended: bool = False
    results: list[pb.Result] = field(default_factory=list)
    result_frames: int = 0
    grant_frames: int = 0
    heartbeats: list[pb.Heartbeats] = field(default_factory=list)
    returns: list[pb.AttemptRef] = field(default_factory=list)
    reclaims: list[int] = field(default_factory=list)

    @property
    def unused(self) -> int:
        return self.total - self.sent

    def say(self, **frame: Any) -> None:
        self.outbox.put_nowait(pb.DispatcherFrame(**frame))

    def assign(self, *items: pb.Assignment) -> None:
        """Send assignments; the test fails if there is no credit for them."""
        assert len(items) <= self.unused, f"{len(items)} assignments with {self.unused} credits"
        self.sent += len(items)
        self.say(assignments=pb.Assignments(items=items))

    def demand(self, waiting: int) -> None:
        self.say(demand=pb.Demand(waiting=waiting))

    def cancel(self, ref: pb.AttemptRef, reason: str = "cancel requested") -> None:
        self.say(cancels=pb.Cancels(items=[pb.CancelOrder(run_id=ref.run_id, attempt=ref.attempt, reason=reason)]))

    def result_of(self, made: pb.Assignment) -> pb.Result | None:
        found = [result for result in self.results if result.ref == made.ref]
        return found[-1] if found else None


class ScriptedDispatcher(WorkerServiceServicer):
    """One dispatcher. Its verdicts, timings and refusal are attributes that a test may change at any time."""

    def __init__(self, name: str, heartbeat_interval_s: float = 0.2, lease_s: float = 30.0) -> None:
        self.name = name
        self.heartbeat_interval_s = heartbeat_interval_s
        self.lease_s = lease_s
        self.verdict_of_result: Verdict = accepted
        # None: the heartbeat is accepted.
        self.verdict_of_heartbeat: Verdict = lambda ref: None
        self.answers_heartbeats = True
        self.answers_hello = True
        self.refusal: pb.Refusal | None = None
        self.stale_in_hello: list[pb.AttemptRef] = []
        # Called with each result before its verdict: a place to send more work.
        self.on_results: Callable[[ScriptedStream, int], None] = lambda stream, count: None
        self.streams: list[ScriptedStream] = []
        self.address = ""
        self._server: grpc.aio.Server | None = None

    # ---- the server ----

    async def start(self) -> None:
        """Serve; the first time on any free port, later on the same one."""
        server = grpc.aio.server(
            options=[
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.so_reuseport", 0),
            ]
        )
        add_WorkerServiceServicer_to_server(self, server)
        port = server.add_insecure_port(self.address or "127.0.0.1:0")
        assert port, f"cannot listen on {self.address}"
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def Connect(self, request_iterator: AsyncIterator[pb.WorkerFrame], context: Any) -> None:
        hello_frame = await context.read()
        if hello_frame is grpc.aio.EOF:
            return
        stream = ScriptedStream(hello_frame.hello)
        self.streams.append(stream)
        writer = asyncio.create_task(self._write(stream, context))
        try:
            if self.refusal is not None:
                await context.write(pb.DispatcherFrame(refusal=self.refusal))
                return
            if self.answers_hello:
                stream.say(welcome=self._welcome(stream))
            while (frame := await context.read()) is not grpc.aio.EOF:
                self._read(stream, frame)
        finally:
            stream.ended = True
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, stream: ScriptedStream, context: Any) -> None:
        while True:
            await context.write(await stream.outbox.get())

    def _welcome(self, stream: ScriptedStream) -> pb.Welcome:
        welcome = pb.Welcome(protocol_version=1, dispatcher_id=self.name, stale=self.stale_in_hello)
        duration(welcome.heartbeat_interval, self.heartbeat_interval_s)
        duration(welcome.lease, self.lease_s)
        return welcome

    # ---- what the worker says ----

    def _read(self, stream: ScriptedStream, frame: pb.WorkerFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "grant":
            assert frame.grant.total > stream.total, "a grant that grants nothing"
            stream.total = frame.grant.total
            stream.grant_frames += 1
        elif kind == "reclaim":
            stream.reclaims.append(frame.reclaim.count)
            count = min(frame.reclaim.count, stream.unused)
            stream.total -= count
            stream.say(released=pb.Released(count=count, total=stream.total))
        elif kind == "results":
            self._results(stream, frame.results)
        elif kind == "heartbeats":
            self._heartbeats(stream, frame.heartbeats)
        elif kind == "returns":
            stream.returns.extend(frame.returns.items)
        elif kind == "goodbye":
            stream.goodbye = True
            stream.total = stream.sent

    def _results(self, stream: ScriptedStream, results: pb.Results) -> None:
        stream.results.extend(results.items)
        stream.result_frames += 1
        self.on_results(stream, len(results.items))
        verdicts = [self.verdict_of_result(item.ref) for item in results.items]
        stream.say(acknowledgements=pb.Acknowledgements(items=[verdict for verdict in verdicts if verdict]))

    def _heartbeats(self, stream: ScriptedStream, heartbeats: pb.Heartbeats) -> None:
        stream.heartbeats.append(heartbeats)
        if not self.answers_heartbeats:
            return
        verdicts = [self.verdict_of_heartbeat(item.ref) for item in heartbeats.items]
        stream.say(
            heartbeat_replies=pb.HeartbeatReplies(
                sequence=heartbeats.sequence, exceptions=[verdict for verdict in verdicts if verdict]
            )
        )

    # ---- what tests ask ----

    async def stream(self, at: int = -1, *, with_credit: int = 1) -> ScriptedStream:
        """An open stream (the newest) that has at least so many unused credits."""

        def ready() -> ScriptedStream | None:
            stream = self.streams[at] if self.streams else None
            return stream if stream and not stream.ended and stream.unused >= with_credit else None

        found = await eventually(ready, 30, what=f"a stream to {self.name} with {with_credit} credits")
        assert found is not None
        return found


@asynccontextmanager
async def dispatchers(count: int = 1, **settings: Any) -> AsyncIterator[list[ScriptedDispatcher]]:
    """So many dispatchers, serving."""
    made = [ScriptedDispatcher(f"dispatcher-{number}", **settings) for number in range(count)]
    try:
        for one in made:
            await one.start()
        yield made
    finally:
        for one in made:
            await one.stop()


@asynccontextmanager
async def running(worker: Any) -> AsyncIterator[asyncio.Task[None]]:
    """The worker at work; cancelled at the end if it has not ended by itself."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
