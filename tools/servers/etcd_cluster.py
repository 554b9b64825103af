"""An etcd of several members on loopback, as production has it: for tests of faults and for trying operations out.

Members are killed, frozen and restarted one by one; the whole cluster is backed up and restored by etcdctl, as an
operator would. Optionally with TLS for clients and peers, and with any further flags of etcd (tokens, say).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.servers.etcd import EtcdBinary, EtcdServer, etcd_environment, find_etcd, find_etcdctl
from tools.servers.free_port import free_port
from tools.servers.http_probe import body_of
from tools.servers.process import Child, ServerFailed, start_child

POLL_S = 0.05
CONTROL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class EtcdTlsFiles:
    """PEM files: the authority, the members' certificate (clients and peers see it), and one that clients show."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


class EtcdMember(EtcdServer):
    """One member. Its health and metrics are served over plain HTTP on a port of their own, also with TLS."""

    def __init__(self, cluster: EtcdCluster, number: int) -> None:
        super().__init__(cluster.home / f"m{number}", binary=cluster.binary)
        self._cluster = cluster
        self.member_name = f"m{number}"
        self.port = free_port()
        self.peer_port = free_port()
        self.metrics_port = free_port()

    @property
    def peer_url(self) -> str:
        return f"{self._cluster.scheme}://127.0.0.1:{self.peer_port}"

    @property
    def client_url(self) -> str:
        return f"{self._cluster.scheme}://{self.endpoint}"

    @property
    def data(self) -> Path:
        """Where it keeps everything."""
        return self._data

    @property
    def leads(self) -> bool:
        """Whether it says that it is etcd's leader; false while it is dead or frozen."""
        return self.running and self.metric("etcd_server_is_leader") == 1.0

    def _launched(self) -> Child:
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [str(self.binary.path), f"--name={self.member_name}", f"--data-dir={self.data}"]
        command += [f"--listen-client-urls={self.client_url}", f"--advertise-client-urls={self.client_url}"]
        command += [f"--listen-peer-urls={self.peer_url}", f"--initial-advertise-peer-urls={self.peer_url}"]
        command += [f"--listen-metrics-urls=http://127.0.0.1:{self.metrics_port}", *self._cluster.bootstrap]
        command += ["--logger=zap", "--log-level=warn", *self._cluster.flags]
        return start_child(f"etcd {self.member_name}", command, log=self.log, env=etcd_environment())

    def _answers(self) -> bool:
        body = body_of(self.metrics_port, "/health")
        return body is not None and json.loads(body).get("health") in ("true", True)

    def metric(self, name: str, labelled: str = "") -> float:
        """The sum of a metric's series whose labels hold that text; 0 while it is dead or frozen."""
        body = body_of(self.metrics_port, "/metrics") or b""
        values = [
            float(line.rpartition(" ")[2])
            for line in body.decode().splitlines()
            if line.startswith((f"{name} ", f"{name}{{")) and labelled in line
        ]
        return sum(values)


class EtcdCluster:
    """`size` members under `home`. Its ports stay the same over restarts and restores."""

    def __init__(
        self,
        home: Path,
        *,
        size: int = 3,
        tls: EtcdTlsFiles | None = None,
        flags: Sequence[str] = (),
        binary: EtcdBinary | None = None,
    ) -> None:
        self.home = home.absolute()
        self.binary = binary or find_etcd()
        self.tls = tls
        self.token = "tidewheel"  # noqa: S105 - the name by which etcd tells clusters apart
        self._flags = tuple(flags)
        self.members = [EtcdMember(self, number) for number in range(size)]
        # The user and password of etcdctl, once the cluster has users.
        self.control_user = ""

    @property
    def description(self) -> str:
        """Version and path, for people."""
        return f"{len(self.members)} members of {self.binary.description}"

    @property
    def version(self) -> str:
        return self.binary.version

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The client URLs of all members."""
        return tuple(member.client_url for member in self.members)

    @property
    def bootstrap(self) -> list[str]:
        """The flags by which members find each other."""
        peers = ",".join(f"{member.member_name}={member.peer_url}" for member in self.members)
        return [f"--initial-cluster={peers}", f"--initial-cluster-token={self.token}"]

    @property
    def flags(self) -> list[str]:
        """Flags that all members have in common."""
        tls = self.tls
        if tls is None:
            return list(self._flags)
        served = [f"--cert-file={tls.server_cert}", f"--key-file={tls.server_key}"]
        served += [f"--trusted-ca-file={tls.ca}", "--client-cert-auth=true"]
        peers = [f"--peer-cert-file={tls.server_cert}", f"--peer-key-file={tls.server_key}"]
        peers += [f"--peer-trusted-ca-file={tls.ca}", "--peer-client-cert-auth=true"]
        return [*served, *peers, *self._flags]

    # --- its life ---

    def start(self) -> None:
        """Start every member that does not run, and wait until each answers."""
        starting = [member for member in self.members if not member.running]
        for member in starting:
            member.launch()
        for member in starting:
            member.wait_ready()

    def stop(self) -> None:
        """End every member; frozen ones too."""
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        """End every member with SIGKILL at once."""
        for member in self.members:
            if member.running:
                member.kill()

    def leader(self, *, within_s: float = 60.0) -> EtcdMember:
        """The member that leads. Raises ServerFailed when none does in time."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            leading = [member for member in self.members if member.leads]
            if len(leading) == 1:
                return leading[0]
            time.sleep(POLL_S)
        raise ServerFailed(f"etcd: no leader within {within_s:g} s")

    def followers(self) -> list[EtcdMember]:
        """The members that do not lead, in their order."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    # --- its data ---

    def backup(self, file: Path) -> None:
        """Save everything that a member holds now."""
        self.control("snapshot", "save", str(file), endpoints=self.endpoints[:1])

    def restore(self, file: Path, *, token: str | None = None) -> None:
        """Replace what all members hold by a backup; they must not run. Another `token` makes another cluster of it."""
        self.wipe()
        self.token = token or self.token
        for member in self.members:
            own = [f"--name={member.member_name}", f"--initial-advertise-peer-urls={member.peer_url}"]
            self.control("snapshot", "restore", str(file), f"--data-dir={member.data}", *own, *self.bootstrap)

    def wipe(self) -> None:
        """Remove all data of all members; they must not run."""
        if any(member.running for member in self.members):
            raise ServerFailed("etcd is running: stop or kill it before its data is removed")
        for member in self.members:
            shutil.rmtree(member.data, ignore_errors=True)

    # --- etcdctl ---

    def control(self, *arguments: str, endpoints: Sequence[str] | None = None) -> str:
        """Run etcdctl on this cluster as its operator; what it printed. Raises ServerFailed with its last words."""
        connection = [f"--endpoints={','.join(endpoints or self.endpoints)}"]
        if self.tls is not None:
            connection += [f"--cacert={self.tls.ca}", f"--cert={self.tls.client_cert}", f"--key={self.tls.client_key}"]
        if self.control_user:
            connection.append(f"--user={self.control_user}")
        done = subprocess.run(
            [find_etcdctl(self.binary.path), *connection, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=CONTROL_TIMEOUT_S,
            env={**etcd_environment(), "ETCDCTL_API": "3"},
        )
        if done.returncode != 0:
            raise ServerFailed(f"etcdctl {' '.join(arguments[:2])}: {(done.stderr or done.stdout).strip()}")
        return done.stdout
