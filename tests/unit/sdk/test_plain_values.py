"""Plain Python values to messages and back: times with zones, exact durations, payloads, addresses, lazy imports."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
import tidewheel
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.addresses import control_plane_addresses
from tidewheel.payloads import encode
from tidewheel.policies import CatchUp, RetryPolicy, catch_up_message, overlap_value, retry_message
from tidewheel.schedules import (
    At,
    Cron,
    Every,
    Schedule,
    duration,
    schedule_message,
    timestamp,
    to_datetime,
    to_timedelta,
)
from tidewheel.v1 import job_pb2

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)
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
    assert [interval.elapsed.seconds for interval in every.every] == [90]
    assert every.HasField("end")
    assert not every.HasField("start")
    assert not every.every[0].HasField("anchor")
    at = schedule_message(At(NEW_YEAR, NEW_YEAR + timedelta(days=1)))
    assert [time.seconds for time in at.at] == [1_893_456_000, 1_893_542_400]


@pytest.mark.parametrize(
    ("every", "period"),
    [(Every(days=2), "days"), (Every(weeks=1), "weeks"), (Every(months=3), "months"), (Every(timedelta(1)), "elapsed")],
)
def test_an_interval_has_one_period(every: Every, period: str) -> None:
    (interval,) = schedule_message(every).every
    assert interval.WhichOneof("period") == period


def test_an_interval_of_no_period_or_of_two_is_refused() -> None:
    for wrong in (Every(), Every(days=1, weeks=1), Every(timedelta(1), months=1)):
        with pytest.raises(ValueError, match="exactly one of elapsed, days, weeks and months"):
            schedule_message(wrong)


def test_a_union_holds_all_kinds_and_all_options() -> None:
    message = schedule_message(
        Schedule(
            at=[NEW_YEAR],
            every=[Every(months=1, anchor=NEW_YEAR)],
            cron=["0 9 * * 1-5"],
            anchor=NEW_YEAR,
            zone="Europe/Berlin",
            exclude_dates=[date(2030, 12, 24), "*-12-25"],
            exclude_cron=["0 9 1 1 *"],
            exclude_calendars=["holidays"],
            windows=["maintenance"],
            max_runs=5,
            jitter=timedelta(minutes=3),
        )
    )
    assert (len(message.at), len(message.every), len(message.cron)) == (1, 1, 1)
    assert message.every[0].anchor == message.anchor == message.at[0]
    assert list(message.exclude.dates) == ["2030-12-24", "*-12-25"]
    assert (list(message.exclude.cron), list(message.exclude.calendars)) == (["0 9 1 1 *"], ["holidays"])
    assert (list(message.windows), message.max_runs, message.jitter.seconds) == (["maintenance"], 5, 180)


def test_options_of_an_interval_within_a_union_are_refused() -> None:
    with pytest.raises(ValueError, match=r"schedule\.every\[0\]: zone belong to the Schedule"):
        schedule_message(Schedule(every=[Every(days=1, zone="Asia/Tokyo")]))


def test_policies_become_messages_and_what_is_absent_stays_absent() -> None:
    retry = retry_message(RetryPolicy(max_attempts=2, jitter=0.0))
    assert (retry.max_attempts, retry.HasField("jitter"), retry.HasField("first_delay")) == (2, True, False)
    assert not retry_message(RetryPolicy()).HasField("jitter")
    catch_up = catch_up_message(CatchUp("all", timedelta(seconds=5), 3, timedelta(days=1), "newest_first"))
    assert (catch_up.mode, catch_up.order) == (job_pb2.CATCH_UP_MODE_ALL, job_pb2.CATCH_UP_ORDER_NEWEST_FIRST)
    assert (catch_up.grace.seconds, catch_up.max_runs, catch_up.window.seconds) == (5, 3, 86_400)
    assert catch_up_message("skip") == job_pb2.CatchUpPolicy(mode=job_pb2.CATCH_UP_MODE_SKIP)
    assert catch_up_message(CatchUp()) == job_pb2.CatchUpPolicy()
    assert overlap_value("cancel_other") == job_pb2.OVERLAP_POLICY_CANCEL_OTHER


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"overlap: must be one of 'skip', 'allow', 'buffer_one', .*, not 'both'"):
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
