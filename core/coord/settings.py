"""From the process's configuration to what the etcd client and its session are built with.

Reads the file with the password; nothing else in this room reads files.
"""

from __future__ import annotations

from pathlib import Path

from core.config import EtcdSettings
from core.coord.config import EtcdConfig, EtcdTls, EtcdUser, SessionConfig
from core.errors import Invalid


def etcd_config(settings: EtcdSettings) -> EtcdConfig:
    """The client's configuration. Raises Invalid, also for a file that cannot be read."""
    tls = None
    if settings.ca_file or settings.cert_file or settings.key_file:
        tls = EtcdTls(_path(settings.ca_file), _path(settings.cert_file), _path(settings.key_file))
    return EtcdConfig(settings.endpoints, tls=tls, user=_user(settings))


def session_config(settings: EtcdSettings) -> SessionConfig:
    """The session's configuration: renewals and margin follow the TTL."""
    return SessionConfig(
        ttl_s=settings.lease_ttl_s, renew_s=settings.lease_ttl_s * 0.3, margin_s=settings.lease_ttl_s * 0.2
    )


def _user(settings: EtcdSettings) -> EtcdUser | None:
    if not settings.user:
        return None
    if not settings.password_file:
        raise Invalid("etcd.password_file", "is required with etcd.user")
    try:
        password = Path(settings.password_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Invalid("etcd.password_file", f"cannot be read: {error.strerror}") from error
    return EtcdUser(settings.user, password)


def _path(text: str) -> Path | None:
    return Path(text) if text else None
