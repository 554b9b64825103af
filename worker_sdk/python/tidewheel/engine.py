"""One run of a worker: its tasks, and what they share. Owns every task but those of the handlers.

The switchboard decides; here its orders become tasks, links and waits. Called by worker.py, in the event loop in which
all of it lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from tidewheel.attempts import Attempt
from tidewheel.clock import Clock, Pulse
from tidewheel.context import Stop
from tidewheel.discovery import DispatcherWatch
from tidewheel.drain import Drain
from tidewheel.errors import WorkerRefused
from tidewheel.executor import Executor
from tidewheel.handlers import Handler
from tidewheel.link import FAREWELL_S, Link
from tidewheel.switchboard import Switchboard
from tidewheel.threads import HandlerThreads
from tidewheel.tracing import handler_tracer
from tidewheel.v1.worker_service_pb2 import Hello

log = logging.getLogger(__name__)


class Engine:
    """A worker at work. `hello` says who it is to every dispatcher."""

    def __init__(self, hello: Hello, handlers: Mapping[str, Handler], clock: Clock) -> None:
        self._hello = hello
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._pulse = Pulse(clock)
        self._board = Switchboard(hello.slots, handlers, clock, self)
        self._executor = Executor(handlers, HandlerThreads(hello.slots), clock, self._board.finished, handler_tracer())
        self.drain = Drain(clock, self._pulse.set)
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._turn_due = False
        self._sweeps_at_s = 0.0
        self._failure: BaseException | None = None

    # ---- Orders, for the switchboard ----

    def start(self, attempt: Attempt) -> None:
        self._executor.start(attempt)

    def stop(self, attempt: Attempt, stop: Stop) -> None:
        self._executor.stop(attempt, stop)

    def stir(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        for address in self._board.turn():
            entry = self._links.get(address)
            if entry is not None:
                entry[0].wake()
        if self._board.next_sweep_s < self._sweeps_at_s or (self.drain.begun and self._board.idle):
            self._pulse.set()

    # ---- the main loop ----

    async def run(self, static: Sequence[str] | None, control_planes: Sequence[str]) -> None:
        watch: asyncio.Task[None] | None = None
        if static is None:
            watch = self._spawn(DispatcherWatch(control_planes, self._clock, self._listed).run())
        else:
            self._listed(static)
        try:
            while not self._is_done():
                await self._pulse.wait(self._sweep())
            if self._failure is not None:
                raise self._failure
        finally:
            self._board.stop_all()
            await self._executor.close()
            await self._hang_up()
            await self._end([task for _, task in self._links.values()] + ([watch] if watch else []))
            # A cancelled task keeps the frames of its call alive, and they keep this object: connections would stay
            # open until the garbage collector finds the circle.
            self._links.clear()

    def _is_done(self) -> bool:
        if self._failure is not None:
            return True
        return self.drain.begun and (self._board.idle or self.drain.is_over)

    def _sweep(self) -> float:
        """Whatever time, or a hint, demands now; how long to wait for the next."""
        if self.drain.begun:
            self._board.leave()
            if self.drain.limit_reached:
                self._board.stop_all()
        for address in self._board.sweep():
            log.warning("dispatcher at %s does not answer heartbeats: reconnecting", address)
            self._links[address][0].cut()
        self._keep_links()
        self._sweeps_at_s = min(self._board.next_sweep_s, self.drain.next_s)
        return max(0.0, self._sweeps_at_s - self._clock.monotonic_s())

    def _listed(self, addresses: Sequence[str]) -> None:
        self._board.listed(addresses)
        self._pulse.set()

    def _keep_links(self) -> None:
        """A link to each address that is wanted; one that is not wanted any more goes when its stream has ended."""
        wanted = self._board.wanted_addresses
        for address in wanted - self._links.keys():
            link = Link(address, self._hello, self._board, self._clock, self._pulse.set)
            self._links[address] = (link, self._spawn(link.run()))
        for address in self._links.keys() - wanted:
            if not self._board.is_open(address):
                self._links.pop(address)[1].cancel()
        self._notice_refusals()

    def _notice_refusals(self) -> None:
        refusals = [link.refusal for link, _ in self._links.values()]
        first = refusals[0] if refusals else None
        if first is not None and all(refusals) and self._board.idle:
            self._fail(WorkerRefused(first.field, first.rule))

    async def _hang_up(self) -> None:
        """Let what is queued leave, and the dispatchers end the streams; those that do not are cut."""
        for address, (link, task) in self._links.items():
            if self._board.is_open(address):
                link.close()
            else:
                task.cancel()
        if self._links:
            await asyncio.wait([task for _, task in self._links.values()], timeout=FAREWELL_S)

    # ---- tasks ----

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._pulse.set()

    @staticmethod
    async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
        pending = list(tasks)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
