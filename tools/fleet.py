"""A whole Tidewheel in processes of its own on this machine: for `tidewheel dev`, the demo and tests of everything.

Each role is a child process as an operator would start it, on a free loopback port, bound to our life (should we die by
SIGKILL, the kernel ends them) and logged to a file. Nothing is restarted by itself: who needs that says so.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.servers.embedded import Backing
from tools.servers.free_port import free_port
from tools.servers.process import Child, ServerFailed, last_lines, start_child

STOP_WITHIN_S = 12.0
READY_WITHIN_S = 120.0
POLL_S = 0.1
COMMAND = "tools.cli.main"


@dataclass(slots=True)
class Member:
    """One process. `role` is control plane, dispatcher or worker; `address` is what it serves on, if anything."""

    name: str
    role: str
    child: Child
    address: str = ""

    @property
    def running(self) -> bool:
        return self.child.running


class Fleet:
    """The processes over one `backing`. `environ` is what they get beside their addresses; logs go to `log_dir`."""

    def __init__(self, backing: Backing, log_dir: Path, environ: Mapping[str, str]) -> None:
        self.backing = backing
        self._log_dir = log_dir
        self._environ = dict(environ)
        self.members: list[Member] = []
        log_dir.mkdir(parents=True, exist_ok=True)

    @property
    def addresses(self) -> str:
        """The control planes', with commas between them."""
        return ",".join(member.address for member in self._of("control plane"))

    @property
    def log_dir(self) -> Path:
        return self._log_dir

    def start_control_plane(
        self, name: str = "controlplane", *, port: int = 0, environ: Mapping[str, str] | None = None
    ) -> Member:
        """Start one without waiting for it. `environ` is for it alone."""
        address = f"127.0.0.1:{port or free_port()}"
        return self._start(name, "control plane", ["controlplane", "--listen", address], address, environ)

    def start_dispatcher(
        self,
        name: str = "dispatcher",
        environ: Mapping[str, str] | None = None,
        module: str = COMMAND,
        *,
        port: int = 0,
    ) -> Member:
        """Start one without waiting for it. `environ` is for it alone; `module` stands in for the command's."""
        address = f"127.0.0.1:{port or free_port()}"
        return self._start(name, "dispatcher", ["dispatcher", "--listen", address], address, environ, module)

    def start_worker(self, name: str = "worker") -> Member:
        """Start a worker for shell commands, which are switched on for it. The control planes come first."""
        return self._start(name, "worker", ["worker", "exec"])

    def check(self) -> None:
        """Raises ServerFailed if a process that nobody ended has ended."""
        for member in self.members:
            if not member.running:
                code = member.child.process.returncode
                log = member.child.log
                raise ServerFailed(f"{member.name} ended with code {code}: {last_lines(log)} (log: {log})")

    def kill(self, member: Member) -> None:
        """End one at once by SIGKILL, as a crash would. It is no member any more."""
        self.members.remove(member)
        member.child.process.send_signal(signal.SIGKILL)
        member.child.process.wait()

    def stop(self) -> None:
        """End all: workers first, so that their results still find a dispatcher, control planes last."""
        for role in ("worker", "dispatcher", "control plane"):
            children = [member.child for member in self._of(role)]
            for child in children:
                if child.running:
                    child.process.terminate()
            deadline_s = time.monotonic() + STOP_WITHIN_S
            for child in children:
                child.stop(within_s=max(0.1, deadline_s - time.monotonic()))
        self.members.clear()

    def _of(self, role: str) -> list[Member]:
        return [member for member in self.members if member.role == role]

    def _start(
        self,
        name: str,
        role: str,
        arguments: list[str],
        address: str = "",
        environ: Mapping[str, str] | None = None,
        module: str = COMMAND,
    ) -> Member:
        command = [sys.executable, "-m", module, *arguments]
        env = {**self._environment(role), **(environ or {})}
        child = start_child(name, command, log=self._log_dir / f"{name}.log", env=env, death_signal=signal.SIGKILL)
        member = Member(name, role, child, address)
        self.members.append(member)
        return member

    def _environment(self, role: str) -> dict[str, str]:
        """Addresses and the password travel here, where other users of the machine cannot read them."""
        given = {
            **self._environ,
            "PYTHONPATH": os.pathsep.join(_import_path(self._environ.get("PYTHONPATH", ""))),
            "TIDEWHEEL_DATABASE_URL": self.backing.database_url,
            "TIDEWHEEL_ETCD_ENDPOINTS": ",".join(self.backing.etcd_endpoints),
        }
        if role == "worker":
            given["TIDEWHEEL_ADDRESS"] = self.addresses
            given["TIDEWHEEL_WORKER_EXEC_ENABLED"] = "true"
            given["TIDEWHEEL_WORKER_EXEC_SHELL_ENABLED"] = "true"
        return given


def _import_path(present: str) -> list[str]:
    """Where the children find this source tree, installed or not: they start in another directory."""
    import tidewheel

    assert tidewheel.__file__ is not None
    ours = [Path(__file__).resolve().parents[1], Path(tidewheel.__file__).resolve().parents[1]]
    kept = [part for part in present.split(os.pathsep) if part and Path(part).is_absolute()]
    return list(dict.fromkeys([*map(str, ours), *kept]))


async def until_served(fleet: Fleet, *, dispatchers: int, within_s: float = READY_WITHIN_S) -> None:
    """Wait until the control planes answer and `dispatchers` of them own every shard between them.

    Raises ServerFailed when a process ends meanwhile, or the time is up.
    """
    import asyncio

    from tidewheel.errors import TidewheelError
    from tidewheel.v1 import admin_service_pb2

    from tools.cli.api import open_api

    deadline_s = time.monotonic() + within_s
    seen = "no control plane answered"
    async with open_api(fleet.addresses, 1.0) as api:
        while time.monotonic() < deadline_s:
            fleet.check()
            try:
                status = await api.admin("GetClusterStatus", admin_service_pb2.GetClusterStatusRequest())
            except TidewheelError as error:
                seen = str(error)
            else:
                if status.dispatchers >= dispatchers and status.owned_shards == status.shard_count:
                    return
                seen = f"{status.dispatchers} dispatchers own {status.owned_shards} of {status.shard_count} shards"
            await asyncio.sleep(POLL_S)
    raise ServerFailed(f"the system was not ready within {within_s:g} s: {seen} (logs: {fleet.log_dir})")
