"""Points and lengths of time, as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tools.cli.exits import ExitCode, Failure
from tools.cli.instants import read_instant, read_length, write_age, write_instant, write_length, write_local

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)


def instant(text: str) -> datetime:
    return read_instant(text, "--at", NOW)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-06-03T17:01:00+02:00", "2026-06-03T15:01:00Z"),
        ("2026-06-03T13:00:00-05:00", "2026-06-03T18:00:00Z"),
        ("2026-06-03T15:01:00.5Z", "2026-06-03T15:01:00.5Z"),
        ("2026-06-03 15:01Z", "2026-06-03T15:01:00Z"),
        ("2026-06-03t15:01:00.000001z", "2026-06-03T15:01:00.000001Z"),
        ("now", "2026-06-03T12:00:00Z"),
        ("in 5m", "2026-06-03T12:05:00Z"),
        ("in 1h 30m", "2026-06-03T13:30:00Z"),
        ("2d ago", "2026-06-01T12:00:00Z"),
    ],
)
def test_b111_an_instant_is_read_with_its_offset_or_relative_to_now(text: str, utc: str) -> None:
    assert write_instant(instant(text)) == utc


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-06-03T17:01:00", "has no offset"),
        ("2026-06-03", "is not an instant"),
        ("tomorrow", "is not an instant"),
        ("2026-13-03T17:01:00Z", "is not an instant"),
        ("2026-02-30T17:01:00Z", "is not an instant"),
        ("2026-06-03T17:01:00+25:00", "is not an instant"),
        ("2026-06-03T17:01:00.1234567Z", "finer than a microsecond"),
        ("in", "is not an instant"),
        ("in five minutes", "is not a length"),
        ("", "is not an instant"),
    ],
)
def test_what_is_no_instant_is_refused_with_the_option_named(text: str, says: str) -> None:
    with pytest.raises(Failure) as caught:
        instant(text)
    assert caught.value.code is ExitCode.USAGE
    assert caught.value.line().startswith("--at: ")
    assert says in caught.value.line()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10s", timedelta(seconds=10)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("2d", timedelta(days=2)),
        ("0s", timedelta(0)),
    ],
)
def test_a_length_has_units(text: str, length: timedelta) -> None:
    assert read_length(text, "--every") == length
    assert read_length(write_length(length), "--every") == length


@pytest.mark.parametrize("text", ["", "10", "-5s", "5 parsecs", "s", "1h30", "9999999d", "1e3s"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="--every"):
        read_length(text, "--every")


def test_b133_an_instant_is_shown_in_the_wall_time_of_its_zone() -> None:
    phoenix = datetime(2021, 12, 2, 0, 48, tzinfo=UTC)
    santiago = datetime(2022, 5, 3, 0, 37, tzinfo=UTC)
    assert write_local(phoenix, "America/Phoenix") == "2021-12-01 17:48 -07:00"
    assert write_local(santiago, "America/Santiago") == "2022-05-02 20:37 -04:00"
    assert write_local(phoenix, "UTC") == write_local(phoenix, "Nowhere/Bad") == write_local(phoenix, "../etc") == ""


def test_a_distance_in_time_is_told_roughly() -> None:
    assert write_age(NOW + timedelta(seconds=310), NOW) == "in 5m10s"
    assert write_age(NOW - timedelta(hours=26, minutes=3), NOW) == "1d2h ago"
    assert write_age(NOW, NOW) == "now"
    assert write_age(None, NOW) == ""
