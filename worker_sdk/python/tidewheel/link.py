"""The socket of one dispatcher: keeps a stream open to one address, and carries frames between it and the protocol.

It reconnects for as long as it is wanted, with a growing and spread pause. It decides nothing: what frames mean is
protocol.py's and switchboard.py's. Called by worker.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import grpc.aio

from tidewheel.channels import stream_channel
from tidewheel.clock import Clock
from tidewheel.effects import Opened, Refused, Violated
from tidewheel.protocol import StreamProtocol
from tidewheel.switchboard import Switchboard
from tidewheel.v1.worker_service_pb2 import Hello
from tidewheel.v1.worker_service_pb2_grpc import WorkerServiceStub

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
WELCOME_WITHIN_S = 5.0
# How long the dispatcher gets to end a stream that we have half-closed.
FAREWELL_S = 1.0


class Link:
    """One dispatcher's address, connected as long as `run` runs. `ended` is called each time a stream has ended."""

    def __init__(self, address: str, hello: Hello, board: Switchboard, clock: Clock, ended: Callable[[], None]) -> None:
        self.address = address
        # Why the dispatcher refused the last Hello; None if it did not.
        self.refusal: Refused | None = None
        self._hello = hello
        self._board = board
        self._clock = clock
        self._ended = ended
        self._has_output = asyncio.Event()
        self._call: Any = None
        self._cut = False
        self._closing = False

    def wake(self) -> None:
        """The protocol has something to send."""
        self._has_output.set()

    def cut(self) -> None:
        """End the present stream, as if it had broken; another one follows."""
        if self._call is not None:
            self._cut = True
            self._call.cancel()

    def close(self) -> None:
        """Send what is queued, then half-close; `run` ends with the open stream."""
        self._closing = True
        self._has_output.set()

    async def run(self) -> None:
        """Keep a stream open until closed or cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            # A connection of its own for each stream: one that froze would take the next stream with it.
            channel = stream_channel(self.address)
            try:
                opened = await self._converse(channel)
            finally:
                await channel.close()
            if self._closing:
                return
            pause_s = FIRST_PAUSE_S if opened else min(LONGEST_PAUSE_S, pause_s * 2)
            self._ended()
            await self._clock.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311

    async def _converse(self, channel: grpc.aio.Channel) -> bool:
        """One stream from Hello to its end; whether it ever opened."""
        protocol = StreamProtocol()
        self._has_output.clear()
        self._cut = False
        call = self._call = WorkerServiceStub(channel).Connect()
        opened = False
        writer: asyncio.Task[None] | None = None
        try:
            opened = await self._open(call, protocol)
            if opened:
                writer = asyncio.create_task(self._write(call, protocol))
                writer.add_done_callback(self._writer_ended)
                await self._read(call, protocol)
        except grpc.aio.AioRpcError as error:
            log.info("stream to dispatcher at %s ended: %s", self.address, error.details() or error.code().name)
        except grpc.aio.BaseError as error:
            # What gRPC says of a call that broke while it was being used; it has no status then.
            log.info("stream to dispatcher at %s broke: %s", self.address, error)
        except (TimeoutError, asyncio.InvalidStateError):
            log.info("dispatcher at %s did not answer Hello within %g s", self.address, WELCOME_WITHIN_S)
        except asyncio.CancelledError:
            # gRPC reports a call that we cut as a cancellation, too; only a task that is being cancelled is one.
            if not self._cut or _is_being_cancelled():
                raise
        finally:
            protocol.close()
            self._board.lost(self.address, protocol)
            await self._hang_up(call, writer)
        return opened

    async def _open(self, call: Any, protocol: StreamProtocol) -> bool:
        """Say Hello; whether Welcome came."""
        async with asyncio.timeout(WELCOME_WITHIN_S):
            await call.write(protocol.hello(self._hello, self._board.holding(), self._board.next_hello()))
            frame = await call.read()
        if frame is grpc.aio.EOF:
            return False
        effect = protocol.receive(frame)
        if isinstance(effect, Opened):
            self.refusal = None
            self._board.handle(self.address, protocol, effect)
            return True
        if isinstance(effect, Refused):
            self.refusal = effect
            log.error("dispatcher at %s refuses this worker: %s: %s", self.address, effect.field, effect.rule)
        elif isinstance(effect, Violated):
            log.error("dispatcher at %s breaks the protocol: %s", self.address, effect.rule)
        return False

    async def _read(self, call: Any, protocol: StreamProtocol) -> None:
        while True:
            frame = await call.read()
            if frame is grpc.aio.EOF:
                return
            effect = protocol.receive(frame)
            if isinstance(effect, Violated):
                log.error("dispatcher at %s breaks the protocol: %s", self.address, effect.rule)
                return
            self._board.handle(self.address, protocol, effect)

    async def _write(self, call: Any, protocol: StreamProtocol) -> None:
        """Send what there is; while a frame is on its way the next ones gather, so that a crowd leaves in batches."""
        try:
            while True:
                await self._has_output.wait()
                self._has_output.clear()
                for frame in protocol.frames():
                    await call.write(frame)
                if self._closing:
                    await call.done_writing()
                    return
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The stream is over; its reader sees the same and says why.
            return

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """A writer that failed by a defect of ours must not leave a stream that only listens."""
        if not writer.cancelled() and writer.exception() is not None:
            self.cut()

    async def _hang_up(self, call: Any, writer: asyncio.Task[None] | None) -> None:
        """Leave no half-open call behind: the call first, then the writer that may wait in it."""
        self._call = None
        call.cancel()
        if writer is not None:
            writer.cancel()
            await asyncio.wait({writer})
            if not writer.cancelled():
                # Raises what it failed by, which then ends the worker.
                writer.result()


def _is_being_cancelled() -> bool:
    """Whether somebody cancelled the running task (a local variable for it would make a cycle with its exception)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
