"""What is fixed when a version of a job is made: calendars, jitter, and the last occurrence that a limit allows."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.violations import BadRequest
from controlplane.next_version import Creation, PausedOccurrences, Repinning
from controlplane.pinning import jitter_candidates, last_allowed
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import Pins
from core.occurrences import Occurrence, Occurrences, SearchLimit
from core.schedule import Schedule
from core.states import JobState
from core.store.surroundings import MINUTE_US, Surroundings
from tests.support.next_versions import (
    AROUND,
    CONTENTS,
    DAY_US,
    HOLIDAYS,
    HOUR_US,
    HOURLY,
    JOB,
    MINUTELY,
    NIGHT,
    NOW_US,
    at,
    created,
    decided,
    edited,
    job,
    pins_of,
    resumed,
    spec,
)


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
        with pytest.raises(BadRequest) as caught:
            created(schedule)
        (fault,) = caught.value.violations
        assert fault.field == f"job.schedule.{path}"
        assert rule in fault.rule

    def test_that_are_at_fault_are_all_told_at_once(self) -> None:
        with pytest.raises(BadRequest) as caught:
            created(replace(HOURLY, exclude_calendars=("none", "holidays"), windows=("other",)))
        paths = [fault.field for fault in caught.value.violations]
        assert paths == ["job.schedule.exclude.calendars[0]", "job.schedule.windows[0]"]

    def test_that_cannot_be_read_are_refused(self) -> None:
        spoilt = Surroundings({"holidays": HOLIDAYS}, {HOLIDAYS: Invalid("content", "is no content")})
        with pytest.raises(BadRequest, match="cannot be read: is no content"):
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
