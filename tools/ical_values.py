"""When an event of an iCalendar file is: whole days, or a time of day in a zone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from core.errors import Invalid
from core.zones import zone as checked_zone

MAX_NAME_CHARS = 128
# A VEVENT of the library, which types each property as any of thirty classes.
IcalEvent = Any
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unkept(Exception):
    """Says in a few words why an event cannot be kept."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole days, both ends inclusive."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class Timed:
    """A wall time (without a zone of its own) in `zone`, and how long it lasts."""

    begins: datetime
    zone: str
    duration_us: int


def span_of(event: IcalEvent, default_zone: str) -> Span | Timed:
    """When the event is, its recurrences aside. Raises Unkept."""
    if "DTSTART" not in event:
        raise Unkept("has no DTSTART")
    begin = event["DTSTART"].dt
    if isinstance(begin, datetime):
        return _timed(event, begin, default_zone)
    end = event["DTEND"].dt if "DTEND" in event else begin + (_duration(event) or timedelta(days=1))
    if isinstance(end, datetime):
        raise Unkept("begins on a day and ends at a time")
    if end <= begin:
        end = begin + timedelta(days=1)
    return Span(begin, end - timedelta(days=1))


def wall_time(instant: datetime, zone: str) -> datetime:
    """The wall time in `zone`, without the zone."""
    return (
        instant.replace(tzinfo=None)
        if instant.tzinfo is None
        else instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    )


def instant_us(wall: datetime, zone: str) -> int:
    """The instant of a wall time: of one that does not exist as if the clock had not been moved, of one that exists
    twice the first (RFC 5545, 3.3.5)."""
    return (wall.replace(tzinfo=ZoneInfo(zone)) - _EPOCH) // timedelta(microseconds=1)


def zone_name(value: datetime, given: str, default_zone: str) -> str:
    """The IANA name of a time's zone. Raises Unkept."""
    if value.tzinfo is None:
        if not default_zone:
            raise Unkept(
                f"its time zone {given!r} is not known: --zone would name one"
                if given
                else "its time is of no zone: --zone would name one"
            )
        return default_zone
    name = getattr(value.tzinfo, "key", None) or ("UTC" if value.utcoffset() == timedelta(0) else "")
    try:
        return checked_zone(name, field="zone").key
    except Invalid:
        raise Unkept(f"its time zone {given or name!r} is not known") from None


def _timed(event: IcalEvent, begin: datetime, default_zone: str) -> Timed:
    zone = zone_name(begin, str(event["DTSTART"].params.get("TZID", "")), default_zone)
    wall = wall_time(begin, zone)
    if "DTEND" in event:
        end = event["DTEND"].dt
        if not isinstance(end, datetime):
            raise Unkept("begins at a time and ends on a day")
        duration_us = instant_us(wall_time(end, zone), zone) - instant_us(wall, zone)
    else:
        duration_us = (_duration(event) or timedelta(0)) // timedelta(microseconds=1)
    if duration_us <= 0:
        raise Unkept("lasts no time")
    return Timed(wall, zone, duration_us)


def _duration(event: IcalEvent) -> timedelta | None:
    if "DURATION" not in event:
        return None
    value = event["DURATION"].dt
    return value if isinstance(value, timedelta) else None
