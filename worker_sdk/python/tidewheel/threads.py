"""A bounded set of threads for handlers that block. Called by executor.py.

The standard library's pool is not used because its threads are joined when the interpreter exits: one handler that
never returns would keep a drained worker from ever ending. These are daemon threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)


class HandlerThreads:
    """At most `limit` threads, each started when it is first needed. `submit` is called from one thread only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread as soon as one is free. It must report its own errors."""
        self._queue.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._serve, name=f"tidewheel-handler-{self._started}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException:
                log.exception("a handler's thread failed outside the handler")
            self._idle.release()

    def close(self) -> None:
        """Let the threads end when their present work does; waits for none."""
        for _ in range(self._started):
            self._queue.put(None)
