"""RFC 3339 texts and microsecond instants, for tests that speak of points in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(text: str) -> int:
    """The instant of an RFC 3339 text, in microseconds since the epoch."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def rfc3339(instant_us: int | None) -> str | None:
    """The text of an instant, in UTC; seconds only where there are no fractions."""
    if instant_us is None:
        return None
    return (_EPOCH + timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")
