"""From the process's configuration to what the etcd client and its session are built with.

Reads the file with the password, and tries out those of TLS, so that a wrong one ends the start with its name instead
of looking like an etcd that is away. Called by the roles' main modules.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from core.config import EtcdSettings
from core.coord.config import EtcdConfig, EtcdTls, EtcdUser, SessionConfig
from core.errors import Invalid

_SHORTEST_LEASE_S = 2


def etcd_config(settings: EtcdSettings) -> EtcdConfig:
    """The client's configuration. Raises Invalid, also for a file that cannot be read."""
    return EtcdConfig(settings.endpoints, tls=_tls(settings), user=_user(settings))


def session_config(settings: EtcdSettings) -> SessionConfig:
    """The session's configuration: renewals and margin follow the TTL. Raises Invalid."""
    if settings.lease_ttl_s < _SHORTEST_LEASE_S:
        raise Invalid("etcd.lease_ttl_s", f"must be at least {_SHORTEST_LEASE_S}, the shortest that etcd grants")
    return SessionConfig(
        ttl_s=settings.lease_ttl_s, renew_s=settings.lease_ttl_s * 0.3, margin_s=settings.lease_ttl_s * 0.2
    )


def _tls(settings: EtcdSettings) -> EtcdTls | None:
    if not (settings.ca_file or settings.cert_file or settings.key_file):
        return None
    tls = EtcdTls(_path(settings.ca_file), _path(settings.cert_file), _path(settings.key_file))
    context = ssl.create_default_context()
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except (OSError, ssl.SSLError) as error:
            raise Invalid("etcd.ca_file", f"holds no certificate that can be read: {_words(error)}") from error
    if tls.cert is not None and tls.key is not None:
        try:
            # The empty password keeps an encrypted key from asking the terminal.
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise Invalid("etcd.cert_file", f"and etcd.key_file are no usable pair: {_words(error)}") from error
    return tls


def _words(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error.strerror or error)


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
