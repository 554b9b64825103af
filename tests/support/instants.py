"""RFC 3339 texts and microsecond instants, for tests that speak of points in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.polling import eventually

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Much longer than it takes from a test's first call to its last.
_CLEAR_S = 10


def us(text: str) -> int:
    """The instant of an RFC 3339 text, in microseconds since the epoch."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def rfc3339(instant_us: int | None) -> str | None:
    """The text of an instant, in UTC; seconds only where there are no fractions."""
    if instant_us is None:
        return None
    return (_EPOCH + timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")


async def clear_of_the_next(period_s: int) -> None:
    """Wait, where it is near, until the next multiple of the period has passed: tests whose figures hang on how many
    occurrences there were may not see one come in their midst."""
    await eventually(lambda: period_s - datetime.now(UTC).timestamp() % period_s > _CLEAR_S, within_s=60)
