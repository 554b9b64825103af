"""The system under measurement: real servers, two control planes, dispatchers, two worker processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from core.store.migrations import migrate
from tools.bench.load import US, Expected, Loader, one_offs
from tools.fleet import Fleet, Member, until_served
from tools.servers.embedded import Backing
from tools.servers.process import Child, start_child

SLOTS = 1_000
_DONE_POLL_S = 0.25
# Logs of the processes of a case that failed.
FAILED_LOGS = Path("build/bench-failed")


@dataclass(frozen=True)
class Start:
    """One start of a handler, as its worker saw it."""

    run_id: str
    attempt: int
    due_us: int
    started_us: int
    shard: int

    @property
    def late_ms(self) -> float:
        return (self.started_us - self.due_us) / 1000


class CaseFailed(Exception):
    """The system lost, doubled or ran early, or did not finish: its figures mean nothing."""


class System:
    """A fleet with no-op workers, for one case. `environ` is what every process gets."""

    def __init__(self, *, dispatchers: int = 2, environ: Mapping[str, str] | None = None) -> None:
        self._size = dispatchers
        self._environ = {"TIDEWHEEL_TELEMETRY_LOG_LEVEL": "warning", **(environ or {})}
        self._ending: list[Child] = []
        self._dispatchers_started = 0
        self._home = Path(tempfile.mkdtemp(prefix="tidewheel-bench-"))
        self._backing = Backing(self._home / "data")
        self._workers: list[tuple[Child, Path]] = []
        self.dispatchers: list[Member] = []

    def __enter__(self) -> System:
        self._backing.__enter__()
        self.fleet = Fleet(self._backing, self._home / "logs", self._environ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child, _ in self._workers:
            child.stop()
        self.fleet.stop()
        for child in self._ending:
            child.stop()
        self._backing.__exit__(kind, error, trace)
        if error is not None:
            shutil.copytree(self._home / "logs", FAILED_LOGS, dirs_exist_ok=True)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def loader(self) -> Loader:
        return Loader(self._backing.database_url)

    async def start(self) -> None:
        """Start every process and wait until all shards are owned and every worker is connected."""
        await migrate(self._backing.database_url)
        for number in (1, 2):
            self.fleet.start_control_plane(f"controlplane-{number}")
        for _ in range(self._size):
            self.start_dispatcher()
        await until_served(self.fleet, dispatchers=self._size)
        for number in (1, 2):
            self._start_worker(number)
        await self._warm_up()

    def start_dispatcher(self) -> Member:
        """Start one more without waiting for it."""
        self._dispatchers_started += 1
        member = self.fleet.start_dispatcher(f"dispatcher-{self._dispatchers_started}")
        self.dispatchers.append(member)
        return member

    def end_dispatcher(self, member: Member) -> None:
        """Tell it to end, by SIGTERM, as an operator's restart does; it is no member any more."""
        self.dispatchers.remove(member)
        self.fleet.members.remove(member)
        self._ending.append(member.child)
        member.child.process.terminate()

    async def _warm_up(self) -> None:
        """A thousand runs through every shard and both workers, unmeasured."""
        now_us = time.time_ns() // 1000
        expected = await self.loader.load(one_offs(1_000, now_us + US, US), now_us=now_us, prefix="warm")
        await self.finish(expected, within_s=60)

    def _start_worker(self, number: int) -> None:
        log = self._home / f"starts-{number}.txt"
        child = start_child(
            f"noop-worker-{number}",
            [sys.executable, "-m", "tools.bench.noop_worker", str(log), str(SLOTS)],
            log=self._home / "logs" / f"noop-worker-{number}.log",
            env={"TIDEWHEEL_ADDRESS": self.fleet.addresses, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            death_signal=signal.SIGKILL,
        )
        self._workers.append((child, log))

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds used so far, by part of the system."""
        parts = {
            "postgres": [self._backing.database.pid] if self._backing.database else [],
            "dispatchers": [m.child.process.pid for m in self.fleet.members if m.role == "dispatcher"],
            "workers": [child.process.pid for child, _ in self._workers],
            "control planes": [m.child.process.pid for m in self.fleet.members if m.role == "control plane"],
        }
        return {part: sum(_tree_cpu_s(pid) for pid in pids) for part, pids in parts.items()}

    async def finish(self, expected: Expected, *, within_s: float) -> None:
        """Wait until every owed run has ended."""
        deadline_s = time.monotonic() + within_s
        while (missing := await self.loader.count_open(expected)) > 0:
            if time.monotonic() > deadline_s:
                states = Counter(state for state, _ in (await self.loader.ended_us(expected)).values())
                raise CaseFailed(
                    f"{missing} of {len(expected.due_us)} runs had not ended after {within_s:.0f} s (runs by state:"
                    f" {dict(states)}; logs: {FAILED_LOGS})"
                )
            self.fleet.check()
            await asyncio.sleep(_DONE_POLL_S)

    async def starts(self, expected: Expected, *, doubles_explained: bool = False) -> list[Start]:
        """What the workers saw of the owed runs; raises CaseFailed for a lost, doubled or early one.

        `doubles_explained`: the case killed somebody, so that a second attempt of a run is no fault of its own.
        """
        found: list[Start] = []
        for child, log in self._workers:
            log.unlink(missing_ok=True)
            child.process.send_signal(signal.SIGUSR1)
            deadline_s = time.monotonic() + 30
            while not log.exists():
                if time.monotonic() > deadline_s:
                    raise CaseFailed("a worker did not write its log")
                await asyncio.sleep(0.05)
            for line in log.read_text().splitlines():
                run_id, attempt, _, started_us = line.split()
                if run_id in expected.due_us:
                    due_us, shard = expected.due_us[run_id], expected.shards[run_id]
                    found.append(Start(run_id, int(attempt), due_us, int(started_us), shard))
        judge_starts(found, expected, doubles_explained=doubles_explained)
        return found


def _tree_cpu_s(pid: int) -> float:
    root = psutil.Process(pid)
    used = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system
    return used


def judge_starts(found: list[Start], expected: Expected, *, doubles_explained: bool) -> None:
    """Raises CaseFailed when a run was lost, started early, or more often than `doubles_explained` allows."""
    lost = expected.due_us.keys() - {start.run_id for start in found}
    early = [start for start in found if start.started_us < start.due_us]
    doubled = len({(start.run_id, start.attempt) for start in found}) < len(found)
    repeated = len(found) - len(expected.due_us) + len(lost)
    if lost or early or doubled or (repeated and not doubles_explained):
        raise CaseFailed(
            f"lost {len(lost)}, early {len(early)}, started more than once {repeated} of {len(expected.due_us)} runs"
        )
