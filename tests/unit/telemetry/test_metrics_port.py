"""The HTTP port: three pages, on loopback, that answer while the event loop hangs."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from core.clock import SystemClock
from core.errors import Invalid, Unavailable
from core.telemetry.control_plane_metrics import ControlPlaneMetrics
from core.telemetry.health import Health
from core.telemetry.http import MonitorServer
from core.telemetry.metrics import new_registry
from tests.support.polling import eventually


class Port:
    """A running port, and what it shows."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        self.registry = new_registry()
        self.metrics = ControlPlaneMetrics(self.registry)
        self.health = Health(SystemClock())
        self.registry.register(self.health)
        self.server = MonitorServer(listen, self.registry, self.health)
        self.address = self.server.start()

    def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def said(self, path: str) -> tuple[int, Any]:
        status, _, body = self.get(path)
        return status, json.loads(body)


@pytest.fixture
def port() -> Iterator[Port]:
    running = Port()
    yield running
    running.server.stop()


def test_it_shows_the_metrics(port: Port) -> None:
    port.metrics.set_leading(True)
    status, headers, body = port.get("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert b"\ntidewheel_leader 1.0\n" in body
    assert b"\nprocess_resident_memory_bytes " in body


def test_it_says_alive_whether_ready_or_not(port: Port) -> None:
    port.health.require("database", lambda: "no answer")
    assert port.said("/healthz") == (200, {"alive": True})


def test_it_says_ready_or_why_not(port: Port) -> None:
    assert port.said("/readyz") == (200, {"ready": True, "reasons": []})
    port.health.require("database", lambda: "no answer since 3 s")
    assert port.said("/readyz") == (
        503,
        {"ready": False, "reasons": [{"check": "database", "reason": "no answer since 3 s"}]},
    )


async def test_b131_a_hung_event_loop_cannot_hide(port: Port) -> None:
    """The loop's own thread is blocked; the port answers all the same, and says so."""
    due = port.health.pulse("due", period_s=0.02)
    due.beat()
    asked: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: asked.append(_first_not_ready(port)))
    asking.start()
    asking.join(30)  # blocks this event loop, whose pulse therefore stops
    assert not asking.is_alive()
    [(status, said)] = asked
    assert status == 503
    assert said["reasons"][0]["check"] == "due"

    async def ready_after_a_beat() -> bool:
        due.beat()
        return (await asyncio.to_thread(port.said, "/readyz"))[0] == 200

    await eventually(ready_after_a_beat)  # by the time the port is asked, three periods may have passed again


def _first_not_ready(port: Port) -> tuple[int, Any]:
    while True:
        status, said = port.said("/readyz")
        if status != 200:
            return status, said


def test_other_paths_and_methods_are_refused(port: Port) -> None:
    assert port.said("/") == (404, {"pages": ["/metrics", "/healthz", "/readyz"]})
    assert port.get("/metrics", "POST")[0] == 405
    assert port.get("/%00<script>")[0] == 404


def test_a_head_request_gets_the_status_without_a_body(port: Port) -> None:
    port.health.require("database", lambda: "no answer")
    status, headers, body = port.get("/readyz", "HEAD")
    assert (status, body) == (503, b"")
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_clients_that_say_nothing_or_nonsense_keep_nobody_waiting(port: Port) -> None:
    host, _, number = port.address.rpartition(":")
    with socket.create_connection((host, int(number))), socket.create_connection((host, int(number))) as rude:
        rude.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert port.said("/healthz")[0] == 200


def has_ipv6() -> bool:
    """Whether this machine has a loopback address of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_it_also_listens_on_the_loopback_of_ipv6() -> None:
    running = Port("[::1]:0")
    try:
        assert running.address.startswith("[::1]:")
        assert running.said("/healthz")[0] == 200
    finally:
        running.server.stop()


@pytest.mark.parametrize("listen", ["0.0.0.0:9090", "192.168.1.5:0", "[::]:0", ":9090", "127.0.0.1", "127.0.0.1:70000"])
def test_it_binds_loopback_only(listen: str) -> None:
    with pytest.raises(Invalid, match=r"dispatcher\.metrics_listen"):
        MonitorServer(listen, new_registry(), Health(SystemClock()), key="dispatcher.metrics_listen")


def test_a_port_that_is_taken_is_said_in_one_line(port: Port) -> None:
    second = MonitorServer(port.address, port.registry, port.health)
    with pytest.raises(Unavailable, match=rf"metrics_listen: cannot listen on {port.address}: Address already in use"):
        second.start()


def test_a_stopped_port_refuses_connections(port: Port) -> None:
    port.server.stop()
    with pytest.raises(ConnectionRefusedError):
        port.get("/healthz")
    port.server.stop()
