"""WorkerService: the streams of workers, read into the loops and written from the sessions.

One reader and one writer a stream. What a frame means is decided elsewhere: credits in session.py, heartbeats in
renewals.py, results in completion.py. A broken stream ends no attempt; a Hello names what the worker still holds, and
what was sent to it on an earlier stream and is not among that never arrived: it is taken back at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from uuid import UUID

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import worker_service_pb2 as pb
from tidewheel.v1 import worker_service_pb2_grpc as pb_grpc

from core.clock import US_PER_S
from core.errors import Invalid
from core.jobspec import check_namespace, check_word
from core.tasks import Tasks
from core.telemetry.dispatcher_metrics import Stage
from dispatcher.attempts import LiveAttempt
from dispatcher.completion import CompletionLoop
from dispatcher.delivery import duration
from dispatcher.endings import Failed, GivenBack, Stopped, Succeeded, Word
from dispatcher.judgement import Submission
from dispatcher.matching import MatchLoop
from dispatcher.renewals import RenewalLoop
from dispatcher.runtime import Memory, Runtime
from dispatcher.session import WorkerSession

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
_HELLO_LIMIT_S = 5.0
# Worker processes whose last Hello is remembered.
_HELLOS_KEPT = 10_000
_YEAR_10000_S = 253_402_300_800

Stream = grpc.aio.ServicerContext[pb.WorkerFrame, pb.DispatcherFrame]


class WorkerLink(pb_grpc.WorkerServiceServicer):
    """Serves Connect."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        matching: MatchLoop,
        completion: CompletionLoop,
        renewals: RenewalLoop,
        tasks: Tasks,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._matching = matching
        self._completion = completion
        self._renewals = renewals
        # The greatest number of a Hello that each worker process said here, the newest last.
        self._hellos: OrderedDict[str, int] = OrderedDict()
        self._tasks = tasks

    async def Connect(  # type: ignore[override]  # noqa: N802 - grpc.aio serves the read-and-write style too
        self,
        frames: AsyncIterator[pb.WorkerFrame],
        context: Stream,
    ) -> None:
        """One worker's stream, from its Hello to its end."""
        hello = await self._hello(frames, context)
        if hello is None:
            return
        if not self._is_newest(hello):
            return  # a stream that the worker gave up long ago: what it says of what it holds is no longer true
        session = WorkerSession(hello)
        self._matching.retire(session.worker_id)
        stale = await self._recognise(hello, session)
        session.welcome(self._welcome(stale))
        self._matching.join(session)
        writer = self._tasks.spawn(_write(session, context), name=f"write to worker {session.worker_id}")
        try:
            async for frame in frames:
                await self._take(session, frame)
                if session.over or writer.done():
                    break
        finally:
            self._matching.leave(session)
            self._let_go(session)
            writer.cancel()
            await asyncio.wait({writer})

    # --- the beginning ---

    async def _hello(self, frames: AsyncIterator[pb.WorkerFrame], context: Stream) -> pb.Hello | None:
        try:
            async with asyncio.timeout(_HELLO_LIMIT_S):
                first = await anext(aiter(frames), None)
        except TimeoutError:
            first = None
        if first is None or first.WhichOneof("frame") != "hello":
            await context.write(_refusal("frame", f"the first frame must be a Hello, within {_HELLO_LIMIT_S:.0f} s"))
            return None
        try:
            _check_hello(first.hello)
        except Invalid as error:
            await context.write(_refusal(error.field, error.rule))
            return None
        return first.hello

    def _is_newest(self, hello: pb.Hello) -> bool:
        """Whether the worker has not said a later Hello here already; workers that do not number them are believed."""
        known = self._hellos.get(hello.worker_id, 0)
        if 0 < hello.sequence <= known:
            return False
        self._hellos[hello.worker_id] = max(known, hello.sequence)
        self._hellos.move_to_end(hello.worker_id)
        while len(self._hellos) > _HELLOS_KEPT:
            self._hellos.popitem(last=False)
        return True

    async def _recognise(self, hello: pb.Hello, session: WorkerSession) -> list[pb.AttemptRef]:
        """Attach what the worker still holds; returns what is not its any more."""
        stale = []
        held: set[UUID] = set()
        for ref in hello.holding:
            run_id = _run_id(ref.run_id)
            live = self._memory.attempts.get(run_id) if run_id is not None else None
            if live is not None and live.attempt == ref.attempt and live.proves(ref.token):
                live.holder, live.sent_on, live.unsent = session, None, False
                held.add(live.run_id)
            elif live is not None:
                stale.append(ref)
            # Unknown here: perhaps another dispatcher's. Its heartbeats and its result find that out.
        for live in self._memory.attempts:
            # Only what this process sent on a stream before this one, and was not heard of: an attempt that was adopted
            # may have reached the worker from its former owner after it composed this Hello.
            sent_before = live.sent_on is not None and live.sent_on is not session
            never_arrived = sent_before and live.worker == hello.worker_id and live.run_id not in held
            if never_arrived and not live.ending:
                # The reaper says it again in case this is refused.
                self._memory.attempts.mark_unsent(live, self._runtime.clock.now_us() + US_PER_S)
                await self._completion.submit(Submission(live.run_id, live.attempt, None, GivenBack(), None))
        return stale

    def _welcome(self, stale: list[pb.AttemptRef]) -> pb.Welcome:
        settings = self._runtime.settings
        return pb.Welcome(
            protocol_version=PROTOCOL_VERSION,
            dispatcher_id=self._runtime.dispatcher_id,
            heartbeat_interval=duration(round(settings.heartbeat_interval_s * 1_000_000)),
            lease=duration(round(settings.attempt_lease_s * 1_000_000)),
            stale=stale,
        )

    def _let_go(self, session: WorkerSession) -> None:
        """The stream has ended: nothing is requeued, but what was never written to it is taken back."""
        attempts = self._memory.attempts
        for live in attempts:
            if live.holder is session:
                live.holder = None
        for ref in session.close():
            unsent = attempts.get(UUID(ref.run_id))
            if unsent is not None and unsent.attempt == ref.attempt and unsent.proves(ref.token):
                attempts.mark_unsent(unsent)

    # --- frames ---

    async def _take(self, session: WorkerSession, frame: pb.WorkerFrame) -> None:
        session.heard()
        match frame.WhichOneof("frame"):
            case "results":
                await self._results(session, frame.results)
            case "heartbeats":
                strangers = self._renewals.heartbeat(session, frame.heartbeats)
                await self._judge_strangers(session, strangers)
            case "grant":
                session.grant(frame.grant.total)
                self._memory.wakes.match.set()
            case "reclaim":
                session.reclaim(frame.reclaim.count)
            case "returns":
                for ref in frame.returns.items:
                    await self._submit(session, ref, GivenBack())
            case "goodbye":
                session.goodbye()
            case _:
                pass  # a frame of a newer protocol, or a second Hello: not ours to act on

    async def _results(self, session: WorkerSession, results: pb.Results) -> None:
        late_us = []
        for result in results.items:
            live = self._known(result.ref)
            started_us = _instant_us(result.started_at)
            if live is not None and started_us > 0:
                late_us.append(started_us - live.due_at_us)
            await self._submit(session, result.ref, _word(result))
        self._runtime.metrics.lateness(Stage.START, late_us)

    def _known(self, ref: pb.AttemptRef) -> LiveAttempt | None:
        run_id = _run_id(ref.run_id)
        return None if run_id is None else self._memory.attempts.get(run_id)

    async def _submit(self, session: WorkerSession, ref: pb.AttemptRef, word: Word) -> None:
        run_id = _run_id(ref.run_id)
        if run_id is None:
            session.acknowledge([pb.Acknowledgement(run_id=ref.run_id, attempt=ref.attempt, verdict=pb.VERDICT_STALE)])
            return
        await self._completion.submit(Submission(run_id, ref.attempt, ref.token, word, session))

    async def _judge_strangers(self, session: WorkerSession, items: list[pb.Heartbeat]) -> None:
        refs = [(run_id, item.ref) for item in items if (run_id := _run_id(item.ref.run_id)) is not None]
        if refs:
            await self._completion.judge_heartbeats(session, refs)


