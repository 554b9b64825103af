"""The worker: registers handlers, keeps links to every dispatcher, and runs what they send. Owns all of its tasks.

Everything happens in one event loop (gRPC's asyncio side does not work from two). `run()` returns after a drain.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import re
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tidewheel.addresses import control_plane_addresses
from tidewheel.attempts import Attempt
from tidewheel.clock import Clock, Pulse, SystemClock
from tidewheel.context import Stop
from tidewheel.discovery import DispatcherWatch
from tidewheel.drain import Drain, signals_of
from tidewheel.errors import WorkerRefused
from tidewheel.executor import Executor
from tidewheel.handlers import Handler, HandlerFunction, checked_name, handler_of
from tidewheel.link import FAREWELL_S, Link
from tidewheel.switchboard import Switchboard
from tidewheel.threads import HandlerThreads
from tidewheel.tracing import handler_tracer
from tidewheel.v1.worker_service_pb2 import Hello

log = logging.getLogger(__name__)

MOST_SLOTS = 100_000
MOST_QUEUES = 64

_Function = TypeVar("_Function", bound=HandlerFunction)


class Worker:
    """Runs handlers for the runs of some queues of one namespace.

        worker = Worker(["127.0.0.1:7233"], queues=["reports"], slots=20)

        @worker.handler("nightly-report")
        async def nightly_report(ctx): ...

        worker.main()

    `addresses` are control planes (absent: TIDEWHEEL_ADDRESS). `slots` is how many attempts run at once, async ones in
    the event loop, others in as many threads. With `dispatchers`, nothing is discovered and only these are served.
    """

    def __init__(
        self,
        addresses: str | Iterable[str] | None = None,
        *,
        queues: Sequence[str] = ("default",),
        slots: int = 10,
        namespace: str = "default",
        worker_id: str | None = None,
        dispatchers: Sequence[str] | None = None,
        drain_limit_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        if not 1 <= slots <= MOST_SLOTS:
            raise ValueError(f"slots: must be in [1, {MOST_SLOTS:,}], not {slots}")
        if isinstance(queues, str) or not 1 <= len(queues) <= MOST_QUEUES:
            raise ValueError(f"queues: must be a list of 1 to {MOST_QUEUES} names")
        self._static = None if dispatchers is None else tuple(dispatchers)
        self._control_planes = control_plane_addresses(addresses) if dispatchers is None else ()
        self._clock = clock or SystemClock()
        self._drain_limit_s = drain_limit_s
        self._slots = slots
        self._handlers: dict[str, Handler] = {}
        self._hello = Hello(
            worker_id=worker_id or _new_worker_id(),
            sdk=f"python {_version()}",
            namespace=namespace,
            queues=[checked_name(queue) for queue in queues],
            slots=slots,
        )
        self._engine: _Engine | None = None

    @property
    def worker_id(self) -> str:
        """Unique to this process; shown with the attempts that it runs."""
        return self._hello.worker_id

    def handler(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function under `name`: `async def` or plain, of one RunContext.

        What it returns (bytes, text, anything with a JSON form, None) is the run's result; what it raises is a failed
        attempt, which is retried unless it raises NotRetryable.
        """

        def register(function: _Function) -> _Function:
            if self._engine is not None:
                raise RuntimeError("handlers must be registered before the worker runs")
            if checked_name(name) in self._handlers:
                raise ValueError(f"there is a handler {name!r} already")
            self._handlers[name] = handler_of(function)
            return function

        return register

    async def run(self) -> None:
        """Serve until drained: by SIGTERM or SIGINT (where this is the main thread) or by `drain`.

        A second signal ends the process at once. WorkerRefused if every dispatcher refuses the registration.
        """
        if self._engine is not None:
            raise RuntimeError("a worker runs only once")
        if not self._handlers:
            raise RuntimeError("a worker needs at least one handler")
        self._hello.handlers.extend(self._handlers)
        self._engine = engine = _Engine(self._hello, self._handlers, self._clock)
        with signals_of(lambda: engine.drain.begin(self._drain_limit_s)):
            await engine.run(self._static, self._control_planes)

    def drain(self, limit_s: float | None = None) -> None:
        """Take no new work, let what runs finish, then let `run()` return. Call it in the worker's event loop.

        After `limit_s` (default: the worker's `drain_limit_s`) handlers that still run are cancelled.
        """
        if self._engine is None:
            raise RuntimeError("the worker does not run")
        self._engine.drain.begin(self._drain_limit_s if limit_s is None else limit_s)

    def main(self) -> None:
        """Run in an event loop of its own (uvloop's, if it is installed) until drained: a program's last line."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self.run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class _Engine:
    """One run of a worker: its tasks and what they share."""

    def __init__(self, hello: Hello, handlers: dict[str, Handler], clock: Clock) -> None:
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
            await self._executor.close()
            await self._hang_up()
            await self._end([task for _, task in self._links.values()] + ([watch] if watch else []))

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


def _new_worker_id() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _version() -> str:
    try:
        return importlib.metadata.version("tidewheel-sdk")
    except importlib.metadata.PackageNotFoundError:
        return "unpackaged"
