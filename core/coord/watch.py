"""A watch over a prefix that survives its server: reopened elsewhere, resumed exactly, never silently hanging.

Resumes at the last complete revision + 1, so nothing is lost or seen twice. A server that says nothing is asked for a
sign of life and left when it gives none. Never advances by a progress answer: old servers send those ahead of events
that they still owe. Called by client.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import grpc

from core.clock import Clock
from core.coord import etcd_pb2 as pb
from core.coord import wire
from core.coord.calls import Backoff, Metadata, Tokens
from core.coord.config import EtcdConfig
from core.coord.endpoints import Endpoint, Endpoints
from core.coord.faults import AccessDenied, Compacted, Fault, StoreReplaced, Verdict, judge, judge_error
from core.coord.records import Event, StorePoint, WatchBatch
from core.errors import Unavailable
from core.rand import Rand
from core.tasks import Tasks

_QUEUE_BOUND = 64  # answers read ahead of the consumer; beyond it the stream's own flow control holds the server


class _Broken(Exception):
    """The stream ended; open another one and resume."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(slots=True)
class _Cursor:
    """Where to resume. The events of the newest revision are held back while more fragments of it may follow."""

    next_revision: int
    held: list[Event] = field(default_factory=list)

    def take(self, events: tuple[Event, ...], *, more_follow: bool) -> tuple[Event, ...]:
        """The events that are complete now."""
        seen = [*self.held, *(e for e in events if e.kv.mod_revision >= self.next_revision)]
        self.held = []
        if seen and more_follow:
            newest = seen[-1].kv.mod_revision
            self.held = [e for e in seen if e.kv.mod_revision == newest]
            seen = seen[: len(seen) - len(self.held)]
        if seen:
            self.next_revision = seen[-1].kv.mod_revision + 1
        return tuple(seen)


