"""Messages and values: schedules both ways, page tokens, etags, sentences about runs, next occurrences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from tidewheel.v1 import calendar_service_pb2, job_pb2

from controlplane.api import page_tokens
from controlplane.api.decode_schedule import decode_schedule, duration, encode_schedule, timestamp
from controlplane.api.etags import check_etag, etag_of
from controlplane.api.explain import explain
from controlplane.api.fields import duration_us, instant_us
from controlplane.api.job_views import JobViews
from controlplane.api.violations import BadRequest, Violations
from core.civil import END_US
from core.enumerator import Enumerator
from core.errors import Invalid, StaleEtag
from core.intervals import Every
from core.jobspec import JobSpec, Pins
from core.schedule import Schedule
from core.states import JobState, RunCause, RunState
from core.store.jobs import JobRecord
from core.store.runs import RunRecord
from tests.support.clock import ManualClock
from tests.support.instants import rfc3339, us

NOW_US = us("2026-01-01T00:00:00Z")
MINUTE_US = 60_000_000


def job(schedule: Schedule | None, *, state: JobState = JobState.ACTIVE, version: int = 1) -> JobRecord:
    spec = JobSpec("h", schedule=schedule)
    times = (NOW_US,) * 4
    return JobRecord(UUID(int=1), "default", "a", 0, 0, version, state, *times, 0, "", spec, b"")


def elapsed(seconds: int, anchor: Timestamp | None = None) -> job_pb2.Interval:
    return job_pb2.Interval(elapsed=Duration(seconds=seconds), anchor=anchor)


class TestSchedules:
    @pytest.mark.parametrize(
        "message",
        [
            job_pb2.Schedule(at=[Timestamp(seconds=7, nanos=1000), Timestamp(seconds=3)]),
            job_pb2.Schedule(every=[elapsed(90)], anchor=Timestamp(seconds=5)),
            job_pb2.Schedule(
                at=[Timestamp(seconds=9)],
                every=[
                    elapsed(90, anchor=Timestamp(seconds=5)),
                    job_pb2.Interval(days=3660),
                    job_pb2.Interval(weeks=3660),
                    job_pb2.Interval(months=1200, anchor=Timestamp(seconds=6)),
                ],
                cron=["0 3 * * *"],
                zone="Europe/Berlin",
                exclude=job_pb2.Exclusions(dates=["*-12-25"], cron=["0 3 1 * *"], calendars=["days"]),
                windows=["night"],
                max_runs=100_000,
                jitter=Duration(seconds=3600),
            ),
            job_pb2.Schedule(cron=["*/5 * * * *", "@every 7s"], anchor=Timestamp(seconds=5), zone="Asia/Tokyo"),
            job_pb2.Schedule(
                cron=["0 3 * * *"], gap=2, repeat=3, start=Timestamp(seconds=5), end=Timestamp(seconds=10**9)
            ),
        ],
    )
    def test_come_back_as_they_went_in(self, message: job_pb2.Schedule) -> None:
        schedule = decode_schedule(message, "s", now_us=NOW_US, hash_key="k").schedule
        shown = encode_schedule(schedule)
        again = decode_schedule(shown, "s", now_us=NOW_US + 1, hash_key="k").schedule
        assert again == schedule
        assert encode_schedule(again) == shown

    def test_that_count_from_now_say_so_only_until_they_are_stored(self) -> None:
        message = job_pb2.Schedule(every=[elapsed(60)])
        wanted = decode_schedule(message, "s", now_us=NOW_US, hash_key="")
        assert wanted.following(None).anchor_us == NOW_US
        stored = Schedule(every=(Every(elapsed_us=30_000_000),), anchor_us=17)
        assert wanted.following(stored).anchor_us == 17
        given = decode_schedule(
            job_pb2.Schedule(every=[elapsed(60)], anchor=Timestamp(seconds=3)), "s", now_us=NOW_US, hash_key=""
        )
        assert given.following(stored).anchor_us == 3_000_000

    @pytest.mark.parametrize(
        ("line", "keyed"),
        [
            ("H 3 * * *", True),
            ("0 h(1-5)/2 * * *", True),
            ("1,H * * * *", True),
            ("@hourly", False),
            ("0 0 * MAR THU", False),
        ],
    )
    def test_carry_a_slot_key_only_where_a_line_uses_it(self, line: str, keyed: bool) -> None:
        """Equal schedules of many jobs stay equal, so that their work is shared."""
        excluding = job_pb2.Schedule(cron=["* * * * *"], exclude=job_pb2.Exclusions(cron=[line]))
        for message in (job_pb2.Schedule(cron=[line]), excluding):
            schedule = decode_schedule(message, "s", now_us=0, hash_key="ns/a").schedule
            assert schedule.hash_key == ("ns/a" if keyed else "")


class TestInstants:
    @settings(deadline=None)
    @given(st.integers(0, END_US - 1))
    def test_are_exact_to_the_microsecond(self, value_us: int) -> None:
        assert instant_us(timestamp(value_us), "x") == value_us

    @settings(deadline=None)
    @given(st.integers(0, 10**15))
    def test_durations_too(self, value_us: int) -> None:
        assert duration_us(duration(value_us), "x") == value_us


class TestPageTokens:
    LISTING = ("/Method", "ns", "prefix")

    @settings(deadline=None)
    @given(st.text(max_size=128), st.integers(0, 2**63 - 1))
    def test_give_the_key_back_to_their_own_listing(self, name: str, number: int) -> None:
        token = page_tokens.encode(self.LISTING, [number, name])
        assert page_tokens.decode(token, self.LISTING, shape=(int, str)) == [number, name]

    @pytest.mark.parametrize(
        ("after", "shape", "read"),
        [
            ("name", (str,), page_tokens.name),
            (7, (int,), page_tokens.version),
            ((7, UUID(int=5)), (int, str), page_tokens.instant_and_id),
        ],
    )
    def test_lead_on_after_what_the_page_ended_with(
        self, after: str | int | tuple[int, UUID], shape: tuple[type, ...], read: Callable[[page_tokens.Key], object]
    ) -> None:
        key = page_tokens.decode(page_tokens.following(self.LISTING, after), self.LISTING, shape=shape)
        assert key is not None
        assert read(key) == after

    def test_there_are_none_after_the_last_page(self) -> None:
        assert page_tokens.following(self.LISTING, None) == ""

    def test_of_nothing_are_the_first_page(self) -> None:
        assert page_tokens.decode("", self.LISTING, shape=(str,)) is None

    @settings(deadline=None)
    @given(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True))
    def test_that_nobody_gave_are_refused(self, token: str) -> None:
        if token:
            with pytest.raises(Invalid, match="page_token"):
                page_tokens.decode(token, self.LISTING, shape=(str,))

    @pytest.mark.parametrize(
        "listing", [("/Other", "ns", "prefix"), ("/Method", "ns2", "prefix"), ("/Method", "nsprefix", "")]
    )
    def test_of_another_listing_are_refused(self, listing: tuple[str, ...]) -> None:
        with pytest.raises(Invalid, match="another listing"):
            page_tokens.decode(page_tokens.encode(self.LISTING, ["a"]), listing, shape=(str,))

    def test_with_a_key_of_another_shape_are_refused(self) -> None:
        for key in (["a"], [1], [True, "a"], []):
            with pytest.raises(Invalid, match="page_token"):
                page_tokens.decode(page_tokens.encode(self.LISTING, key), self.LISTING, shape=(int, str))  # type: ignore[arg-type]

    def test_tell_their_fault_together_with_all_that_was_found_before(self) -> None:
        request = calendar_service_pb2.ListCalendarsRequest(page_size=-1, page_token="?")
        faults = Violations()
        faults.add("namespace", "is wrong")
        with pytest.raises(BadRequest) as refused:
            page_tokens.page(request, self.LISTING, faults, (str,), page_tokens.name)
        assert [fault.field for fault in refused.value.violations] == ["namespace", "page_size", "page_token"]

    def test_with_a_size_are_what_a_page_is_asked_for_by(self) -> None:
        request = calendar_service_pb2.ListCalendarsRequest(page_size=7)
        assert page_tokens.page(request, self.LISTING, Violations(), (str,), page_tokens.name) == (7, None)
        request.page_token = page_tokens.encode(self.LISTING, ["a"])
        assert page_tokens.page(request, self.LISTING, Violations(), (str,), page_tokens.name) == (7, "a")

    @pytest.mark.parametrize("version", [-1, 2**63])
    def test_that_name_no_possible_version_are_refused(self, version: int) -> None:
        with pytest.raises(Invalid, match="is not a page token of this service"):
            page_tokens.version([version])


def test_an_etag_names_one_version_of_one_job() -> None:
    first = job(None)
    others = [job(None, version=2), replace(first, job_id=UUID(int=2))]
    check_etag(etag_of(first), first)
    check_etag("", first)
    for other in others:
        with pytest.raises(StaleEtag):
            check_etag(etag_of(first), other)


class TestTheNextOccurrence:
    @pytest.fixture
    def views(self) -> JobViews:
        return JobViews(ManualClock(NOW_US), Enumerator())

    def test_lies_strictly_after_now(self, views: JobViews) -> None:
        minutely = Schedule(cron=("* * * * *",))
        assert views.next_of(job(minutely), {}) == (NOW_US + MINUTE_US, NOW_US + MINUTE_US)

    def test_is_due_later_by_the_jitter(self, views: JobViews) -> None:
        of = job(Schedule(cron=("* * * * *",), jitter_us=50))
        assert of.spec is not None
        jittered = replace(of, spec=replace(of.spec, pins=Pins(jitter_offset_us=50)))
        shown = views.shown(jittered, {})
        assert shown.next_due.nanos - shown.next_occurrence.nanos == 50_000
        assert shown.jitter_offset.nanos == 50_000

    def test_of_a_past_one_off_is_none(self, views: JobViews) -> None:
        assert views.next_of(job(Schedule(at_us=(NOW_US - 5,))), {}) is None

    @pytest.mark.parametrize("state", [JobState.PAUSED, JobState.DELETED])
    def test_is_none_for_a_job_that_is_not_active(self, views: JobViews, state: JobState) -> None:
        assert views.next_of(job(Schedule(cron=("* * * * *",)), state=state), {}) is None
        assert views.next_of(job(None), {}) is None

    def test_is_none_where_a_calendar_is_missing(self, views: JobViews) -> None:
        named = job(Schedule(cron=("* * * * *",), exclude_calendars=("gone",)))
        assert views.next_of(named, {}) is None

    @pytest.mark.parametrize(
        ("now", "line", "zone", "expected"),
        [
            ("2021-12-01T12:00:00Z", "48 17 * * 3", "America/Phoenix", "2021-12-02T00:48:00Z"),
            ("2022-05-02T12:00:00Z", "37 20 2 5 *", "America/Santiago", "2022-05-03T00:37:00Z"),
        ],
    )
    def test_b133_is_computed_in_the_zone_that_fires(self, now: str, line: str, zone: str, expected: str) -> None:
        views = JobViews(ManualClock(us(now)), Enumerator())
        made = replace(job(Schedule(cron=(line,), zone=zone)), cutover_us=us(now))
        found = views.next_of(made, {})
        assert found is not None
        assert rfc3339(found.nominal_us) == expected


RUN = RunRecord(
    run_id=UUID(int=3),
    namespace="default",
    job_name="a",
    job_id=UUID(int=1),
    job_version=1,
    shard=5,
    cause=RunCause.SCHEDULE,
    scheduled_for_us=NOW_US,
    due_at_us=NOW_US,
    created_us=NOW_US,
    state=RunState.PENDING,
    queue="q",
    max_attempts=4,
    home_term=2,
)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (RUN, "Due since 2026-01-01T00:00:00.000Z; waits for a free worker on queue 'q'."),
        (replace(RUN, home_term=0), "Due; the owner of shard 5 has not picked it up yet."),
        (
            replace(RUN, gated=True),
            "Due since 2026-01-01T00:00:00.000Z; waits for its turn behind the other open runs of its job.",
        ),
        (
            replace(RUN, cause=RunCause.BACKFILL, home_term=0),
            "Made by a backfill; the owner of shard 5 has not picked it up yet.",
        ),
        (
            replace(RUN, attempt=2, not_before_us=NOW_US + 10_000_000, last_error=" boom\nat line 3"),
            "Attempt 2 ended (boom); the next one starts at 2026-01-01T00:00:10.000Z.",
        ),
        (
            replace(RUN, state=RunState.LEASED, attempt=1, worker="w", lease_until_us=NOW_US),
            "Worker 'w' holds attempt 1 under a lease until 2026-01-01T00:00:00.000Z.",
        ),
        (replace(RUN, state=RunState.SUCCEEDED, attempt=3), "Attempt 3 succeeded."),
        (
            replace(RUN, state=RunState.FAILED, attempt=1, last_error="no"),
            "Attempt 1 failed with an error that its handler does not want retried (no).",
        ),
        (replace(RUN, state=RunState.DEAD, attempt=4), "All attempts are used up: attempt 4 was the last one."),
        (
            replace(RUN, state=RunState.CANCELED, attempt=2, cancel_requested_us=NOW_US),
            "Canceled after 2 attempts, as was asked for at 2026-01-01T00:00:00.000Z.",
        ),
    ],
)
def test_a_run_explains_itself_in_one_sentence(run: RunRecord, sentence: str) -> None:
    assert explain(run, NOW_US) == sentence
