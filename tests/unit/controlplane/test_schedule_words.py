"""A schedule in words, and the drawing of previews without a server."""

from __future__ import annotations

import pytest

from controlplane.schedule_preview import Wish, draft, preview
from controlplane.schedule_words import words_of
from core.calendars import DaysOff, Window, WindowAction, Windows
from core.errors import Invalid
from core.firetimes import GapRule, RepeatRule
from core.intervals import Every
from core.schedule import Schedule

DAY = 86_400_000_000
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Schedule(at_us=(0,)), ["Once at 1970-01-01T00:00:00Z."]),
        (
            Schedule(every=(Every(elapsed_us=90_000_000),), anchor_us=0),
            [
                "Every 1 min 30 s of elapsed time, counted from 1970-01-01T00:00:00Z; clocks that are set change "
                "nothing."
            ],
        ),
        (
            Schedule(every=(Every(months=1),), anchor_us=0),
            [
                "Every month at the same wall time in UTC, counted from 1970-01-01T00:00:00Z; in a month that is "
                "too short, on its last day."
            ],
        ),
        (
            Schedule(every=(Every(days=2, anchor_us=0),), zone=BERLIN, repeat=RepeatRule.SECOND, gap=GapRule.SHIFT),
            [
                "Every 2 days at the same wall time in Europe/Berlin, counted from 1970-01-01T00:00:00Z.",
                "When clocks in Europe/Berlin are set, a wall time that does not exist is put off by the length of the "
                "gap, and one that comes twice counts the second time.",
            ],
        ),
        (
            Schedule(cron=("@every 2s",), anchor_us=0),
            ["`@every 2s`: every 2 s of elapsed time, counted from 1970-01-01T00:00:00Z."],
        ),
        (Schedule(cron=("0 9 * * *",)), ["`0 9 * * *` in UTC."]),
        (
            Schedule(cron=("0 0 1-31 * 1",)),
            ["`0 0 1-31 * 1` in UTC; either of day-of-month `1-31` and day-of-week `1` is enough."],
        ),
        (
            Schedule(cron=("0 0 0 */2 * 1",)),
            [
                "`0 0 0 */2 * 1` in UTC; day-of-month `*/2` and day-of-week `1` must both match, since one of them "
                "begins with `*`."
            ],
        ),
        (
            Schedule(cron=("*/10 * * * *",), zone=BERLIN),
            [
                "`*/10 * * * *` in Europe/Berlin; its minute or hour begins with `*`: it follows elapsed time, and "
                "needs no gap or repeat rule."
            ],
        ),
        (
            Schedule(cron=("30 2 * * *",), zone=BERLIN, gap=GapRule.SKIP, repeat=RepeatRule.BOTH),
            [
                "`30 2 * * *` in Europe/Berlin.",
                "When clocks in Europe/Berlin are set, a wall time that does not exist is left out, and one that comes "
                "twice counts both times.",
            ],
        ),
        (
            Schedule(at_us=(DAY,), start_us=0, end_us=2 * DAY, max_runs=3, jitter_us=60_000_000),
            [
                "Once at 1970-01-02T00:00:00Z.",
                "Nothing before 1970-01-01T00:00:00Z.",
                "Nothing at or after 1970-01-03T00:00:00Z.",
                "It ends after 3 occurrences.",
                "Each run is put off by an amount of at most 1 min that is fixed for the job.",
            ],
        ),
        (
            Schedule(
                cron=("0 9 * * *",),
                exclude_dates=tuple(f"2026-01-0{day}" for day in range(1, 8)),
                exclude_calendars=("holidays",),
                windows=("nights",),
            ),
            [
                "`0 9 * * *` in UTC.",
                "Not on `2026-01-01`, `2026-01-02`, `2026-01-03`, `2026-01-04`, `2026-01-05` and 2 more.",
                "Not on days off of `holidays`.",
                "Skipped or put off in the windows of `nights`.",
            ],
        ),
    ],
)
def test_each_part_and_each_rule_has_its_sentence(schedule: Schedule, says: list[str]) -> None:
    assert words_of(schedule) == says


class TestDrafts:
    def test_end_after_their_number_of_runs(self) -> None:
        drawn = draft(Schedule(cron=("0 9 * * *",), max_runs=3), {})
        for count, more in ((2, True), (3, False), (9, False)):
            shown = preview(drawn, Wish(0, count=count))
            assert (len(shown.entries), shown.more) == (min(count, 3), more)
        shown = preview(drawn, Wish(0, count=9, include_excluded=True))
        assert (len(shown.entries), shown.more) == (3, False)

    def test_of_a_range_go_on_after_it(self) -> None:
        drawn = draft(Schedule(cron=("0 9 * * *",)), {})
        for include_excluded in (False, True):
            shown = preview(drawn, Wish(0, 2 * DAY, 5, include_excluded))
            assert (len(shown.entries), shown.more) == (2, True)
        over = draft(Schedule(cron=("0 9 * * *",), end_us=2 * DAY), {})
        assert not preview(over, Wish(0, 9 * DAY, 5)).more

    def test_count_what_is_taken_away_on_wish(self) -> None:
        drawn = draft(Schedule(cron=("0 9 * * *",), exclude_dates=("1970-01-02/1970-01-05",)), {})
        assert [entry.nominal_us // DAY for entry in preview(drawn, Wish(0, count=2)).entries] == [0, 5]
        shown = preview(drawn, Wish(0, count=2, include_excluded=True)).entries
        assert [(entry.nominal_us // DAY, bool(entry.excluded_by)) for entry in shown] == [(0, False), (1, True)]

    def test_want_each_calendar_and_of_the_right_kind(self) -> None:
        days, windows = DaysOff(weekdays=(0,)), Windows(WindowAction.SKIP, (Window(0, DAY),))
        named = Schedule(cron=("0 9 * * *",), exclude_calendars=("days",), windows=("nights",))
        assert draft(named, {"days": days, "nights": windows})
        for contents, field in (
            ({"nights": windows}, "schedule.exclude.calendars[0]"),
            ({"days": days}, "schedule.windows[0]"),
            ({"days": windows, "nights": windows}, "schedule.exclude.calendars[0]"),
            ({"days": days, "nights": days}, "schedule.windows[0]"),
        ):
            with pytest.raises(Invalid) as refusal:
                draft(named, contents)  # type: ignore[arg-type]
            assert refusal.value.field == field

    def test_of_slots_say_that_they_are_an_example(self) -> None:
        shown = preview(draft(Schedule(cron=("H 9 * * *",), hash_key="x"), {}), Wish(0))
        assert any("example" in note for note in shown.notes)