async def _write(session: WorkerSession, context: Stream) -> None:
    """Move frames from the session to the stream until either ends."""
    try:
        while not session.over:
            await session.outgoing.wait()
            for frame in session.take_frames():
                await context.write(frame)
    except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.BaseError) as error:
        log.debug("the stream of worker %s ended while writing: %s", session.worker_id, error)


def _check_hello(hello: pb.Hello) -> None:
    if hello.protocol_version != PROTOCOL_VERSION:
        raise Invalid(
            "hello.protocol_version", f"is {hello.protocol_version}; this dispatcher speaks {PROTOCOL_VERSION}"
        )
    check_word(hello.worker_id, "hello.worker_id")
    check_namespace(hello.namespace, "hello.namespace")
    if not 1 <= len(hello.handlers) <= 1024:
        raise Invalid("hello.handlers", "must be 1 to 1024 names")
    if len(hello.queues) > 64:
        raise Invalid("hello.queues", "must be at most 64 names")
    for position, name in enumerate(hello.handlers):
        check_word(name, f"hello.handlers[{position}]")
    for position, name in enumerate(hello.queues):
        check_word(name, f"hello.queues[{position}]")
    if not 1 <= hello.slots <= 100_000:
        raise Invalid("hello.slots", "must lie within 1 and 100000")


def _refusal(field: str, rule: str) -> pb.DispatcherFrame:
    return pb.DispatcherFrame(refusal=pb.Refusal(field=field, rule=rule))


def _instant_us(said: Timestamp) -> int:
    """An instant by a worker's clock; 0 for none, and for one that no clock shows."""
    return said.seconds * US_PER_S + said.nanos // 1000 if 0 < said.seconds < _YEAR_10000_S else 0


def _run_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _word(result: pb.Result) -> Word:
    match result.WhichOneof("outcome"):
        case "success":
            return Succeeded(result.success.result, result.success.result_type[:128])
        case "failure":
            failure = result.failure
            return Failed(failure.message or "no message", not failure.not_retryable, failure.timed_out)
        case "canceled":
            return Stopped()
        case _:
            return Failed("the worker sent a result without an outcome", retryable=True, timed_out=False)
