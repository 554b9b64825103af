"""The gRPC server of a control plane: ports, limits, health, reflection. What it serves is handed to it.

Unary calls are limited by calls.py; the server's own limit is the backstop for streams, which are long and cheap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from core.clock import Clock
from core.config import ControlPlaneSettings, check_loopback
from core.errors import Unavailable
from core.keepalive import PATIENT_ANSWER_MS, PATIENT_MS, accepts_pings, pings

log = logging.getLogger(__name__)

_STREAMS = 10_000
_HEALTH_EVERY_S = 0.25

Register = Callable[[grpc.aio.Server], None]
Ailing = Callable[[], str]


class ApiServer:
    """One server, bound when it is started."""

    def __init__(
        self,
        settings: ControlPlaneSettings,
        register: Register,
        ailments: Mapping[str, Ailing],
    ) -> None:
        """`ailments` says for each public service, and under "" for the whole, why it cannot work, or nothing.

        Raises Invalid.
        """
        self._listen = check_loopback(settings.listen, "controlplane.listen")
        self._ailments = ailments
        self._health = health.aio.HealthServicer()
        self._said: dict[str, str] = {}
        self._has_served = False
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=settings.max_concurrent_calls + _STREAMS,
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
                *accepts_pings(),
                *pings(PATIENT_MS, PATIENT_ANSWER_MS),
            ),
        )
        register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            names = [*filter(None, ailments), health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
            reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)

    async def start(self) -> str:
        """Bind and serve; the bound address, host:port. Raises Unavailable when the port is taken."""
        await self.tell_health()
        host, _, _ = self._listen.rpartition(":")
        try:
            port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise Unavailable(f"controlplane.listen: cannot listen on {self._listen}: is the port taken?") from error
        await self._server.start()
        return f"{host}:{port}"

    async def watch_health(self, clock: Clock) -> None:
        """Keep the standard health service right, for ever."""
        while True:
            await self.tell_health()
            await clock.sleep(_HEALTH_EVERY_S)

    async def tell_health(self) -> None:
        """Say of each service whether it can do its work."""
        for service, ailing in self._ailments.items():
            before, reason = self._said.get(service), ailing()
            if before == reason:
                continue
            status = health_pb2.HealthCheckResponse.NOT_SERVING if reason else health_pb2.HealthCheckResponse.SERVING
            await self._health.set(service, status)
            if service == "" and self._has_served:
                log.warning("%s", f"not serving: {reason}" if reason else "serving again")
            self._has_served = self._has_served or (service == "" and not reason)
            self._said[service] = reason

    async def stop(self, grace_s: float) -> None:
        """Say NOT_SERVING, take no more calls, and let those under way end within `grace_s`."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
