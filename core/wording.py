"""How instants, wall times and spans are written for people. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from core.clock import US_PER_S
from core.zones import ZoneTable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((86_400 * US_PER_S, "d"), (3_600 * US_PER_S, "h"), (60 * US_PER_S, "min"))


def local_text(instant_us: int, table: ZoneTable) -> str:
    """The instant on the wall of a zone, with its offset: 2026-03-08T03:00:00-04:00."""
    offset_s = table.offsets_s[table.index(instant_us // US_PER_S)]
    wall = timezone(timedelta(seconds=offset_s))
    return (_EPOCH + timedelta(microseconds=instant_us)).astimezone(wall).isoformat()


def utc_text(instant_us: int) -> str:
    """The instant as RFC 3339 in UTC."""
    return (_EPOCH + timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")


def clock_text(wall_s: int) -> str:
    """A wall time without its date: 02:30, or 02:30:15."""
    shown = _EPOCH + timedelta(seconds=wall_s)
    return shown.strftime("%H:%M:%S" if shown.second else "%H:%M")


def day_text(wall_s: int) -> str:
    """The date of a wall time."""
    return (_EPOCH + timedelta(seconds=wall_s)).date().isoformat()


def span_text(span_us: int) -> str:
    """A span of time: 1 h 30 min, 12.5 s."""
    parts = []
    for unit_us, name in _UNITS:
        count, span_us = divmod(span_us, unit_us)
        if count:
            parts.append(f"{count} {name}")
    if span_us or not parts:
        seconds = f"{span_us / US_PER_S:.6f}".rstrip("0").rstrip(".")
        parts.append(f"{seconds} s")
    return " ".join(parts)
