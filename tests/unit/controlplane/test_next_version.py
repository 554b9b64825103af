"""The next version of a job: where its chain begins, what is pinned, and what a pause leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.next_version import Deletion, Edit, Pause, PausedOccurrences, Resume
from core.calendars import DaysOff
from core.enumerator import Enumerator
from core.errors import Conflict, Invalid
from core.jobspec import Pins
from core.schedule import Schedule
from core.states import JobState
from core.store.surroundings import MINUTE_US, Surroundings
from tests.support.instants import us
from tests.support.next_versions import (
    AROUND,
    DAY_US,
    HOLIDAYS,
    HOUR_US,
    HOURLY,
    MINUTELY,
    NOW_US,
    at,
    created,
    decided,
    edited,
    job,
    pins_of,
    restored,
    resumed,
    spec,
)


class TestACreation:
    def test_begins_strictly_after_the_instant_of_registration(self) -> None:
        version = created(MINUTELY)
        assert (version.first, version.from_us, version.state) == (at(NOW_US + MINUTE_US), NOW_US, JobState.ACTIVE)

    def test_without_a_schedule_has_no_occurrence(self) -> None:
        assert created(None).first is None

    def test_b59_takes_a_one_off_in_the_past_as_it_is(self) -> None:
        version = created(Schedule(at_us=(NOW_US - DAY_US,)))
        assert (version.first, version.from_us) == (at(NOW_US - DAY_US), NOW_US - DAY_US - 1)

    def test_of_several_instants_begins_at_the_earliest_one(self) -> None:
        version = created(Schedule(at_us=(NOW_US + 9, NOW_US - 5, NOW_US - 7)))
        assert (version.first, version.from_us) == (at(NOW_US - 7), NOW_US - 8)

    def test_refuses_a_past_instant_beside_what_recurs(self) -> None:
        with pytest.raises(Invalid, match=r"job\.schedule\.at: gives an instant in the past"):
            created(Schedule(at_us=(NOW_US - 5,), cron=("* * * * *",)))
        assert created(Schedule(at_us=(NOW_US + 5,), cron=("* * * * *",))).first == at(NOW_US + 5)

    @pytest.mark.parametrize(
        "schedule",
        [
            Schedule(cron=("* * * * *",), end_us=NOW_US),
            Schedule(cron=("0 12 1 1 *",), end_us=NOW_US + DAY_US, exclude_calendars=("holidays",)),
        ],
    )
    def test_refuses_what_recurs_and_never_fires_again(self, schedule: Schedule) -> None:
        with pytest.raises(Invalid, match=r"job\.schedule: never fires"):
            created(schedule)

    def test_refuses_what_a_calendar_takes_away_for_ever(self) -> None:
        always = Surroundings({"holidays": HOLIDAYS}, {HOLIDAYS: DaysOff(weekdays=tuple(range(7)))})
        with pytest.raises(Invalid, match=r"job\.schedule: never fires"):
            created(replace(MINUTELY, exclude_calendars=("holidays",)), always)


class TestAnEdit:
    def test_at_the_instant_of_an_occurrence_leaves_that_one_to_the_version_before(self) -> None:
        version = edited(job(MINUTELY), HOURLY)
        assert (version.first, version.from_us) == (at(NOW_US + HOUR_US), NOW_US)
        assert version.payload == b"new"

    def test_never_fires_for_a_past_time_of_the_new_expression(self) -> None:
        assert edited(job(HOURLY), Schedule(cron=("59 23 31 12 *",))).first == at(us("2026-12-31T23:59:00Z"))

    def test_of_something_else_goes_on_from_now(self) -> None:
        assert edited(job(MINUTELY), MINUTELY).first == at(NOW_US + MINUTE_US)

    def test_that_gives_a_new_past_instant_begins_there_and_not_at_the_known_ones(self) -> None:
        present = job(Schedule(at_us=(NOW_US - 9,)))
        again = edited(present, Schedule(at_us=(NOW_US - 9, NOW_US + 9)))
        assert (again.first, again.from_us) == (at(NOW_US + 9), NOW_US)
        past = edited(present, Schedule(at_us=(NOW_US - 9, NOW_US - 5, NOW_US - 4)))
        assert (past.first, past.from_us) == (at(NOW_US - 5), NOW_US - 6)
        over = edited(present, Schedule(at_us=(NOW_US - 9,), zone="Asia/Tokyo"))
        assert over.first is None

    def test_that_repeats_a_past_instant_beside_what_recurs_is_taken(self) -> None:
        present = job(Schedule(at_us=(NOW_US - 9,)))
        assert edited(present, Schedule(at_us=(NOW_US - 9,), cron=("0 * * * *",))).first == at(NOW_US + HOUR_US)

    def test_of_a_paused_job_that_leaves_the_schedule_alone_keeps_the_pause(self) -> None:
        version = edited(job(state=JobState.PAUSED), MINUTELY)
        assert (version.first, version.from_us, version.paused) == (None, NOW_US - DAY_US, None)
        assert version.state is JobState.PAUSED

    def test_of_the_schedule_of_a_paused_job_skips_the_pause_so_far(self) -> None:
        version = edited(job(state=JobState.PAUSED), HOURLY)
        assert (version.first, version.from_us) == (None, NOW_US)
        assert version.paused == (NOW_US - DAY_US + MINUTE_US, NOW_US)

    def test_of_a_job_that_cannot_be_read_is_refused(self) -> None:
        spoilt = replace(job(), spec=None, fault="no form")
        with pytest.raises(Conflict, match="no form; delete the job"):
            Edit(lambda _: (spec(None), b""), Enumerator()).wishes(spoilt)


class TestAPause:
    def test_has_no_occurrence_and_begins_now(self) -> None:
        version = decided(Pause(), job())
        assert (version.first, version.from_us, version.state) == (None, None, JobState.PAUSED)
        assert (version.spec, version.payload) == (job().spec, b"old")

    def test_of_a_paused_job_changes_nothing(self) -> None:
        assert Pause().version(job(state=JobState.PAUSED), AROUND, NOW_US) is None

    def test_of_a_job_that_cannot_be_read_is_taken(self) -> None:
        assert decided(Pause(), replace(job(), spec=None, fault="no form")).spec is None


class TestAResume:
    def test_b52_with_skip_records_the_pause_and_begins_now(self) -> None:
        version = resumed(job(HOURLY, state=JobState.PAUSED, since_us=NOW_US - 3 * HOUR_US), PausedOccurrences.SKIP)
        assert (version.first, version.from_us, version.state) == (at(NOW_US + HOUR_US), NOW_US, JobState.ACTIVE)
        assert version.paused == (NOW_US - 2 * HOUR_US, NOW_US)

    def test_b52_with_catch_up_begins_where_the_pause_did(self) -> None:
        version = resumed(job(HOURLY, state=JobState.PAUSED, since_us=NOW_US - 3 * HOUR_US), PausedOccurrences.CATCH_UP)
        assert (version.first, version.from_us) == (at(NOW_US - 2 * HOUR_US), NOW_US - 3 * HOUR_US)
        assert version.paused is None

    @pytest.mark.parametrize("choice", list(PausedOccurrences))
    def test_of_a_pause_without_occurrences_records_nothing(self, choice: PausedOccurrences) -> None:
        version = resumed(job(HOURLY, state=JobState.PAUSED, since_us=NOW_US - HOUR_US + MINUTE_US), choice)
        assert version.paused is None or version.paused == (NOW_US, NOW_US)
        short = resumed(job(Schedule(cron=("0 12 * * *",)), state=JobState.PAUSED, since_us=NOW_US - HOUR_US), choice)
        assert (short.paused, short.first) == (None, at(NOW_US + 12 * HOUR_US))

    def test_of_an_active_job_changes_nothing(self) -> None:
        assert Resume(PausedOccurrences.SKIP, Enumerator()).version(job(), AROUND, NOW_US) is None

    def test_needs_the_calendars_that_the_job_is_pinned_to(self) -> None:
        present = job(
            replace(HOURLY, exclude_calendars=("holidays",)),
            Pins(calendars={"holidays": replace(HOLIDAYS, version=9)}),
            state=JobState.PAUSED,
        )
        assert Resume(PausedOccurrences.SKIP, Enumerator()).wishes(present).pins == {replace(HOLIDAYS, version=9)}
        with pytest.raises(Conflict, match="the calendar holidays that it names is missing"):
            resumed(present, PausedOccurrences.SKIP)


class TestADeletion:
    def test_ends_the_job(self) -> None:
        version = decided(Deletion(Enumerator()), job())
        assert (version.first, version.paused, version.state) == (None, None, JobState.DELETED)

    def test_of_a_paused_job_records_the_pause(self) -> None:
        present = job(HOURLY, state=JobState.PAUSED, since_us=NOW_US - 3 * HOUR_US)
        assert decided(Deletion(Enumerator()), present).paused == (NOW_US - 2 * HOUR_US, NOW_US)

    def test_is_not_held_up_by_what_cannot_be_read(self) -> None:
        gone = Pins(calendars={"holidays": replace(HOLIDAYS, version=9)})
        named = replace(HOURLY, exclude_calendars=("holidays",))
        for present in (
            replace(job(state=JobState.PAUSED), spec=None, fault="no form"),
            job(named, gone, state=JobState.PAUSED),
        ):
            assert decided(Deletion(Enumerator()), present).state is JobState.DELETED


class TestARestoration:
    def test_takes_effect_from_now_on_and_keeps_the_state(self) -> None:
        version = restored(job(MINUTELY), spec(HOURLY))
        assert (version.first, version.from_us, version.state) == (at(NOW_US + HOUR_US), NOW_US, JobState.ACTIVE)
        paused = restored(job(MINUTELY, state=JobState.PAUSED), spec(HOURLY))
        assert (paused.first, paused.state) == (None, JobState.PAUSED)
        assert paused.paused == (NOW_US - DAY_US + MINUTE_US, NOW_US)

    def test_does_not_fire_the_past_one_offs_of_the_old_version_again(self) -> None:
        version = restored(job(MINUTELY), spec(Schedule(at_us=(NOW_US - 5,))))
        assert (version.first, version.from_us) == (None, NOW_US)

    def test_brings_the_old_jitter_back_and_pins_the_present_calendars(self) -> None:
        old = replace(HOURLY, jitter_us=HOUR_US, exclude_calendars=("holidays",))
        pins = Pins(jitter_offset_us=99, calendars={"holidays": replace(HOLIDAYS, version=9)})
        version = restored(job(MINUTELY), spec(old, pins))
        assert pins_of(version) == Pins(jitter_offset_us=99, calendars={"holidays": HOLIDAYS})

    def test_of_a_schedule_that_is_over_is_taken(self) -> None:
        assert restored(job(MINUTELY), spec(Schedule(cron=("* * * * *",), end_us=NOW_US))).first is None