class WatchOpener:
    """Opens watches on behalf of the client."""

    def __init__(
        self,
        config: EtcdConfig,
        endpoints: Endpoints,
        tokens: Tokens,
        clock: Clock,
        rand: Rand,
        where: Callable[[str], Awaitable[StorePoint]],
    ) -> None:
        self._config = config
        self._endpoints = endpoints
        self._tokens = tokens
        self._clock = clock
        self._rand = rand
        self._where = where  # a linearizable look at the store, to tell a member that lags from a store replaced

    async def watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch]:
        """Yield every change under `prefix` from `start_revision` (at least 1) on; see EtcdClient.watch."""
        cursor = _Cursor(start_revision)
        backoff = Backoff(self._config, self._clock, self._rand)
        cluster_id: int | None = None
        resumed = refused_before = False
        while True:
            endpoint = self._endpoints.current
            try:
                async with aclosing(self._stream(endpoint, prefix, cursor)) as batches:
                    async for batch in batches:
                        if cluster_id not in (None, batch.at.cluster_id):
                            raise StoreReplaced("another cluster answers")
                        cluster_id = batch.at.cluster_id
                        refused_before = False
                        backoff.reset()
                        yield WatchBatch(batch.at, batch.events, resumed=resumed)
                        resumed = False
            except _Broken as broken:
                refused_before = self._may_go_on(endpoint, broken.fault, refused_before=refused_before)
                await backoff.wait()
            resumed = True
            cursor.held = []

    def _may_go_on(self, endpoint: Endpoint, fault: Fault, *, refused_before: bool) -> bool:
        """Decide after a broken stream: raise for the caller, or return whether the user was refused just now."""
        if fault.verdict in (Verdict.FINAL, Verdict.TOKEN):
            self._endpoints.answered(endpoint)
            refused = fault.verdict is Verdict.TOKEN or isinstance(fault.error, AccessDenied)
            # An expired token is reported as a denied permission: authenticate again, once, before believing it.
            if refused and self._tokens.has_user and not refused_before:
                return True
            raise fault.error or Unavailable(fault.reason)
        if self._endpoints.closed:
            raise Unavailable("this etcd client is closed")
        self._endpoints.failed(endpoint, f"watch: {fault.reason}")
        return False

    async def _stream(self, endpoint: Endpoint, prefix: str, cursor: _Cursor) -> AsyncGenerator[WatchBatch]:
        """One stream on one server, until it breaks (_Broken) or the watch cannot go on (Compacted, StoreReplaced)."""
        rpc = wire.WATCH
        metadata: Metadata = ()
        tasks = Tasks()
        call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse] | None = None
        try:
            await endpoint.wait_ready(self._config.connect_timeout_s)
            metadata = await self._tokens.metadata(endpoint, self._config.call_timeout_s)
            call = endpoint.channel.stream_stream(rpc.path, rpc.encode, rpc.decode)(metadata=metadata)
            try:
                async with asyncio.timeout(self._config.call_timeout_s):
                    await call.write(wire.watch_create(prefix, cursor.next_revision))
            except TimeoutError:
                raise _Broken(Fault(Verdict.ANSWER_LOST, "the watch could not be asked for")) from None
            answers: asyncio.Queue[pb.WatchResponse | Fault] = asyncio.Queue(_QUEUE_BOUND)
            tasks.spawn(_pump(call, answers), name=f"etcd watch {prefix}")
            while True:
                answer = await self._next(call, answers)
                self._endpoints.answered(endpoint)
                self._refuse(answer, metadata)
                if answer.created:
                    await self._check_store(prefix, answer, cursor)
                complete = cursor.take(wire.events(answer.events), more_follow=answer.fragment)
                yield WatchBatch(wire.point(answer), complete)
        except Unavailable as error:
            raise _Broken(Fault(Verdict.NOT_APPLIED, str(error))) from None
        except grpc.aio.AioRpcError as error:
            self._tokens.drop_if_refused(metadata, judge_error(error))
            raise _Broken(judge_error(error)) from None
        except (
            asyncio.InvalidStateError,
            grpc.aio.UsageError,
        ):  # grpc's words for a stream or a channel that has ended
            raise _Broken(Fault(Verdict.ANSWER_LOST, "the connection ended")) from None
        except _Broken as broken:
            self._tokens.drop_if_refused(metadata, broken.fault)
            raise
        finally:
            if call is not None:
                call.cancel()
            await tasks.close()

    async def _next(
        self,
        call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse],
        answers: asyncio.Queue[pb.WatchResponse | Fault],
    ) -> pb.WatchResponse:
        """The next answer; a server silent for long is asked for a sign of life, then given up."""
        silence_s = self._config.watch_silence_s
        answer: pb.WatchResponse | Fault
        try:
            async with asyncio.timeout(silence_s):
                answer = await answers.get()
        except TimeoutError:
            try:
                async with asyncio.timeout(silence_s):
                    await call.write(wire.watch_progress())
                    answer = await answers.get()
            except TimeoutError:
                raise _Broken(Fault(Verdict.ANSWER_LOST, f"silent for {2 * silence_s:.1f} s")) from None
        if isinstance(answer, Fault):
            raise _Broken(answer)
        return answer

    def _refuse(self, answer: pb.WatchResponse, metadata: Metadata) -> None:
        """Raise what a cancelled watch means (B76: never wait on it)."""
        if not answer.canceled:
            return
        if answer.compact_revision:
            raise Compacted(answer.compact_revision)
        reason = answer.cancel_reason or "cancelled by the server"
        fault = judge(grpc.StatusCode.UNAVAILABLE, reason)
        if "permission denied" in reason or not answer.cancel_reason:
            # Servers before 3.4.3 give no reason; the only unexplained refusal there is the permission.
            fault = Fault(Verdict.FINAL, reason, AccessDenied(f"watch refused: {reason}"))
        raise _Broken(fault)

    async def _check_store(self, prefix: str, answer: pb.WatchResponse, cursor: _Cursor) -> None:
        """A store that stands before our cursor either lags, which passes, or is not the store we watched."""
        behind = cursor.next_revision - 1
        if answer.header.revision >= behind:
            return
        at = await self._where(prefix)
        if at.revision < behind or at.cluster_id != answer.header.cluster_id:
            raise StoreReplaced(f"the store is at revision {at.revision}, but {behind} was seen before")


async def _pump(
    call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse],
    answers: asyncio.Queue[pb.WatchResponse | Fault],
) -> None:
    """Read the stream into the queue, so that waiting with a time limit never cancels the stream's own read."""
    try:
        async for answer in call:
            await answers.put(answer)
        await answers.put(Fault(Verdict.ANSWER_LOST, "the server ended the stream"))
    except grpc.aio.AioRpcError as error:
        await answers.put(judge_error(error))
