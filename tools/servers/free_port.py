"""Finds a loopback port that nothing uses, away from the range that the kernel hands to outgoing connections.

A port of the ephemeral range can be taken by any client while its server is being restarted; these cannot. Nor is one
given out twice: a server binds its port seconds after it was chosen, and others choose meanwhile, also in other
processes. What keeps it is a name in Linux's abstract namespace of sockets, which is gone with the process that has it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from collections import deque
from pathlib import Path

LOWEST_PORT = 10_240
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_EPHEMERAL_START = 32_768
ATTEMPTS = 200
# So many of the ports that this process chose last stay its own; each costs an open file.
KEPT = 200
_kept: deque[int] = deque()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that could be bound a moment ago and was given to nobody. Raises OSError without one."""
    draw = random.SystemRandom()
    for _ in range(ATTEMPTS):
        port = draw.randrange(LOWEST_PORT, _ephemeral_start())
        if is_free(port) and _keep(port):
            return port
    raise OSError(f"no free TCP port on 127.0.0.1 found in {ATTEMPTS} attempts")


def _keep(port: int) -> bool:
    """Make the port this process's; False if it was given out before."""
    if sys.platform != "linux":
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name:
        try:
            name.bind(f"\0tidewheel-port-{port}")
        except OSError:
            return False
        _kept.append(name.detach())
    if len(_kept) > KEPT:
        with contextlib.suppress(OSError):
            os.close(_kept.popleft())
    return True


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
