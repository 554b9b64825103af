"""Reads and writes points in time and lengths of time as the command line speaks of them. Pure: the caller gives now.

An instant is RFC 3339 with its offset (the same digits mean another instant elsewhere), or relative: `now`, `in 5m`,
`5m ago`. A length has its unit: `10s`, `1h30m`, `2d`, `500ms`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tools.cli.exits import usage

_RFC_3339 = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[Tt ](?P<time>\d\d:\d\d(:\d\d)?)(\.(?P<fraction>\d+))?(?P<offset>[Zz]|[+-]\d\d:\d\d)?"
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|d|h|m|s)")
_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_LONGEST_US = 400 * 366 * _UNITS_US["d"]
INSTANT_HINT = "for example 2030-01-31T09:00:00Z, 2030-01-31T09:00:00+01:00, or `in 5m`"
LENGTH_HINT = "for example 10s, 1h30m, 2d or 500ms"


def read_length(text: str, what: str) -> timedelta:
    """The length that `text` stands for. Raises Failure(USAGE) that names `what`."""
    position, total_us = 0, 0.0
    compact = text.replace(" ", "")
    for match in _PART.finditer(compact):
        if match.start() != position:
            break
        total_us += float(match[1]) * _UNITS_US[match[2]]
        position = match.end()
    if not compact or position != len(compact):
        raise usage(f"{what}: {text!r} is not a length of time", LENGTH_HINT)
    if total_us > _LONGEST_US:
        raise usage(f"{what}: {text!r} is longer than any schedule")
    return timedelta(microseconds=round(total_us))


def read_instant(text: str, what: str, now: datetime) -> datetime:
    """The instant that `text` stands for. Raises Failure(USAGE) that names `what`."""
    words = text.strip()
    if words.lower() == "now":
        return now
    if words.lower().startswith("in "):
        return now + read_length(words[3:], what)
    if words.lower().endswith(" ago"):
        return now - read_length(words[:-4], what)
    match = _RFC_3339.fullmatch(words)
    if match is None:
        raise usage(f"{what}: {text!r} is not an instant", INSTANT_HINT)
    if match["offset"] is None:
        raise usage(f"{what}: {text!r} has no offset from UTC", "add Z or an offset such as +02:00")
    fraction = (match["fraction"] or "").ljust(6, "0")
    if len(fraction) > 6:
        raise usage(f"{what}: {text!r} is finer than a microsecond")
    offset = "+00:00" if match["offset"] in "zZ" else match["offset"]
    try:
        return datetime.fromisoformat(f"{match['date']}T{match['time']}{offset}") + timedelta(
            microseconds=int(fraction)
        )
    except ValueError as error:
        raise usage(f"{what}: {text!r} is not an instant: {error}", INSTANT_HINT) from error


def write_instant(instant: datetime | None) -> str:
    """RFC 3339 in UTC; fractions only where there are some, then as few digits as are needed."""
    if instant is None:
        return ""
    text = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    if instant.microsecond:
        text += f".{instant.microsecond:06d}".rstrip("0")
    return text + "Z"


def write_local(instant: datetime | None, zone: str) -> str:
    """The wall time in `zone` with its offset; empty where that is UTC anyway, or the zone is not known here."""
    if instant is None or zone in ("", "UTC"):
        return ""
    try:
        local = instant.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ""
    offset = local.strftime("%z")
    seconds = ":%S" if local.second or local.microsecond else ""
    return local.strftime(f"%Y-%m-%d %H:%M{seconds} ") + f"{offset[:3]}:{offset[3:5]}"


def write_length(length: timedelta) -> str:
    """The length in the form that `read_length` takes, largest units first."""
    left_us = length // timedelta(microseconds=1)
    if left_us == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left_us = divmod(left_us, _UNITS_US[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def write_rough_length(length: timedelta) -> str:
    """The length to the second, or whole where it is below one."""
    return write_length(timedelta(seconds=round(length.total_seconds())) if length >= timedelta(seconds=1) else length)


def write_age(instant: datetime | None, now: datetime) -> str:
    """How far away, roughly, in the two largest units: `in 5m10s`, `2h3m ago`."""
    if instant is None:
        return ""
    seconds = round((instant - now).total_seconds())
    if seconds == 0:
        return "now"
    parts: list[str] = []
    left = abs(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    text = "".join(parts[:2])
    return f"in {text}" if seconds >= 0 else f"{text} ago"
