"""How this process reaches etcd and keeps its lease: frozen settings, each checked as a whole at construction.

Called by the roles' main modules, which build these from flags, environment and file. Reads no file itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from core.errors import Invalid


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """Files in PEM: the authority that signed the servers, and the client's own certificate where they ask for one."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise Invalid("etcd.tls", "cert and key are given together or not at all")


@dataclass(frozen=True, slots=True)
class EtcdUser:
    """A user of etcd's own access control."""

    name: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name or not self.password:
            raise Invalid("etcd.user", "name and password must not be empty")


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """Where etcd is and how long to wait for it.

    `call_timeout_s` bounds one try of a call at one endpoint, `total_timeout_s` all tries of it together. A watch that
    hears nothing for `watch_silence_s` asks the server for a sign of life, and after as long again is opened elsewhere.
    """

    endpoints: tuple[str, ...]
    connect_timeout_s: float = 1.0
    call_timeout_s: float = 2.0
    total_timeout_s: float = 6.0
    retry_min_s: float = 0.05
    retry_max_s: float = 2.0
    watch_silence_s: float = 1.0
    ping_interval_s: float = 6.0
    tls: EtcdTls | None = None
    user: EtcdUser | None = None

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise Invalid("etcd.endpoints", "at least one endpoint is needed, such as http://127.0.0.1:2379")
        addresses = [parse_endpoint(text) for text in self.endpoints]
        if len({address.target for address in addresses}) < len(addresses):
            raise Invalid("etcd.endpoints", "an endpoint is named twice")
        if self.tls is not None and any(not address.secure for address in addresses):
            raise Invalid("etcd.endpoints", "with TLS files given, every endpoint must start with https://")
        for name in ("connect_timeout_s", "call_timeout_s", "retry_min_s", "watch_silence_s"):
            if getattr(self, name) <= 0:
                raise Invalid(f"etcd.{name}", "must be above zero")
        if self.total_timeout_s < max(self.connect_timeout_s, self.call_timeout_s):
            raise Invalid("etcd.total_timeout_s", "must not be below connect_timeout_s or call_timeout_s")
        if self.retry_max_s < self.retry_min_s:
            raise Invalid("etcd.retry_max_s", "must not be below retry_min_s")
        if self.ping_interval_s < 5:
            raise Invalid("etcd.ping_interval_s", "must be at least 5: etcd drops clients that ping more often")


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The lease of this process. The holder stops trusting it `margin_s` before the server could have expired it."""

    ttl_s: int = 5
    renew_s: float = 1.5
    margin_s: float = 1.0
    verify_s: float = 10.0

    def __post_init__(self) -> None:
        if self.renew_s <= 0 or self.margin_s <= 0 or self.verify_s <= 0:
            raise Invalid("etcd.session", "renew_s, margin_s and verify_s must be above zero")
        if self.ttl_s <= 3 * self.renew_s:
            raise Invalid("etcd.session.ttl_s", "must be above three times renew_s")
        if self.margin_s >= self.ttl_s - self.renew_s:
            raise Invalid("etcd.session.margin_s", "must be below ttl_s - renew_s")


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint, parsed: `target` is host:port."""

    target: str
    secure: bool


def parse_endpoint(text: str) -> Address:
    """Read `http://host:port`, `https://host:port` or `host:port`; raises Invalid."""
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme not in {"http", "https"}:
        raise Invalid("etcd.endpoints", f"{text!r} must start with http:// or https://")
    rest = rest.rstrip("/")
    host, colon, port = rest.rpartition(":")
    port_ok = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not colon or not host or not port_ok or any(mark in host for mark in "/@?# "):
        raise Invalid("etcd.endpoints", f"{text!r} must be http(s)://host:port")
    return Address(target=rest, secure=scheme == "https")
