"""The channels to etcd's servers: one per endpoint, one of them current; and whether etcd can be reached at all.

Whoever sees a try fail calls `failed`, which moves on to the next endpoint; whoever sees an answer calls `answered`.
Reachability is logged once per change, never once per try. Called by calls.py and watch.py only.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import grpc

from core.clock import Clock
from core.coord.config import Address, EtcdConfig, EtcdTls, parse_endpoint
from core.errors import Unavailable

log = logging.getLogger(__name__)

MultiCallable = Any  # grpc types its multi-callables by codec; wire.Rpc carries those types instead

_ANY_READ = "/etcdserverpb.Maintenance/Status"
_ASK_WHY_S = 0.2
# What grpc says of a handshake that failed, and what whoever configures us has to look at.
_CAUSES = {
    r"CERTIFICATE_VERIFY_FAILED": "its certificate does not hold up against etcd.ca_file",
    # The first is what is left of the refusal with TLS 1.3, the others are the alerts of TLS 1.2.
    r"TSI_DATA_CORRUPTED|ALERT_\w*(CERTIFICATE|UNKNOWN_CA)": "it does not accept our certificate; see etcd.cert_file",
    r"security handshaker": "etcd.ca_file, etcd.cert_file or etcd.key_file is not usable",
    r"Handshake read failed": "it broke off the TLS handshake; without TLS write http:// in etcd.endpoints",
    r"Socket closed": "it closed the connection; with TLS write https:// in etcd.endpoints",
}


class Endpoint:
    """One server and the channel to it, opened when first used."""

    def __init__(self, address: Address, config: EtcdConfig) -> None:
        self.target = address.target
        self._secure = address.secure
        self._config = config
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, MultiCallable] = {}

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel to this server."""
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    def _open(self) -> grpc.aio.Channel:
        options = _channel_options(self._config)
        if not self._secure:
            return grpc.aio.insecure_channel(self.target, options=options)
        return grpc.aio.secure_channel(self.target, _credentials(self._config.tls or EtcdTls()), options=options)

    def unary(self, path: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> MultiCallable:
        """The callable of a unary call, made once per path."""
        if path not in self._calls:
            self._calls[path] = self.channel.unary_unary(path, encode, decode)
        return self._calls[path]

    async def wait_ready(self, timeout_s: float) -> None:
        """Return once the channel is connected; raises Unavailable when that takes longer than `timeout_s`.

        A call started only after this has either been sent or met a connection that broke meanwhile, so "could not
        connect" is known to be "certainly not applied" even when the server is frozen and accepts connections.
        """
        if self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.channel.channel_ready()
        except TimeoutError:
            cause = await self._cause()
            said = f": {cause}" if cause else f" within {timeout_s:.1f} s"
            raise Unavailable(f"no connection to etcd at {self.target}{said}") from None

    async def _cause(self) -> str:
        """Why the last try to connect failed, as far as grpc knows; only a call that fails for it tells."""
        if self.channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return ""
        try:
            asking: MultiCallable = self.channel.unary_unary(_ANY_READ)
            await asking(b"", timeout=_ASK_WHY_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                return ""
            details = error.details() or ""
            causes = (cause for pattern, cause in _CAUSES.items() if re.search(pattern, details))
            return next(causes, details.rpartition("last error: ")[2])
        return ""

    async def close(self) -> None:
        """Close the channel; calls in flight on it end."""
        if self._channel is not None:
            await self._channel.close()


class Endpoints:
    """All servers of the cluster, with the one that is being used."""

    def __init__(self, config: EtcdConfig, clock: Clock) -> None:
        self.all = tuple(Endpoint(parse_endpoint(text), config) for text in config.endpoints)
        self._clock = clock
        self._position = 0
        self._failures_in_a_row = 0
        self._unreachable_since_s: float | None = None
        self.closed = False

    @property
    def current(self) -> Endpoint:
        """The server that calls go to now."""
        return self.all[self._position]

    @property
    def reachable(self) -> bool:
        """False from the moment every endpoint has failed in a row until one answers."""
        return self._unreachable_since_s is None

    def pass_over(self, endpoint: Endpoint) -> None:
        """Move on from a server that is slow; whether it answers in the end is still to be seen."""
        if endpoint is self.current:
            self._position = (self._position + 1) % len(self.all)

    def failed(self, endpoint: Endpoint, reason: str) -> bool:
        """Note a failed try and move on; true when every endpoint has failed since the last answer (so: wait)."""
        self.pass_over(endpoint)
        self._failures_in_a_row += 1
        if self._failures_in_a_row < len(self.all):
            return False
        if self._unreachable_since_s is None and not self.closed:
            self._unreachable_since_s = self._clock.monotonic_s()
            targets = ", ".join(each.target for each in self.all)
            log.warning("etcd cannot be reached (%s): %s; trying on", targets, reason)
        return True

    def answered(self, endpoint: Endpoint) -> None:
        """Note that a server answered, be it with a refusal."""
        self._failures_in_a_row = 0
        if self._unreachable_since_s is not None:
            gap_s = self._clock.monotonic_s() - self._unreachable_since_s
            self._unreachable_since_s = None
            log.warning("etcd answers again at %s after %.1f s", endpoint.target, gap_s)

    async def close(self) -> None:
        """Close every channel."""
        self.closed = True
        for endpoint in self.all:
            await endpoint.close()


def _channel_options(config: EtcdConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", -1),  # one revision may be larger than grpc's default of 4 MiB
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of our own: another client's back-off is not ours
        ("grpc.enable_http_proxy", 0),  # etcd is never behind a web proxy, whatever the environment says
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(config.connect_timeout_s * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(config.retry_max_s * 1000)),
        ("grpc.keepalive_time_ms", int(config.ping_interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(config.call_timeout_s * 1000)),
        # The one that counts: without it grpc waits a minute for the answer to a ping, whatever the line above says.
        ("grpc.http2.ping_timeout_ms", int(config.call_timeout_s * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_retries", 0),  # calls.py alone decides what may be sent twice
    ]


def _credentials(tls: EtcdTls) -> grpc.ChannelCredentials:
    ca = tls.ca.read_bytes() if tls.ca else None
    cert = tls.cert.read_bytes() if tls.cert else None
    key = tls.key.read_bytes() if tls.key else None
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)
