"""The next version of a job: where its chain begins, what is pinned, and what a pause leaves behind."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Repinning, Resume
from controlplane.pinning import jitter_candidates, last_allowed
from core.calendars import CalendarPin, DayOff, DaysOff, Window, WindowAction, Windows
from core.enumerator import Enumerator
from core.errors import Conflict, Invalid
from core.jobspec import JobSpec, Pins
from core.occurrences import Occurrence, Occurrences, SearchLimit
from core.schedule import Schedule
from core.states import JobState
from core.store.calendar_lookup import Contents
from core.store.job_changes import Decision, NextVersion
from core.store.jobs import JobRecord
from core.store.surroundings import MINUTE_US, Surroundings
from tests.support.instants import us

# A Thursday.
NOW_US = us("2026-01-01T00:00:00Z")
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
JOB = UUID(int=77)
MINUTELY = Schedule(cron=("* * * * *",))
HOURLY = Schedule(cron=("0 * * * *",))
HOLIDAYS = CalendarPin(UUID(int=5), 1)
NIGHT = CalendarPin(UUID(int=6), 3)
CONTENTS: Contents = {
    HOLIDAYS: DaysOff(days=(DayOff("2026-01-01"),)),
    replace(HOLIDAYS, version=2): DaysOff(days=(DayOff("2026-01-01"), DayOff("2026-01-02"))),
    NIGHT: Windows(WindowAction.DEFER, (Window(cron="0 22 * * *", duration_us=8 * HOUR_US),)),
}
AROUND = Surroundings({"holidays": HOLIDAYS, "night": NIGHT}, CONTENTS)


def spec(schedule: Schedule | None, pins: Pins | None = None) -> JobSpec:
    return JobSpec("h", schedule=schedule, pins=pins or Pins())


def job(
    schedule: Schedule | None = MINUTELY,
    pins: Pins | None = None,
    *,
    state: JobState = JobState.ACTIVE,
    since_us: int = NOW_US - DAY_US,
) -> JobRecord:
    """A job at its third version, which took over at `since_us`."""
    return JobRecord(
        JOB, "default", "a", 0, 0, 3, state, since_us, since_us, 0, since_us, 0, "", spec(schedule, pins), b"old"
    )


def decided(
    decision: Decision, present: JobRecord | None = None, around: Surroundings = AROUND, at_us: int = NOW_US
) -> NextVersion:
    """What the transaction would get, asked in its order."""
    decision.wishes(present)
    decision.minutes(present, around, at_us)
    wanted = decision.version(present, around, at_us)
    assert wanted is not None
    return wanted


def created(schedule: Schedule | None, around: Surroundings = AROUND) -> NextVersion:
    return decided(Creation(JOB, spec(schedule), b"p", Enumerator()), None, around)


def edited(present: JobRecord, schedule: Schedule | None, around: Surroundings = AROUND) -> NextVersion:
    assert present.spec is not None
    changed = replace(present.spec, schedule=schedule)
    return decided(Edit(lambda _: (changed, b"new"), Enumerator()), present, around)


def restored(present: JobRecord, old: JobSpec) -> NextVersion:
    return decided(Edit(lambda _: (old, b"old"), Enumerator(), restored=True), present)


def resumed(present: JobRecord, choice: PausedOccurrences, around: Surroundings = AROUND) -> NextVersion:
    return decided(Resume(choice, Enumerator()), present, around)


def at(nominal_us: int, due_us: int | None = None) -> Occurrence:
    return Occurrence(nominal_us, nominal_us if due_us is None else due_us)


def pins_of(version: NextVersion) -> Pins:
    assert version.spec is not None
    return version.spec.pins


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


class TestCalendars:
    def test_are_pinned_at_their_present_version_and_count_from_the_beginning(self) -> None:
        version = created(replace(HOURLY, exclude_calendars=("holidays",), windows=("night",)))
        assert pins_of(version).calendars == {"holidays": HOLIDAYS, "night": NIGHT}
        assert version.first == at(NOW_US + DAY_US, NOW_US + DAY_US + 6 * HOUR_US), "put off to six o'clock"

    @pytest.mark.parametrize(
        ("schedule", "path", "rule"),
        [
            (replace(HOURLY, exclude_calendars=("holidays", "none")), "exclude.calendars[1]", "no calendar"),
            (replace(HOURLY, windows=("none",)), "windows[0]", "no calendar of the namespace is named 'none'"),
            (replace(HOURLY, exclude_calendars=("night",)), "exclude.calendars[0]", "holds windows"),
            (replace(HOURLY, windows=("holidays",)), "windows[0]", "holds days off"),
        ],
    )
    def test_that_are_not_there_or_of_the_other_kind_are_refused_by_their_path(
        self, schedule: Schedule, path: str, rule: str
    ) -> None:
        with pytest.raises(Invalid) as caught:
            created(schedule)
        assert caught.value.field == f"job.schedule.{path}"
        assert rule in caught.value.rule

    def test_that_cannot_be_read_are_refused(self) -> None:
        spoilt = Surroundings({"holidays": HOLIDAYS}, {HOLIDAYS: Invalid("content", "is no content")})
        with pytest.raises(Invalid, match="cannot be read: is no content"):
            created(replace(HOURLY, exclude_calendars=("holidays",)), spoilt)

    def test_reach_a_job_in_a_version_of_its_own_that_begins_now(self) -> None:
        newer = Surroundings({"holidays": replace(HOLIDAYS, version=2)}, CONTENTS)
        present = job(replace(HOURLY, exclude_calendars=("holidays",)), Pins(calendars={"holidays": HOLIDAYS}))
        version = decided(Repinning(Enumerator()), present, newer)
        assert pins_of(version).calendars == {"holidays": replace(HOLIDAYS, version=2)}
        assert version.first == at(NOW_US + 2 * DAY_US), "the second is a holiday now"
        assert (version.from_us or NOW_US, version.state) == (NOW_US, JobState.ACTIVE)

    def test_that_have_reached_a_job_change_nothing(self) -> None:
        present = job(replace(HOURLY, exclude_calendars=("holidays",)), Pins(calendars={"holidays": HOLIDAYS}))
        assert Repinning(Enumerator()).version(present, AROUND, NOW_US) is None

    def test_that_reach_a_paused_job_skip_the_pause_so_far(self) -> None:
        newer = Surroundings({"holidays": replace(HOLIDAYS, version=2)}, CONTENTS)
        present = job(
            replace(HOURLY, exclude_calendars=("holidays",)),
            Pins(calendars={"holidays": HOLIDAYS}),
            state=JobState.PAUSED,
        )
        version = decided(Repinning(Enumerator()), present, newer)
        assert (version.first, version.state) == (None, JobState.PAUSED)
        assert version.paused == (NOW_US - 23 * HOUR_US, NOW_US - HOUR_US), "the first of January is a holiday"

    def test_are_kept_by_an_edit_that_leaves_the_schedule_alone(self) -> None:
        old = Pins(calendars={"holidays": HOLIDAYS})
        schedule = replace(HOURLY, exclude_calendars=("holidays",))
        newer = Surroundings({"holidays": replace(HOLIDAYS, version=2)}, CONTENTS)
        assert pins_of(edited(job(schedule, old), schedule, newer)) == old
        moved = replace(schedule, cron=("1 * * * *",))
        assert pins_of(edited(job(schedule, old), moved, newer)).calendars["holidays"].version == 2


class TestJitter:
    JITTERED = replace(MINUTELY, jitter_us=6 * HOUR_US)

    @given(st.uuids(), st.integers(0, DAY_US))
    def test_candidates_lie_in_the_window_and_hang_on_the_job_alone(self, job_id: UUID, jitter_us: int) -> None:
        found = jitter_candidates(job_id, jitter_us)
        assert len(found) == 4
        assert all(0 <= offset_us <= jitter_us for offset_us in found)
        assert jitter_candidates(job_id, jitter_us) == found

    def test_takes_the_candidate_in_the_emptiest_minute(self) -> None:
        candidates = jitter_candidates(JOB, self.JITTERED.jitter_us)
        first_us = NOW_US + MINUTE_US
        minutes = [(first_us + offset_us) // MINUTE_US for offset_us in candidates]
        assert len(set(minutes)) == 4, "else this test shows nothing"
        asked = Creation(JOB, spec(self.JITTERED), b"", Enumerator()).minutes(None, AROUND, NOW_US)
        assert asked == frozenset(minutes)
        for emptiest in range(4):
            load = {minute: 5 + n for n, minute in enumerate(minutes)} | {minutes[emptiest]: 1}
            version = created(self.JITTERED, AROUND.with_load(load))
            assert pins_of(version).jitter_offset_us == candidates[emptiest]
            assert version.first == at(first_us, first_us + candidates[emptiest])

    def test_stays_over_edits_that_leave_it_alone(self) -> None:
        present = job(self.JITTERED, Pins(jitter_offset_us=1234))
        moved = edited(present, replace(self.JITTERED, cron=("7 * * * *",)))
        assert pins_of(moved).jitter_offset_us == 1234
        assert pins_of(edited(present, self.JITTERED)).jitter_offset_us == 1234
        assert pins_of(edited(present, replace(self.JITTERED, jitter_us=0))).jitter_offset_us == 0

    def test_is_chosen_anew_where_its_window_changes(self) -> None:
        present = job(self.JITTERED, Pins(jitter_offset_us=1234))
        changed = edited(present, replace(self.JITTERED, jitter_us=5 * MINUTE_US))
        assert pins_of(changed).jitter_offset_us == jitter_candidates(JOB, 5 * MINUTE_US)[0]

    def test_b49_never_reaches_the_end(self) -> None:
        version = created(replace(self.JITTERED, end_us=NOW_US + MINUTE_US + 1))
        assert version.first == at(NOW_US + MINUTE_US, NOW_US + MINUTE_US)


class TestMaxRuns:
    LIMITED = replace(MINUTELY, max_runs=5)

    def test_fixes_the_last_occurrence(self) -> None:
        version = created(self.LIMITED)
        assert (version.first, pins_of(version).last_us) == (at(NOW_US + MINUTE_US), NOW_US + 5 * MINUTE_US)

    def test_beyond_the_end_needs_no_last_occurrence(self) -> None:
        assert pins_of(created(replace(self.LIMITED, end_us=NOW_US + 4 * MINUTE_US))).last_us is None

    def test_goes_on_from_the_runs_made_after_an_edit(self) -> None:
        around = replace(AROUND, runs_made=3, accounted_us=NOW_US)
        version = edited(job(self.LIMITED), replace(HOURLY, max_runs=5), around)
        assert (version.first, pins_of(version).last_us) == (at(NOW_US + HOUR_US), NOW_US + 2 * HOUR_US)

    def test_counts_what_is_still_to_fire_until_the_cut_over(self) -> None:
        around = replace(AROUND, runs_made=3, accounted_us=NOW_US - MINUTE_US)
        version = edited(job(self.LIMITED), replace(HOURLY, max_runs=5), around)
        assert pins_of(version).last_us == NOW_US + HOUR_US

    def test_that_is_used_up_leaves_no_occurrence(self) -> None:
        around = replace(AROUND, runs_made=7, accounted_us=NOW_US)
        version = edited(job(self.LIMITED), replace(HOURLY, max_runs=5), around)
        assert version.first is None
        assert pins_of(version).last_us == NOW_US

    def test_goes_on_after_a_pause(self) -> None:
        around = replace(AROUND, runs_made=3, accounted_us=NOW_US - DAY_US)
        paused = job(self.LIMITED, Pins(last_us=NOW_US - DAY_US + 2 * MINUTE_US), state=JobState.PAUSED)
        skipping = resumed(paused, PausedOccurrences.SKIP, around)
        assert pins_of(skipping).last_us == NOW_US + 2 * MINUTE_US
        assert skipping.paused == (NOW_US - DAY_US + MINUTE_US, NOW_US - DAY_US + 2 * MINUTE_US)
        assert pins_of(resumed(paused, PausedOccurrences.CATCH_UP, around)).last_us == NOW_US - DAY_US + 2 * MINUTE_US

    def test_is_left_alone_by_an_edit_of_something_else(self) -> None:
        old = Pins(last_us=NOW_US + 17 * MINUTE_US)
        assert pins_of(edited(job(self.LIMITED, old), self.LIMITED)) == old


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


class Hidden(Occurrences):
    """Minutely occurrences; no search covers more than half a minute, and only so many are needed."""

    def next_after(self, nominal_us: int) -> Occurrence | None:
        found = super().next_after(nominal_us)
        if found is not None and found.nominal_us - nominal_us > MINUTE_US // 2:
            raise SearchLimit(nominal_us + MINUTE_US // 2)
        return found

    def nth_after(self, nominal_us: int, n: int) -> Occurrence | None:
        raise SearchLimit(nominal_us)


def test_the_last_run_is_found_beyond_what_one_search_covers() -> None:
    assert last_allowed(Hidden(MINUTELY), NOW_US, 5) == NOW_US + 5 * MINUTE_US
    assert last_allowed(Hidden(replace(MINUTELY, end_us=NOW_US + 3 * MINUTE_US)), NOW_US, 5) is None
    assert last_allowed(Hidden(MINUTELY), NOW_US, 500) is None, "given up, not walked for ever"
