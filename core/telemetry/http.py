"""The HTTP port of every server: /metrics for Prometheus, /healthz (the process answers), /readyz (it can work).

Served by threads of its own, so that it answers, and says why, while the event loop hangs. Loopback only until
authentication exists. It reads what others wrote down and never waits for the event loop.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from core.config import check_loopback
from core.errors import Unavailable
from core.telemetry.health import Health

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

# A client that sends nothing, or reads nothing, is dropped after it.
CLIENT_LIMIT_S = 5
_HEADERS = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]


class MonitorServer:
    """Serves the port from `start` to `stop`."""

    def __init__(
        self, listen: str, registry: CollectorRegistry, health: Health, *, key: str = "metrics_listen"
    ) -> None:
        """`key` names the setting in errors. Raises Invalid for an address that is not loopback."""
        host, _, port = check_loopback(listen, key).rpartition(":")
        self._key = key
        self._host = host
        self._port = int(port)
        self._app = _Pages(registry, health)
        self._server: _ThreadedServer | None = None

    def start(self) -> str:
        """Bind and serve; the bound address, host:port. Raises Unavailable when the port is taken."""
        try:
            self._server = _ThreadedServer(self._host.strip("[]"), self._port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unavailable(f"{self._key}: cannot listen on {self._host}:{self._port}: {reason}") from error
        self._server.set_app(self._app)
        threading.Thread(target=self._server.serve_forever, name="monitor", daemon=True).start()
        return f"{self._host}:{self._server.server_port}"

    def stop(self) -> None:
        """Close the port. It may block for half a second."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Pages:
    """The three pages, as a WSGI application."""

    def __init__(self, registry: CollectorRegistry, health: Health) -> None:
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._health = health

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _answer(environ, start_response, "405 Method Not Allowed", {"error": "only GET and HEAD"})
        try:
            return self._page(environ, start_response)
        except Exception:
            log.exception("a page of the metrics port failed")
            return _answer(environ, start_response, "500 Internal Server Error", {"error": "see the log"})

    def _page(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO", ""):
            case "/metrics":
                return self._metrics(environ, start_response)
            case "/healthz":
                return _answer(environ, start_response, "200 OK", {"alive": True})
            case "/readyz":
                return self._readiness(environ, start_response)
            case _:
                return _answer(environ, start_response, "404 Not Found", {"pages": ["/metrics", "/healthz", "/readyz"]})

    def _readiness(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        ailments = self._health.ailments()
        said = {"ready": not ailments, "reasons": [{"check": one.check, "reason": one.reason} for one in ailments]}
        return _answer(environ, start_response, "503 Service Unavailable" if ailments else "200 OK", said)


def _answer(environ: WSGIEnvironment, start_response: StartResponse, status: str, said: object) -> list[bytes]:
    body = json.dumps(said).encode() + b"\n"
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *_HEADERS])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


class _Request(WSGIRequestHandler):
    timeout = CLIENT_LIMIT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        log.debug("metrics port: " + format, *args)


class _ThreadedServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Request)

    def server_bind(self) -> None:
        # Not the base class's: that one looks the host's name up, which can hang on a machine without a resolver.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a client of the metrics port went away", exc_info=True)
