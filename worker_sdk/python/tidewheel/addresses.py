"""Where the control planes are: reads the `addresses` argument or TIDEWHEEL_ADDRESS. Called by Client and Worker."""

from __future__ import annotations

import os
from collections.abc import Iterable

ADDRESS_VARIABLE = "TIDEWHEEL_ADDRESS"


def control_plane_addresses(addresses: str | Iterable[str] | None) -> tuple[str, ...]:
    """The addresses in the order given, each once.

    `addresses` is a list of host:port, or one string with commas; None reads the environment. ValueError if there is
    none, or one has no port.
    """
    given = os.environ.get(ADDRESS_VARIABLE, "") if addresses is None else addresses
    parts = given.split(",") if isinstance(given, str) else list(given)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not found:
        raise ValueError(f"no control plane to talk to: pass addresses=['host:port', ...] or set {ADDRESS_VARIABLE}")
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError(f"not an address of the form host:port: {address!r}")
    return found
