"""Which zone names are accepted, and that the tables of offsets are what zoneinfo says."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib import metadata
from zoneinfo import ZoneInfo

import pytest

from core.civil import END_S
from core.errors import Invalid, InvariantBroken
from core.zones import use_pinned_tzdata, zone, zone_names, zone_table

DAY_S = 86_400


def offset_s(where: ZoneInfo, instant_s: int) -> float:
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)).astimezone(where).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def test_only_the_pinned_package_is_read() -> None:
    assert use_pinned_tzdata() == metadata.version("tzdata")
    assert zoneinfo.TZPATH == ()


def test_another_version_than_the_expected_one_stops_the_role() -> None:
    with pytest.raises(InvariantBroken, match=r"pinned to 1999\.1"):
        use_pinned_tzdata("1999.1")


@pytest.mark.parametrize(
    "name",
    [
        "PST", "Mars/Olympus", "+05:30", "UTC+3", "GMT+3", "+03:00", "europe/berlin", "Europe/Berlin ",
        " Europe/Berlin", "../../etc/passwd", "/etc/localtime", "localtime", "Factory", "posix/Europe/Berlin", "Europe",
        "zone.tab", "utc", "Europe/Berlin\x00", "EUROPE/BERLIN", "a" * 10_000, "\uff21frica/Cairo", ".",
        "Europe/../Europe/Berlin",
    ],
)  # fmt: skip
def test_b116_b30_refuses_what_iana_does_not_list(name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        zone(name, field="schedule.zone")
    assert refusal.value.field == "schedule.zone"
    assert "IANA" in refusal.value.rule


def test_b116_opens_no_file_for_a_refused_name(monkeypatch: pytest.MonkeyPatch) -> None:
    zone_names()
    monkeypatch.setattr("core.zones.ZoneInfo", lambda key: pytest.fail(f"looked for {key}"))
    for name in ("../../etc/passwd", "/etc/localtime", "Nowhere/Bad"):
        with pytest.raises(Invalid):
            zone(name)


def test_b116_a_near_miss_is_told_the_right_spelling() -> None:
    for name in ("europe/berlin", "Europe/Berlin ", "EUROPE/BERLIN"):
        with pytest.raises(Invalid, match=r"did you mean Europe/Berlin\?"):
            zone(name)
    with pytest.raises(Invalid, match="Etc/GMT-3"):
        zone("UTC+3")


def test_b116_empty_means_utc() -> None:
    assert zone("").key == "UTC"


def test_b29_est_is_five_hours_behind_all_year() -> None:
    where = zone("EST")
    assert {offset_s(where, day * DAY_S) for day in range(20_000, 20_800, 7)} == {-5 * 3600}


def test_b32_a_listed_zone_without_data_is_refused_and_never_read_as_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr("core.zones.ZoneInfo", missing)
    with pytest.raises(Invalid, match="Asia/Singapore cannot be read"):
        zone("Asia/Singapore")


def test_every_listed_zone_has_a_table_that_agrees_with_zoneinfo() -> None:
    use_pinned_tzdata()
    draw = random.Random(20261101)
    for name in sorted(zone_names()):
        where, table = zone(name), zone_table(name)
        assert list(table.starts_s) == sorted(set(table.starts_s))
        for run in draw.sample(range(len(table.offsets_s)), min(20, len(table.offsets_s))):
            start, after = table.starts_s[run], table.offsets_s[run]
            assert offset_s(where, start) == after
            if run:
                before = table.offsets_s[run - 1]
                assert before != after
                assert offset_s(where, start - 1) == before
        for instant in (draw.randrange(0, END_S) for _ in range(20)):
            assert table.offsets_s[table.index(instant)] == offset_s(where, instant)


@pytest.mark.long
def test_no_zone_leaves_and_regains_an_offset_between_two_probes() -> None:
    """Looks at every third day of 130 years in every zone: the probes of the tables are six days apart."""
    use_pinned_tzdata()
    for name in sorted(zone_names()):
        where, table = zone(name), zone_table(name)
        for instant in range(0, 130 * 365 * DAY_S, 3 * DAY_S):
            assert table.offsets_s[table.index(instant)] == offset_s(where, instant), (name, instant)
