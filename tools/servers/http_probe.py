"""Asks a server of ours over plain HTTP on loopback whether it is well."""

from __future__ import annotations

import http.client

TIMEOUT_S = 1.0


def body_of(port: int | None, path: str) -> bytes | None:
    """The body of a 200 answer, None for any other answer and for none. No proxy is ever asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
