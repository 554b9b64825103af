"""Plain Python values to messages and back: times with zones, exact durations, payloads, addresses, lazy imports."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
import tidewheel
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.addresses import control_plane_addresses
from tidewheel.payloads import encode
from tidewheel.schedules import (
    At,
    Cron,
    Every,
    RetryPolicy,
    catch_up_message,
    duration,
    overlap_value,
    retry_message,
    schedule_message,
    timestamp,
    to_datetime,
    to_timedelta,
)
from tidewheel.v1 import job_pb2

INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))


@given(INSTANTS)
def test_instants_survive_to_the_microsecond(instant: datetime) -> None:
    assert to_datetime(timestamp("at", instant)) == instant


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_durations_survive_to_the_microsecond(span: timedelta) -> None:
    message = duration(span)
    assert to_timedelta(message) == span
    assert message.ToTimedelta() == span


def test_the_zone_of_a_datetime_counts() -> None:
    there = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert to_datetime(timestamp("at", there)) == datetime(2030, 1, 1, 7, tzinfo=UTC)


def test_a_datetime_without_a_zone_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"schedule\.at: a datetime needs a zone"):
        schedule_message(At(datetime(2030, 1, 1)))


def test_schedules_become_messages() -> None:
    cron = schedule_message(Cron("0 9 * * 1-5", "@hourly", zone="Europe/Berlin", gap="skip", repeat="both"))
    assert (list(cron.cron), cron.zone) == (["0 9 * * 1-5", "@hourly"], "Europe/Berlin")
    assert (cron.gap, cron.repeat) == (job_pb2.GAP_RULE_SKIP, job_pb2.REPEAT_RULE_BOTH)
    every = schedule_message(Every(timedelta(seconds=90), end=datetime(2031, 1, 1, tzinfo=UTC)))
    assert every.every.seconds == 90
    assert every.HasField("end")
    assert not every.HasField("start")
    assert schedule_message(At(datetime(2030, 1, 1, tzinfo=UTC))).at.seconds == 1_893_456_000


def test_policies_become_messages_and_what_is_absent_stays_absent() -> None:
    retry = retry_message(RetryPolicy(max_attempts=2, jitter=0.0))
    assert (retry.max_attempts, retry.HasField("jitter"), retry.HasField("first_delay")) == (2, True, False)
    assert not retry_message(RetryPolicy()).HasField("jitter")
    assert catch_up_message("skip", timedelta(seconds=5)).mode == job_pb2.CATCH_UP_MODE_SKIP
    assert not catch_up_message(None, None).HasField("grace")
    assert overlap_value("allow") == job_pb2.OVERLAP_POLICY_ALLOW


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="overlap: must be one of 'skip', 'allow', not 'both'"):
        overlap_value("both")


@pytest.mark.parametrize(
    ("value", "data", "kind"),
    [
        (None, b"", ""),
        (b"\x00", b"\x00", "application/octet-stream"),
        (bytearray(b"a"), b"a", "application/octet-stream"),
        ("ü", "ü".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode(), "application/json"),
        (0, b"0", "application/json"),
        (False, b"false", "application/json"),
    ],
)
def test_payloads(value: object, data: bytes, kind: str) -> None:
    assert encode(value) == (data, kind)


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1, 2}}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(value)


def test_addresses_come_as_list_string_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert control_plane_addresses("a:1, b:2,") == ("a:1", "b:2")
    assert control_plane_addresses(["a:1", "a:1", "[::1]:2"]) == ("a:1", "[::1]:2")
    monkeypatch.setenv("TIDEWHEEL_ADDRESS", "c:3")
    assert control_plane_addresses(None) == ("c:3",)


@pytest.mark.parametrize("bad", ["", "host", "host:", ":1", "host:0", "host:70000", "host:x"])
def test_addresses_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"no control plane|not an address"):
        control_plane_addresses(bad)


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, tidewheel; tidewheel.NotFound; print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]


def test_every_public_name_exists() -> None:
    assert all(getattr(tidewheel, name) for name in tidewheel.__all__)
    assert dir(tidewheel) == tidewheel.__all__
    with pytest.raises(AttributeError):
        _ = tidewheel.Nothing
