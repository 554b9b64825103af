"""What every server of ours has in common: one child process over one directory, on a port that stays.

The subclasses say how it is launched, when it answers, and how it is asked to stop.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path

from tools.servers.free_port import is_free
from tools.servers.process import Child, ServerFailed

START_ATTEMPTS = 3


class LocalServer(ABC):
    """One server. `home` holds data and log; the port stays the same from the first start on."""

    name: str
    ready_within_s: float
    stop_within_s: float
    stop_signal: signal.Signals = signal.SIGTERM

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.port: int | None = None
        self._child: Child | None = None

    @property
    @abstractmethod
    def description(self) -> str:
        """Version and path, for people."""

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running_child().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def log(self) -> Path:
        return self.home / f"{self.name.lower()}.log"

    def start(self) -> None:
        """Start and wait until it answers; makes the data directory at the first call."""
        first_start = self.port is None
        for attempts_left in reversed(range(START_ATTEMPTS)):
            self.launch()
            try:
                self.wait_ready()
                return
            except ServerFailed:
                self.stop()
                if not first_start or not attempts_left or is_free(self._port()):
                    raise
                self.port = None  # another process took the port between our look and the server's bind

    def launch(self) -> None:
        """Start without waiting. Must run in a thread that lives as long as the server (tools/servers/process.py)."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already")
        self._child = self._launched()

    def wait_ready(self) -> None:
        """Wait until it answers. Raises ServerFailed with the log's last lines otherwise."""
        self._running_child().wait_until(self._answers, within_s=self.ready_within_s)

    def stop(self) -> None:
        """Stop cleanly, or by force when that takes too long."""
        if self._child is not None:
            self._child.stop(self.stop_signal, within_s=self.stop_within_s)

    def kill(self) -> None:
        """End it and every process of its own with SIGKILL at once, as a power cut would."""
        self._running_child().kill()

    def freeze(self) -> None:
        """Stop it in its tracks; connections stay open and silent."""
        self._running_child().freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self._running_child().thaw()

    @abstractmethod
    def _launched(self) -> Child:
        """Choose ports that are not chosen yet, and start the process."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does its work by now."""

    @property
    def _data(self) -> Path:
        return self.home / "data"

    def _port(self) -> int:
        if self.port is None:
            raise ServerFailed(f"{self.name} has not been started yet")
        return self.port

    def _running_child(self) -> Child:
        if self._child is None:
            raise ServerFailed(f"{self.name} has not been started yet")
        return self._child
