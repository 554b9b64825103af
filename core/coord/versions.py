"""Which servers are fit for production, and why not. Pure: no I/O."""

from __future__ import annotations

import re

_MINIMUM = {(3, 5): 30, (3, 6): 11}
_NEWEST_KNOWN_LINE = max(_MINIMUM)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def complaint(version: str) -> str | None:
    """What is wrong with a server of this version, in one line; None when nothing is."""
    found = _VERSION.match(version)
    if found is None:
        return f"etcd reports version {version!r}, which cannot be read; production needs 3.5.30 or 3.6.11 at least"
    major, minor, patch = (int(part) for part in found.groups())
    if (major, minor) > _NEWEST_KNOWN_LINE or patch >= _MINIMUM.get((major, minor), patch + 1):
        return None
    return (
        f"etcd {version} lacks fixes for wrongly revoked leases and lost watch events: "
        "good enough for development, but production needs 3.5.30 or 3.6.11 at least"
    )
