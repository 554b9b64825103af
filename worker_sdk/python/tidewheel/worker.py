"""The worker as its users see it: handlers are registered, then it runs until it is drained. engine.py does the work.

Everything happens in one event loop (gRPC's asyncio side does not work from two).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tidewheel.addresses import control_plane_addresses
from tidewheel.clock import Clock, SystemClock
from tidewheel.drain import signals_of
from tidewheel.engine import Engine
from tidewheel.handlers import Handler, HandlerFunction, checked_name, handler_of
from tidewheel.v1.worker_service_pb2 import Hello

# Hello names everything that is held, in one message: at 77 bytes each, and with the results that may wait beside what
# runs, this stays below the smallest limit that a dispatcher can be configured to.
MOST_SLOTS = 20_000
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
        self._engine: Engine | None = None

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
        self._engine = engine = Engine(self._hello, self._handlers, self._clock)
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


def _new_worker_id() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _version() -> str:
    try:
        return importlib.metadata.version("tidewheel-sdk")
    except importlib.metadata.PackageNotFoundError:
        return "unpackaged"
