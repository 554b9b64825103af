"""Finds a loopback port that nothing uses, away from the range that the kernel hands to outgoing connections.

A port of the ephemeral range can be taken by any client while its server is being restarted; these cannot.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST_PORT = 10_240
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_EPHEMERAL_START = 32_768
ATTEMPTS = 200


def free_port() -> int:
    """A TCP port on 127.0.0.1 that could be bound a moment ago. Raises OSError when none is found."""
    draw = random.SystemRandom()
    for _ in range(ATTEMPTS):
        port = draw.randrange(LOWEST_PORT, _ephemeral_start())
        if is_free(port):
            return port
    raise OSError(f"no free TCP port on 127.0.0.1 found in {ATTEMPTS} attempts")


def is_free(port: int) -> bool:
    """Whether `port` on 127.0.0.1 can be bound right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        start = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return USUAL_EPHEMERAL_START
    return start if start > LOWEST_PORT + ATTEMPTS else USUAL_EPHEMERAL_START
